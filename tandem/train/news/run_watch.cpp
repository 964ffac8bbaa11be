#include "tandem/train/news/run_watch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/system.h"
#include "tandem/comm/places/place_page.h"

namespace tandem {
namespace {

constexpr int kRanksASecond = 256;  // whose files are looked at
constexpr std::chrono::milliseconds kBetweenWrites{1000};

}  // namespace

RunWatch::RunWatch(std::filesystem::path run_dir, int64_t steps, int num_ranks)
    : run_dir_(std::move(run_dir)), num_ranks_(num_ranks) {
  status_.of = steps;
  if (place_page() != nullptr)
    thread_ = std::jthread([this](const std::stop_token& stop) { write_between_steps(stop); });
}

void RunWatch::begin(std::string device) {
  const std::scoped_lock lock(mutex_);
  status_.device = std::move(device);
}

// While the run is under way: what it ended with is the last word.
void RunWatch::write_between_steps(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    stopping_.wait_for(lock, stop, kBetweenWrites / 2, [] { return false; });
    const bool under_way = status_.state == "starting" || status_.state == "running";
    if (!stop.stop_requested() && under_way && Clock::now() - written_ >= kBetweenWrites) write();
  }
}

void RunWatch::set_state(std::string state, std::string message) {
  const std::scoped_lock lock(mutex_);
  status_.state = std::move(state);
  status_.message = std::move(message);
  if (status_.state != "running") status_.eta_s.reset();
  write();
}

bool RunWatch::add(const StepRecord& record) {
  const std::scoped_lock lock(mutex_);
  const Clock::time_point now = Clock::now();
  if (!first_time_) {
    first_time_ = now;
    first_step_ = record.step;
  }
  status_.record = record;
  if (record.eval_loss) status_.eval_loss = record.eval_loss;
  const auto between = std::chrono::seconds(1 + num_ranks_ / kRanksASecond);
  if (now - looked_ < between && record.step != status_.of) return false;
  looked_ = now;
  const double elapsed_s = std::chrono::duration<double>(now - *first_time_).count();
  const double step_s = record.step > first_step_ ? elapsed_s / static_cast<double>(record.step - first_step_)
                                                  : record.step_ms / 1e3;
  status_.eta_s = step_s * static_cast<double>(std::max<int64_t>(status_.of - record.step, 0));
  RankFigures own = figures_of(0, record);
  own.node = hostname();
  own.pid = ::getpid();
  status_.ranks = read_rank_figures(run_dir_, own, num_ranks_);
  if (const auto news = stragglers_.add(status_.ranks)) straggler_ = news;
  status_.slow = stragglers_.slow();
  write();
  return true;
}

std::string RunWatch::take_trouble() {
  const std::scoped_lock lock(mutex_);
  return std::exchange(trouble_, "");
}

std::string RunWatch::slowest() const {
  const std::scoped_lock lock(mutex_);
  if (status_.ranks.size() < 2) return "";
  const StragglerWatch::News most = busiest(status_.ranks);
  const auto found = std::find_if(status_.ranks.begin(), status_.ranks.end(),
                                  [&](const RankFigures& figures) { return figures.rank == most.rank; });
  return fmt::format("slowest: rank {}{}{}, busy {:.0f} ms of {:.0f}, the others {:.0f}", most.rank,
                     found->node.empty() ? "" : " on ", found->node, most.busy_ms, found->step_ms,
                     most.others_ms);
}

void RunWatch::write() {
  status_.last_checkpoint = last_checkpoint_;
  if (const PlacePage* page = place_page()) status_.places = page->read_board();
  written_ = Clock::now();
  try {
    write_status(run_dir_, status_);
    failing_ = false;
  } catch (const IoError& error) {
    if (!std::exchange(failing_, true)) trouble_ = fmt::format("{}; training goes on", error.what());
  }
}

}  // namespace tandem
