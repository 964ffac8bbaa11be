// What running a pipeline would do, known before anything runs. A step's key is the digest of its words, of
// the bytes it reads and of the keys of what it needs; its home in the store is named by it. So what has been
// made is found again, and what differs in anything that matters is made anew, with all that follows from it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tandem/pipeline/digests.h"
#include "tandem/pipeline/graph.h"

namespace tandem::pipeline {

struct Work {
  std::string key;                       // 32 hex digits
  std::filesystem::path home;            // in the store, relative to the folder unless the store is not
  std::string output;                    // where the step writes, likewise; empty: nowhere
  bool captures = false;                 // what it prints is its output: its words have no {out}
  bool resumes = false;                  // a killed one goes on from what it left
  bool appears_whole = false;            // it keeps that beside its output, which must not be there
  std::vector<std::string> command;      // what is run
  std::vector<std::string> environment;  // on top of the runner's
  std::vector<std::string> digests;      // of the step's inputs; empty for those that a step makes
};

struct Plan {
  Graph graph;
  std::vector<Work> work;  // of each step
  Digests digests;         // of what they read

  std::filesystem::path folder() const { return graph.spec.folder; }
  std::filesystem::path store() const { return graph.spec.folder / graph.spec.store; }
  std::filesystem::path home(size_t step) const { return folder() / work[step].home; }
};

Plan make_plan(Graph graph);

}  // namespace tandem::pipeline
