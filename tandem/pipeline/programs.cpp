#include "tandem/pipeline/programs.h"

#include <unistd.h>

#include <cstdlib>
#include <set>
#include <sstream>

#include "tandem/base/error.h"
#include "tandem/base/system.h"
#include "tandem/config/values.h"
#include "tandem/pipeline/process.h"
#include "tandem/pipeline/words.h"

namespace tandem::pipeline {
namespace {

namespace fs = std::filesystem;

bool can_run(const fs::path& file) {
  std::error_code error;
  return fs::is_regular_file(file, error) && ::access(file.c_str(), X_OK) == 0;
}

bool is_in_path(const std::string& name) {
  const char* places = std::getenv("PATH");
  std::istringstream stream(places != nullptr ? places : "/usr/bin:/bin");
  for (std::string place; std::getline(stream, place, ':');) {
    if (can_run(fs::path(place.empty() ? "." : place) / name)) return true;
  }
  return false;
}

}  // namespace

std::string program_of(const std::string& word) { return word == "tandem" ? own_program() : word; }

void check_programs(const Plan& plan) {
  std::set<std::string> known = {"tandem"};
  for (size_t step = 0; step < plan.work.size(); ++step) {
    const StepSpec& spec = *plan.graph.steps[step].spec;
    if (spec.where != Where::Local) continue;  // the node's own
    if (spec.shell || !placeholders(spec.words.front()).empty()) continue;
    const std::string& program = plan.work[step].command.front();
    if (!known.insert(program).second) continue;
    const bool found =
        program.find('/') != std::string::npos ? can_run(plan.folder() / program) : is_in_path(program);
    if (!found)
      throw ConfigError(
          "{}: run: there is no program {}; expected a path or a name in PATH, or `shell: true`", spec.place,
          in_quotes(program));
  }
}

}  // namespace tandem::pipeline
