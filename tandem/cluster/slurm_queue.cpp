#include "tandem/cluster/slurm_queue.h"

#include <filesystem>
#include <sstream>

#include "tandem/base/error.h"
#include "tandem/cluster/subprocess.h"

namespace tandem::cluster {
namespace {

// The first line, which is what Slurm's programs say.
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

[[noreturn]] void refuse(const std::string& program, const Ended& ended) {
  throw IoError("{}: {}", program,
                ended.err.empty() ? fmt::format("ended with {}", ended.code) : first_line(ended.err));
}

bool is_unknown(const Ended& ended) { return ended.err.find("Invalid job id") != std::string::npos; }

}  // namespace

std::string submit_to_slurm(const std::string& script) {
  const Ended ended = run_program({"sbatch", "--parsable"}, script);
  if (ended.code != 0) refuse("sbatch", ended);
  const std::string line = first_line(ended.out);  // "123", or "123;cluster"
  const std::string id = line.substr(0, line.find(';'));
  if (id.empty() || id.find_first_not_of("0123456789") != std::string::npos)
    throw IoError("sbatch --parsable: expected a job's number, found '{}'", line);
  return id;
}

SlurmState slurm_state(const std::string& id) {
  const Ended ended = run_program({"squeue", "--noheader", "--job", id, "--format", "%T|%r"});
  if (ended.code != 0 && is_unknown(ended)) return {};
  if (ended.code != 0) refuse("squeue", ended);
  const std::string line = first_line(ended.out);
  if (line.empty()) return {};
  const size_t bar = line.find('|');
  return {line.substr(0, bar), bar == std::string::npos ? "" : line.substr(bar + 1)};
}

std::vector<SlurmTask> slurm_tasks(const std::string& id) {
  const Ended ended =
      run_program({"squeue", "--noheader", "--array", "--job", id, "--format", "%i|%T|%N|%M|%l|%S|%r"});
  if (ended.code != 0 && is_unknown(ended)) return {};
  if (ended.code != 0) refuse("squeue", ended);
  std::vector<SlurmTask> tasks;
  std::istringstream lines(ended.out);
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string> fields;
    std::istringstream parts(line);
    for (std::string field; std::getline(parts, field, '|');) fields.push_back(field);
    fields.resize(7);
    tasks.push_back({fields[0], fields[1], fields[6], fields[2], fields[3], fields[4], fields[5]});
  }
  return tasks;
}

std::optional<std::string> find_in_slurm(const std::string& name) {
  const Ended ended = run_program({"squeue", "--noheader", "--me", "--name", name, "--format", "%A"});
  if (ended.code != 0) refuse("squeue", ended);
  const std::string id = first_line(ended.out);
  return id.empty() ? std::nullopt : std::optional(id);
}

void cancel_in_slurm(const std::string& id) {
  const Ended ended = run_program({"scancel", id});
  if (ended.code != 0 || !ended.err.empty()) refuse("scancel", ended);
}

std::string slurm_output_path(const std::string& pattern, const std::string& id, const std::string& name,
                              const std::string& directory) {
  const size_t underscore = id.find('_');
  const std::string job = id.substr(0, underscore);
  std::string path;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%' || i + 1 == pattern.size()) {
      path += pattern[i];
      continue;
    }
    const char what = pattern[++i];
    if (what == 'a' && underscore == std::string::npos)
      throw ConfigError("job {}: is an array; name one of its tasks, such as {}_1", job, job);
    if (what == 'j' && underscore != std::string::npos)
      throw ConfigError("--output {}: %j has another number for each task of an array; use %A_%a", pattern);
    switch (what) {
      case '%': path += '%'; break;
      case 'j':
      case 'A': path += job; break;
      case 'a': path += id.substr(underscore + 1); break;
      case 'x': path += name; break;
      default:
        throw ConfigError("--output {}: %{} is known to Slurm alone; %j, %A, %a and %x are known here",
                          pattern, what);
    }
  }
  return (std::filesystem::path(directory) / path).string();
}

}  // namespace tandem::cluster
