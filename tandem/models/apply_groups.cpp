#include "tandem/models/apply_groups.h"

#include <fnmatch.h>

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/base/nearest.h"
#include "tandem/config/values.h"

namespace tandem {
namespace {

bool matches(const TrainGroup& group, const std::string& name) {
  return fnmatch(group.match.c_str(), name.c_str(), 0) == 0;
}

// The first group that has a parameter of this name, or the end.
std::vector<TrainGroup>::const_iterator group_of(const std::vector<TrainGroup>& groups,
                                                 const std::string& name) {
  return std::find_if(groups.begin(), groups.end(), [&](const TrainGroup& g) { return matches(g, name); });
}

// Only what differs from a parameter of no group.
void write(const TrainGroup& group, Attrs& attrs) {
  if (group.frozen) attrs.set("frozen", int64_t{1});
  if (group.lr != 1) attrs.set("lr", group.lr);
  if (group.decay != 1) attrs.set("decay", group.decay);
}

void refuse_unused(const TrainGroup& group, const std::vector<std::string_view>& names) {
  const bool taken = std::any_of(names.begin(), names.end(),
                                 [&](std::string_view name) { return matches(group, std::string(name)); });
  if (taken)
    throw ConfigError("train.groups: all that {} matches is in groups before it, of which the first counts",
                      in_quotes(group.match));
  throw ConfigError("train.groups: {} matches no parameter; the nearest name is '{}'", in_quotes(group.match),
                    nearest(group.match, names));
}

}  // namespace

void apply_groups(const std::vector<TrainGroup>& groups, Graph& forward) {
  if (groups.empty()) return;
  std::vector<std::string_view> names;
  std::vector<bool> used(groups.size());
  bool trains = false;
  for (int32_t id = 0; id < forward.num_nodes(); ++id) {
    Node& node = forward.node(id);
    if (node.op != Op::Param) continue;
    names.push_back(node.name);
    const auto group = group_of(groups, node.name);
    trains = trains || group == groups.end() || !group->frozen;
    if (group == groups.end()) continue;
    used[static_cast<size_t>(group - groups.begin())] = true;
    write(*group, node.attrs);
  }
  for (size_t i = 0; i < groups.size(); ++i) {
    if (!used[i]) refuse_unused(groups[i], names);
  }
  if (!trains) throw ConfigError("train.groups: every parameter is frozen; leave some to train");
}

std::vector<std::vector<size_t>> members_of(const std::vector<TrainGroup>& groups, const Graph& forward) {
  std::vector<std::vector<size_t>> members(groups.size());
  size_t number = 0;
  for (const Node& node : forward.nodes()) {
    if (node.op != Op::Param) continue;
    const auto group = group_of(groups, node.name);
    if (group != groups.end()) members[static_cast<size_t>(group - groups.begin())].push_back(number);
    ++number;
  }
  return members;
}

}  // namespace tandem
