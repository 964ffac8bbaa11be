#include "tandem/train/saving/budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/base/file.h"

namespace tandem {
namespace {

constexpr double kSafety = 1.1;  // turns and saves may take a little longer than ever before
constexpr double kEnd_s = 0.5;   // to end the process
constexpr double kNoteEvery_s = 1;

}  // namespace

Budget::Budget(const TrainConfig& train, const std::filesystem::path& run_dir, double start_s, bool goes_on)
    : budget_(train.budget.usd), price_(train.price.usd), start_s_(start_s), file_(run_dir / "spent.json") {
  if (!counts() || !goes_on || !std::filesystem::exists(file_)) return;
  try {
    const nlohmann::json noted = nlohmann::json::parse(read_text(file_));
    earlier_s_ = noted.at("seconds").get<double>();
    turn_s_ = noted.at("longest_step_s").get<double>();
    save_s_ = noted.at("save_s").get<double>();
  } catch (const nlohmann::json::exception&) {
    throw DataError(
        "{}: expected what the run has spent so far, and it is damaged; mend its seconds, or remove "
        "it to count from 0 again",
        file_.string());
  }
}

double Budget::needed_s() const { return kSafety * (2 * turn_s_ + save_s_) + kEnd_s; }

bool Budget::is_over(double now_s) const { return is_set() && spent_usd(now_s + needed_s()) > budget_; }

bool Budget::is_last(double now_s, std::optional<double> save_s) {
  if (last_begin_s_) turn_s_ = std::max(turn_s_, now_s - *last_begin_s_);
  last_begin_s_ = now_s;
  // Before the first save was seen it is taken to be as long as a step.
  save_s_ = std::max(save_s_, save_s.value_or(turn_s_));
  return is_over(now_s);
}

void Budget::note(double now_s, bool at_once) {
  if (!counts() || (!at_once && now_s - noted_s_ < kNoteEvery_s)) return;
  noted_s_ = now_s;
  const nlohmann::json noted = {{"seconds", earlier_s_ + now_s - start_s_},
                                {"usd", spent_usd(now_s)},
                                {"longest_step_s", turn_s_},
                                {"save_s", save_s_}};
  write_atomically(file_, noted.dump(1) + "\n");
}

std::string Budget::text(double now_s) const {
  if (!counts()) return "";
  const double spent = spent_usd(now_s);
  if (!is_set()) return fmt::format("{:.2f}USD spent", spent);
  return fmt::format("{:.2f}USD spent, {:.2f}USD to go", spent, std::max(0.0, budget_ - spent));
}

}  // namespace tandem
