#include "tandem/cluster/job_book.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/base/utf8.h"

namespace tandem::cluster {
namespace {

constexpr size_t kMostJobs = 1000;
constexpr size_t kMostNamed = 5;

// Newest first. What cannot be read is somebody else's, or of a later version: it is left alone.
std::vector<std::pair<SubmittedJob, std::filesystem::path>> read_all(const std::filesystem::path& folder) {
  std::vector<std::pair<SubmittedJob, std::filesystem::path>> jobs;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    if (entry.path().extension() != ".json") continue;
    const auto json = nlohmann::json::parse(read_text(entry.path()), nullptr, false);
    if (!json.is_object()) continue;
    const auto text = [&](const char* key) {
      const auto found = json.find(key);
      return found != json.end() && found->is_string() ? found->get<std::string>() : "";
    };
    SubmittedJob job{text("kind"),   text("id"),   text("name"), text("config"),  text("directory"),
                     text("output"), text("time"), text("run"),  text("context"), text("object")};
    if (!job.id.empty()) jobs.emplace_back(std::move(job), entry.path());
  }
  std::sort(jobs.begin(), jobs.end(), [](const auto& a, const auto& b) {
    return std::tie(a.first.time, a.first.id) > std::tie(b.first.time, b.first.id);
  });
  return jobs;
}

}  // namespace

JobBook JobBook::of_user() {
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && *state != '\0') return JobBook(std::filesystem::path(state) / "tandem/jobs");
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == '\0')
    throw ConfigError(
        "environment variable HOME: missing; submitted jobs are remembered in ~/.local/state/tandem");
  return JobBook(std::filesystem::path(home) / ".local/state/tandem/jobs");
}

void JobBook::add(const SubmittedJob& job) const {
  const nlohmann::ordered_json json = {
      {"kind", job.kind},           {"id", job.id},         {"name", job.name}, {"config", job.config},
      {"directory", job.directory}, {"output", job.output}, {"time", job.time}, {"run", job.run},
      {"context", job.context},     {"object", job.object}};
  make_directories(folder_);
  std::string file = fmt::format("{}-{}.json", job.kind, job.id);
  std::replace(file.begin(), file.end(), '/', '.');
  write_atomically(folder_ / file, json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  const auto all = read_all(folder_);
  for (size_t i = kMostJobs; i < all.size(); ++i) {
    std::error_code ignored;  // another submission may have forgotten it already
    std::filesystem::remove(all[i].second, ignored);
  }
}

std::optional<SubmittedJob> JobBook::look_for(const std::string& number_or_name) const {
  const std::string number = number_or_name.substr(0, number_or_name.find('_'));
  for (const auto& [job, path] : read_all(folder_)) {
    if (job.id == number || job.name == number_or_name) return job;
  }
  return std::nullopt;
}

SubmittedJob JobBook::find(const std::string& number_or_name) const {
  if (auto found = look_for(number_or_name)) return *std::move(found);
  const auto all = read_all(folder_);
  std::vector<std::string> known;
  for (size_t i = 0; i < all.size() && i < kMostNamed; ++i)
    known.push_back(fmt::format("{} ({})", all[i].first.id, printable(all[i].first.name)));
  throw ConfigError("JOB {}: was not submitted from here; {}", printable(number_or_name),
                    known.empty() ? "tandem submit has submitted none"
                                  : fmt::format("the last ones are {}", fmt::join(known, ", ")));
}

}  // namespace tandem::cluster
