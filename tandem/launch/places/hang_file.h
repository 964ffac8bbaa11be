// What a verdict leaves in the run's directory: hangs/step-N.json with every rank's place and, of those on
// this node, what the kernel tells of their threads; a line in events.jsonl; and the ranks' states in
// status.json, which rank 0 may not be able to write any more.
#pragma once

#include <filesystem>
#include <string>

#include "tandem/launch/places/rank_watch.h"

namespace tandem {

// Does nothing where the directory is not there. Returns what could not be written; empty where all was.
std::string write_verdict(const std::filesystem::path& run_dir, const Verdict& verdict,
                          const std::string& node);

}  // namespace tandem
