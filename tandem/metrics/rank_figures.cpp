#include "tandem/metrics/rank_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

namespace tandem {
namespace {

constexpr std::streamoff kTail = 1024;  // some rows of a rank

std::string tail_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return "";
  const std::streamoff size = file.tellg();
  std::string text(static_cast<size_t>(std::min(size, kTail)), '\0');
  file.seekg(size - static_cast<std::streamoff>(text.size()));
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  const size_t end = text.rfind('\n');
  return end == std::string::npos ? "" : text.substr(0, end);  // without a row that is half written
}

}  // namespace

RankFigures figures_of(int rank, const StepRecord& record) {
  RankFigures figures;
  figures.rank = rank;
  figures.step = record.step;
  figures.step_ms = record.step_ms;
  figures.data_wait_ms = record.data_wait_ms;
  figures.comm_wait_ms = record.comm_wait_ms;
  figures.rss_bytes = record.rss_bytes;
  figures.device_bytes = record.device_bytes;
  return figures;
}

std::optional<RankFigures> rank_figures(int rank, std::string_view lines) {
  while (lines.ends_with('\n')) lines.remove_suffix(1);
  const auto row = nlohmann::json::parse(lines.substr(lines.rfind('\n') + 1), nullptr, false);
  if (!row.is_object()) return std::nullopt;
  RankFigures figures;
  figures.rank = rank;
  try {
    figures.step = row.at("step");
    figures.step_ms = row.at("step_ms");
    figures.data_wait_ms = row.at("data_wait_ms");
    figures.comm_wait_ms = row.value("comm_wait_ms", 0.0);
    figures.rss_bytes = row.at("rss_bytes");
    figures.device_bytes = row.at("device_bytes");
    figures.node = row.value("node", "");
    figures.pid = row.value("pid", int64_t{0});
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
  return figures;
}

std::vector<RankFigures> read_rank_figures(const std::filesystem::path& run_dir, const RankFigures& own,
                                           int num_ranks) {
  std::vector<RankFigures> ranks = {own};
  for (int rank = 1; rank < num_ranks; ++rank) {
    auto found = rank_figures(rank, tail_of(run_dir / "logs" / fmt::format("rank-{}.jsonl", rank)));
    if (found) ranks.push_back(std::move(*found));
  }
  return ranks;
}

StragglerWatch::News busiest(std::span<const RankFigures> ranks) {
  StragglerWatch::News most;
  std::vector<double> others;
  for (const RankFigures& figures : ranks) {
    others.push_back(figures.busy_ms());
    if (others.size() == 1 || figures.busy_ms() > most.busy_ms) {
      most.rank = figures.rank;
      most.busy_ms = figures.busy_ms();
    }
  }
  if (others.size() < 2) return most;
  others.erase(std::find(others.begin(), others.end(), most.busy_ms));
  const auto middle = others.begin() + std::ssize(others) / 2;
  std::nth_element(others.begin(), middle, others.end());
  most.others_ms = *middle;
  return most;
}

std::optional<StragglerWatch::News> StragglerWatch::add(std::span<const RankFigures> ranks) {
  if (ranks.size() < 2 || ranks.front().step == step_) return std::nullopt;
  step_ = ranks.front().step;
  const News news = busiest(ranks);
  const bool slow = news.busy_ms > kMuchSlower * news.others_ms && news.busy_ms > news.others_ms + kLeastMs;
  looks_ = !slow ? 0 : news.rank == rank_ ? looks_ + 1 : 1;
  rank_ = slow ? news.rank : -1;
  return looks_ == kLooks ? std::optional(news) : std::nullopt;
}

std::optional<int> StragglerWatch::slow() const {
  return looks_ >= kLooks ? std::optional(rank_) : std::nullopt;
}

}  // namespace tandem
