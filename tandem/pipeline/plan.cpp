#include "tandem/pipeline/plan.h"

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/config/values.h"
#include "tandem/pipeline/words.h"

namespace tandem::pipeline {
namespace {

namespace fs = std::filesystem;

bool is_prepare(const std::vector<std::string>& words) {
  return words.size() > 1 && fs::path(words[0]).filename() == "tandem" && words[1] == "prepare";
}

// `tandem train` and `tandem prepare` go on from what they find, alone or under a launcher.
bool goes_on_by_itself(const std::vector<std::string>& words) {
  if (words.size() < 2 || fs::path(words[0]).filename() != "tandem") return false;
  if (words[1] == "train" || words[1] == "prepare") return true;
  return words[1] == "launch" && std::find(words.begin(), words.end(), "train") != words.end();
}

// Texts with their lengths: no two lists run together to the same bytes.
void add(std::string& all, std::string_view text) { all += fmt::format("{}:{}", text.size(), text); }
void add(std::string& all, const std::vector<std::string>& texts) {
  all += fmt::format("{}[", texts.size());
  for (const std::string& text : texts) add(all, text);
}

class Planner {
 public:
  explicit Planner(Plan& plan) : plan_(plan), digests_(plan.digests) {
    digests_ = Digests(plan.store() / kDigests);
  }

  void make() {
    for (size_t at = 0; at < plan_.graph.steps.size(); ++at)
      plan_.work.push_back(work_of(plan_.graph.steps[at]));
    if (fs::is_directory(plan_.store())) digests_.save();
  }

 private:
  Work work_of(const Step& step) {
    Work work;
    for (const Input& input : step.inputs)
      work.digests.push_back(input.step < 0 ? digests_.of(plan_.folder() / input.path) : "");
    work.key = key_of(step, work);
    work.home =
        fs::path(plan_.graph.spec.store) / fmt::format("{}-{}", step.spec->name, work.key.substr(0, 16));
    if (!step.out.empty())
      work.output = (work.home / fs::path(step.out).filename()).lexically_normal().string();
    const Lookup lookup = [&](std::string_view name) { return values_of(step, work, name); };
    if (step.spec->shell) {
      Script script = fill_script(step.spec->words.front(), lookup);
      work.command = {"/bin/sh", "-c", std::move(script.text)};
      work.environment = std::move(script.variables);
    } else {
      work.command = fill_words(step.spec->words, lookup, step.spec->place + ": run");
      if (work.command.empty() || work.command.front().empty())
        throw ConfigError("{}: run: expected a program as the first word, found nothing", step.spec->place);
    }
    bool names_out = false;
    for (const std::string& word : step.spec->words) {
      const std::vector<std::string> names = placeholders(word, step.spec->shell);
      names_out = names_out || std::find(names.begin(), names.end(), "out") != names.end();
    }
    work.captures = !step.out.empty() && !names_out;
    work.resumes = step.spec->resume.value_or(!step.spec->shell && goes_on_by_itself(work.command));
    work.appears_whole = !step.spec->shell && is_prepare(work.command);
    return work;
  }

  std::vector<std::string> values_of(const Step& step, const Work& work, std::string_view name) {
    if (name == "out") return {work.output};
    if (name == "in") {
      std::vector<std::string> paths;
      for (const Input& input : step.inputs) paths.push_back(path_of(input));
      return paths;
    }
    if (name.ends_with(".out")) {
      std::vector<std::string> outputs;
      for (int at : plan_.graph.matching(step, name.substr(0, name.size() - 4)))
        outputs.push_back(plan_.work[static_cast<size_t>(at)].output);
      return outputs;
    }
    return {step.values.at(std::string(name))};
  }

  std::string path_of(const Input& input) const {
    if (input.step < 0) return input.path;
    const fs::path output = plan_.work[static_cast<size_t>(input.step)].output;
    return (input.inside.empty() ? output : output / input.inside).string();
  }

  // Places in the store stand for themselves: they follow from the keys of what is needed.
  std::string key_of(const Step& step, const Work& work) {
    const Lookup lookup = [&](std::string_view name) -> std::vector<std::string> {
      if (name == "in") {
        std::vector<std::string> paths;
        for (const Input& input : step.inputs) paths.push_back(input.step < 0 ? input.path : path_of(input));
        return paths;
      }
      if (name == "out" || name.ends_with(".out")) return {fmt::format("{{{}}}", name)};
      return {step.values.at(std::string(name))};
    };
    std::string all = "pipeline step 1\n";
    add(all, step.spec->name);
    add(all, fs::path(step.out).filename().string());
    add(all, step.spec->shell ? "shell" : "words");
    if (step.spec->shell) {
      const Script script = fill_script(step.spec->words.front(), lookup);
      add(all, script.text);
      add(all, script.variables);
    } else {
      add(all, fill_words(step.spec->words, lookup, step.spec->place + ": run"));
    }
    for (size_t at = 0; at < step.inputs.size(); ++at) {
      add(all, step.inputs[at].step < 0 ? step.inputs[at].path : path_of(step.inputs[at]));
      add(all, work.digests[at]);
    }
    std::vector<std::string> keys;
    for (int other : step.needs) keys.push_back(plan_.work[static_cast<size_t>(other)].key);
    std::sort(keys.begin(), keys.end());
    add(all, keys);
    return digest_of(all);
  }

  Plan& plan_;
  Digests& digests_;
};

}  // namespace

Plan make_plan(Graph graph) {
  Plan plan;
  plan.graph = std::move(graph);
  Planner(plan).make();
  return plan;
}

}  // namespace tandem::pipeline
