// A run's directory as others see it: what its small files say. Whatever lies there, nothing is waited for
// and nothing outside the directory is read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tandem::dash {

using Json = nlohmann::ordered_json;

inline constexpr int64_t kMostPlan = 256 << 20;  // bytes of a plan.json that are read

class RunFolder {
 public:
  explicit RunFolder(std::filesystem::path path) : path_(std::move(path)) {}
  static bool is_run(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }

  // The file's place; nothing where there is no regular file, or where links lead out of the directory.
  std::optional<std::filesystem::path> file(const std::string& name) const;
  std::string text(const std::string& name,
                   int64_t most) const;  // empty where there is none, or a larger one
  std::string tail(const std::string& name, int64_t bytes) const;  // whole lines of its end
  Json object(const std::string& name) const;                      // null where it is none

  std::vector<Json> events(size_t most) const;                      // the newest, in order
  std::vector<std::pair<std::string, std::string>> config() const;  // "train.lr", "0.001"
  std::vector<std::string> config_history() const;                  // what resumes have changed

 private:
  std::filesystem::path path_;
};

}  // namespace tandem::dash
