#include "tandem/pipeline/graph.h"

#include <glob.h>

#include <algorithm>
#include <functional>
#include <queue>
#include <set>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/base/nearest.h"
#include "tandem/config/values.h"
#include "tandem/pipeline/words.h"

namespace tandem::pipeline {
namespace {

namespace fs = std::filesystem;

// "did you mean train?", or the names there are.
std::string suggestion(std::string_view word, const std::vector<std::string_view>& known) {
  if (const std::optional<std::string_view> meant = likely(word, known))
    return fmt::format("did you mean {}?", *meant);
  std::string all;
  for (std::string_view name : known) all += (all.empty() ? "" : ", ") + std::string(name);
  return all.empty() ? "there is none" : "expected one of " + shortened(all);
}

// A value as part of a path: it must not lead into other directories.
std::string as_path_part(std::string value) {
  std::replace(value.begin(), value.end(), '/', '-');
  return value;
}

std::string normal_path(const std::string& path) {
  const fs::path normal = fs::path(path).lexically_normal();
  return (normal.has_filename() ? normal : normal.parent_path()).string();
}

// Whether `path` is `folder` or lies below it; `inside` is then the rest.
bool is_within(const std::string& path, const std::string& folder, std::string& inside) {
  if (!path.starts_with(folder)) return false;
  if (path.size() != folder.size() && path[folder.size()] != '/') return false;
  inside = path.size() == folder.size() ? "" : path.substr(folder.size() + 1);
  return true;
}

class Maker {
 public:
  explicit Maker(Graph& graph) : graph_(graph), spec_(graph.spec) {}

  void make() {
    for (const StepSpec& step : spec_.steps) expand(step);
    for (size_t at = 0; at < steps().size(); ++at)
      by_name_[steps()[at].spec->name].push_back(static_cast<int>(at));
    check_outputs();
    for (const Step& step : steps()) out_places_.push_back(place_of(step.out));
    for (size_t at = 0; at < steps().size(); ++at) connect(static_cast<int>(at));
    sort();
  }

 private:
  std::vector<Step>& steps() { return graph_.steps; }

  void expand(const StepSpec& spec) {
    std::vector<Step> made(1);
    made.front().name = spec.name;
    made.front().values = spec_.params;
    std::vector<std::string> labels(1);
    for (const auto& [param, values] : spec.foreach) {
      std::vector<Step> next;
      std::vector<std::string> next_labels;
      for (size_t at = 0; at < made.size(); ++at) {
        for (const std::string& value : values) {
          next.push_back(made[at]);
          next.back().values[param] = value;
          next_labels.push_back(
              fmt::format("{}{}{}={}", labels[at], labels[at].empty() ? "" : ",", param, shortened(value)));
        }
      }
      made = std::move(next);
      labels = std::move(next_labels);
    }
    for (size_t at = 0; at < made.size(); ++at) {
      made[at].spec = &spec;
      if (!labels[at].empty()) made[at].name = fmt::format("{}[{}]", spec.name, labels[at]);
      made[at].out = out_of(made[at]);
      steps().push_back(std::move(made[at]));
    }
  }

  std::string value_of(const Step& step, std::string_view name) {
    const auto found = step.values.find(name);
    if (found != step.values.end()) return found->second;
    std::vector<std::string_view> known;
    for (const auto& [each, value] : step.values) known.push_back(each);
    throw ConfigError("{}: {{{}}}: no such parameter; {}; {{{{{}}}}} is the text itself", step.spec->place,
                      name, suggestion(name, known), name);
  }

  std::string out_of(const Step& step) {
    if (step.spec->out.empty()) return "";
    const Lookup lookup = [&](std::string_view name) {
      return std::vector<std::string>{as_path_part(value_of(step, name))};
    };
    const std::string out = normal_path(fill_text(step.spec->out, lookup, step.spec->place));
    for (const fs::path& part : fs::path(out)) {
      if (part == ".." || part == "." || out == "/")
        throw ConfigError("{}: out: expected a path within the pipeline's folder, found {}", step.spec->place,
                          in_quotes(out));
    }
    if (fs::path(out).filename().string().size() > 200)
      throw ConfigError("{}: out: expected a name of at most 200 bytes, found {}", step.spec->place,
                        in_quotes(out));
    return out;
  }

