// What a verdict leaves in the run's directory: hangs/step-N.json with every rank's place and, of those on
// this node, what the kernel tells of their threads; a line in events.jsonl; and the ranks' states in
// status.json, which rank 0 may not be able to write any more.
#pragma once

#include <filesystem>
#include <string>

#include "tandem/launch/places/rank_watch.h"

namespace tandem {

// What there is to keep of a verdict, taken at once: soon the ranks are gone.
class VerdictRecord {
 public:
  VerdictRecord(Verdict verdict, const std::string& node);

  // Does nothing where the directory is not there. Throws IoError.
  bool write(const std::filesystem::path& run_dir) const;

 private:
  std::filesystem::path write_hang(const std::filesystem::path& run_dir) const;

  Verdict verdict_;
  std::string hang_;  // the file's text
};

}  // namespace tandem
