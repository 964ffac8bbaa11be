#include "tandem/launch/places/verdict_desk.h"

#include <fmt/format.h>

#include <algorithm>

#include "tandem/base/system.h"

namespace tandem {
namespace {

std::vector<RankWatch::Rank> watched(const AttemptSetup& setup) {
  std::vector<RankWatch::Rank> ranks;
  for (const RankSetup& rank : setup.ranks) ranks.push_back({rank.rank, rank.page});
  return ranks;
}

RankWatch::Limits limits_of(double stuck_after_s) {
  RankWatch::Limits limits;
  limits.stopped_s = limits.stuck_s = stuck_after_s;
  limits.all_wait_s = 12 * stuck_after_s;
  limits.own_code_s = std::max(limits.own_code_s, stuck_after_s);
  return limits;
}

}  // namespace

std::unique_ptr<VerdictDesk> VerdictDesk::make(const AttemptSetup& setup, Terminal& terminal,
                                               OtherNodes* others) {
  const bool has_pages = std::all_of(setup.ranks.begin(), setup.ranks.end(),
                                     [](const RankSetup& rank) { return rank.page != nullptr; });
  if (setup.stuck_after_s <= 0 || !has_pages) return nullptr;
  return std::unique_ptr<VerdictDesk>(new VerdictDesk(setup, terminal, others));
}

VerdictDesk::VerdictDesk(const AttemptSetup& setup, Terminal& terminal, OtherNodes* others)
    : terminal_(terminal),
      others_(others),
      node_(hostname()),
      watch_(watched(setup), node_, limits_of(setup.stuck_after_s)) {}

std::optional<Verdict> VerdictDesk::look(std::span<const RankWatch::Condition> conditions) {
  const double now = steady_s();
  if (now - looked_s_ < std::chrono::duration<double>(kLook).count() / 2) return std::nullopt;
  looked_s_ = now;
  std::vector<Whereabouts> elsewhere;
  if (others_ != nullptr) {
    for (const std::string& text : others_->places()) {
      for (Whereabouts& place : RankWatch::parse_message(text)) elsewhere.push_back(std::move(place));
    }
  }
  std::optional<Verdict> ends;
  for (const Verdict& verdict : watch_.look(now, conditions, std::move(elsewhere))) {
    tell(verdict);
    if (!verdict.is_slow() && !ends) ends = verdict;
  }
  if (others_ != nullptr) others_->share_places(watch_.message());
  return ends;
}

void VerdictDesk::tell_dead(int rank) {
  if (const std::optional<Verdict> verdict = watch_.dead(rank)) tell(*verdict);
}

void VerdictDesk::tell(const Verdict& verdict) {
  terminal_.message(verdict.line);
  unwritten_.emplace_back(verdict, node_);
  write();
}

// Ranks that were hindered before they had a directory may make it on their way to their end.
void VerdictDesk::write() {
  try {
    while (!unwritten_.empty() && unwritten_.front().write(watch_.run_directory())) unwritten_.pop_front();
  } catch (const std::exception& trouble) {
    terminal_.message(fmt::format("warning: {}", trouble.what()));
    unwritten_.clear();
  }
}

}  // namespace tandem