  // No two the same, none inside another, none in the store or around it.
  void check_outputs() {
    std::vector<std::pair<fs::path, const Step*>> outs;
    for (const Step& step : steps()) {
      if (!step.out.empty()) outs.emplace_back(step.out, &step);
    }
    std::sort(outs.begin(), outs.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::string inside;
    for (size_t at = 0; at + 1 < outs.size(); ++at) {
      const Step &a = *outs[at].second, &b = *outs[at + 1].second;
      if (!is_within(b.out, a.out, inside)) continue;
      if (a.out == b.out && a.spec == b.spec) {
        throw ConfigError(
            "{}: {} and {} both write {}; put the parameters of `foreach` into `out`: out: {}-{{{}}}",
            a.spec->place, a.name, b.name, in_quotes(a.out), a.spec->out, a.spec->foreach.back().first);
      }
      if (a.out == b.out)
        throw ConfigError("{}: {} writes {}, and so does {}; give each an `out` of its own", b.spec->place,
                          b.name, in_quotes(b.out), a.name);
      throw ConfigError(
          "{}: {} writes {}, which is inside of what {} writes ({}); give each an `out` of its own",
          b.spec->place, b.name, in_quotes(b.out), a.name, in_quotes(a.out));
    }
    const std::string store = normal_path(spec_.store);
    for (const Step& step : steps()) {
      if (!step.out.empty() && (is_within(step.out, store, inside) || is_within(store, step.out, inside)))
        throw ConfigError("{}: {} writes {}, where the store is ({}); name another place", step.spec->place,
                          step.name, in_quotes(step.out), in_quotes(store));
    }
  }

  void need(Step& step, std::string_view name, std::string_view what) {
    if (!by_name_.contains(name)) {
      std::vector<std::string_view> known;
      for (const auto& [each, steps] : by_name_) known.push_back(each);
      throw ConfigError("{}: {}: no step is called {}; {}", step.spec->place, what, in_quotes(name),
                        suggestion(name, known));
    }
    const std::vector<int> found = matching_in(step, name);
    if (found.empty())
      throw ConfigError("{}: {}: no {} has the parameters of {}", step.spec->place, what, name, step.name);
    step.needs.insert(step.needs.end(), found.begin(), found.end());
  }

  std::vector<int> matching_in(const Step& step, std::string_view name) const {
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) return {};
    std::vector<int> matching;
    for (int at : found->second) {
      const Step& other = graph_.steps[static_cast<size_t>(at)];
      const auto same = [&](const auto& axis) {
        const auto mine = step.values.find(axis.first);
        return mine == step.values.end() || mine->second == other.values.at(axis.first);
      };
      if (std::all_of(other.spec->foreach.begin(), other.spec->foreach.end(), same)) matching.push_back(at);
    }
    return matching;
  }

  void connect(int at) {
    Step& step = steps()[static_cast<size_t>(at)];
    for (const std::string& name : step.spec->needs) need(step, name, "needs");
    for (const std::string& name : step.spec->when.steps()) {
      need(step, name, "when");
      if (matching_in(step, name).size() > 1)
        throw ConfigError(
            "{}: when: {} is {} steps; expected one, of which the metric is; give this step the same "
            "`foreach`",
            step.spec->place, name, matching_in(step, name).size());
    }
    for (const std::string& word : step.spec->words) {
      for (const std::string& name : placeholders(word, step.spec->shell)) check_placeholder(step, name);
    }
    for (const std::string& in : step.spec->in) add_input(step, in);
    std::sort(step.needs.begin(), step.needs.end());
    step.needs.erase(std::unique(step.needs.begin(), step.needs.end()), step.needs.end());
  }

  void check_placeholder(Step& step, const std::string& name) {
    if (name == "out") {
      if (step.out.empty())
        throw ConfigError("{}: {{out}}: the step has no `out`; give it one", step.spec->place);
    } else if (name == "in") {
      if (step.spec->in.empty())
        throw ConfigError("{}: {{in}}: the step has no `in`; give it one", step.spec->place);
    } else if (name.ends_with(".out")) {
      const std::string other = name.substr(0, name.size() - 4);
      need(step, other, "{" + name + "}");
      if (steps()[static_cast<size_t>(matching_in(step, other).front())].out.empty())
        throw ConfigError("{}: {{{}}}: {} has no `out`", step.spec->place, name, other);
    } else {
      value_of(step, name);
    }
  }

  void add_input(Step& step, const std::string& written) {
    const Lookup lookup = [&](std::string_view name) {
      return std::vector<std::string>{value_of(step, name)};
    };
    const std::string filled = fill_text(written, lookup, step.spec->place + ": in");
    if (filled.find("://") != std::string::npos)
      throw ConfigError("{}: in: {}: only local files are there yet", step.spec->place, in_quotes(filled));
    if (filled.empty()) throw ConfigError("{}: in: expected a path, found nothing", step.spec->place);
    const std::string path = normal_path(filled);
    std::string inside;
    const std::string place = place_of(path);
    if (is_within(place_of(spec_.store), place, inside))
      throw ConfigError("{}: in: {} holds the store ({}); name what is read", step.spec->place,
                        in_quotes(path), in_quotes(spec_.store));
    for (size_t at = 0; at < steps().size(); ++at) {
      const Step& other = steps()[at];
      if (other.out.empty()) continue;
      if (is_within(path, other.out, inside)) {
        if (&other == &step)
          throw ConfigError("{}: {} reads what it writes ({})", step.spec->place, step.name, in_quotes(path));
        step.inputs.push_back({path, static_cast<int>(at), inside});
        step.needs.push_back(static_cast<int>(at));
        return;
      }
      if (is_within(out_places_[at], place, inside)) {
        throw ConfigError("{}: in: {} holds what {} writes ({}); name what is read, or that step in `needs`",
                          step.spec->place, in_quotes(path), other.name, in_quotes(other.out));
      }
    }
    add_files(step, path);
  }

