// The runs of some folders, by name. A name is all that a request can give: what is not in the list does not
// exist for it.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tandem/dash/run_folder.h"

namespace tandem::dash {

class RunList {
 public:
  // Run directories, or folders that hold some, a few levels down. Throws DataError for one that is not
  // there.
  explicit RunList(std::vector<std::filesystem::path> roots);

  void refresh();  // looks for new ones, and for what they have to say; at most about once a second
  const std::map<std::string, RunFolder>& runs() const { return runs_; }
  const RunFolder* find(const std::string& name) const;

  // [{id, state, step, of, loss, eval_loss, rate, unit, updated}], the newest first.
  const Json& rows() const { return rows_; }

 private:
  struct Known {
    std::string stamp;  // sizes and times of the files that the row was made of
    Json row;
  };
  void look_into(const std::filesystem::path& root, const std::filesystem::path& folder, int depth);

  std::vector<std::filesystem::path> roots_;
  std::map<std::string, RunFolder> runs_;
  std::map<std::string, Known> known_;
  Json rows_ = Json::array();
  std::chrono::steady_clock::time_point refreshed_{};
};

// Whether a process of this machine is training there.
bool is_trained_here(const std::filesystem::path& path);

// What a list shows of a run. `is_locked`: a process of this machine is training there.
Json list_row(const std::string& id, const RunFolder& run, bool is_locked);

}  // namespace tandem::dash