  std::string place_of(const std::string& path) const { return normal_path((folder_ / path).string()); }

  void add_files(Step& step, const std::string& path) {
    const fs::path place = spec_.folder / path;
    if (is_there(place)) {
      step.inputs.push_back({path});
      return;
    }
    if (path.find_first_of("*?[") != std::string::npos) {
      glob_t found{};
      const int error = ::glob(place.c_str(), 0, nullptr, &found);
      for (size_t at = 0; error == 0 && at < found.gl_pathc; ++at)
        step.inputs.push_back({fs::path(path).is_absolute()
                                   ? std::string(found.gl_pathv[at])
                                   : fs::path(found.gl_pathv[at]).lexically_relative(spec_.folder).string()});
      ::globfree(&found);
      if (error == 0) return;
    }
    throw ConfigError(
        "{}: in: {}: no such file, and no step writes it; expected a path relative to the pipeline's folder "
        "({})",
        step.spec->place, in_quotes(path), fs::absolute(spec_.folder).lexically_normal().string());
  }

  // Every step after what it needs, otherwise as in the file.
  void sort() {
    const size_t count = steps().size();
    std::vector<size_t> missing(count);
    std::vector<std::vector<int>> followers(count);
    std::priority_queue<int, std::vector<int>, std::greater<>> ready;
    for (size_t at = 0; at < count; ++at) {
      missing[at] = steps()[at].needs.size();
      for (int other : steps()[at].needs)
        followers[static_cast<size_t>(other)].push_back(static_cast<int>(at));
      if (missing[at] == 0) ready.push(static_cast<int>(at));
    }
    std::vector<int> order, place(count, -1);
    while (!ready.empty()) {
      const int at = ready.top();
      ready.pop();
      place[static_cast<size_t>(at)] = static_cast<int>(order.size());
      order.push_back(at);
      for (int follower : followers[static_cast<size_t>(at)]) {
        if (--missing[static_cast<size_t>(follower)] == 0) ready.push(follower);
      }
    }
    if (order.size() < count) refuse_cycle(missing);
    std::vector<Step> sorted;
    for (int at : order) {
      sorted.push_back(std::move(steps()[static_cast<size_t>(at)]));
      for (int& other : sorted.back().needs) other = place[static_cast<size_t>(other)];
      for (Input& input : sorted.back().inputs) {
        if (input.step >= 0) input.step = place[static_cast<size_t>(input.step)];
      }
      std::sort(sorted.back().needs.begin(), sorted.back().needs.end());
    }
    steps() = std::move(sorted);
  }

  // Goes from one that waits to one that it waits for, until it comes back.
  [[noreturn]] void refuse_cycle(const std::vector<size_t>& missing) {
    size_t at = 0;
    while (missing[at] == 0) ++at;
    std::vector<size_t> way;
    while (std::find(way.begin(), way.end(), at) == way.end()) {
      way.push_back(at);
      const std::vector<int>& needs = steps()[at].needs;
      at = static_cast<size_t>(*std::find_if(
          needs.begin(), needs.end(), [&](int other) { return missing[static_cast<size_t>(other)] > 0; }));
    }
    way.erase(way.begin(), std::find(way.begin(), way.end(), at));
    std::reverse(way.begin(), way.end());
    std::string shown = steps()[way.back()].name;
    for (size_t each : way) shown += " -> " + steps()[each].name;
    throw ConfigError("{}: steps need each other in a circle: {}; take one `needs` out", spec_.file.string(),
                      shown);
  }

  Graph& graph_;
  const Spec& spec_;
  const fs::path folder_ = fs::absolute(spec_.folder);
  std::vector<std::string> out_places_;  // of steps, before they are sorted
  std::map<std::string, std::vector<int>, std::less<>> by_name_;
};

}  // namespace

Graph make_graph(Spec spec) {
  Graph graph;
  graph.spec = std::move(spec);
  Maker(graph).make();
  return graph;
}

std::vector<int> Graph::matching(const Step& step, std::string_view name) const {
  std::vector<int> found;
  for (int at : step.needs) {
    if (steps[static_cast<size_t>(at)].spec->name == name) found.push_back(at);
  }
  return found;
}

}  // namespace tandem::pipeline
