// The steps that a pipeline comes down to: one for each combination of `foreach`, with what each needs, in an
// order in which every step comes after what it needs. Names that nobody has, cycles, inputs that are not
// there and outputs that get in each other's way are refused here, before anything runs.
#pragma once

#include <string>
#include <vector>

#include "tandem/pipeline/spec.h"

namespace tandem::pipeline {

// What a step reads: a path of the folder, or of another step's output.
struct Input {
  std::string path;
  int step = -1;            // that makes it
  std::string inside = {};  // below that one's output; empty: all of it
};

struct Step {
  std::string name;  // "train", or "train[lr=1e-3]"
  const StepSpec* spec = nullptr;
  Values values;              // of {PARAM}
  std::string out;            // normalised; empty: none
  std::vector<Input> inputs;  // one for each file that `in` stands for
  std::vector<int> needs;     // of the graph's steps, all before this one
};

struct Graph {
  Graph() = default;
  Graph(Graph&&) = default;  // steps point into the spec
  Graph& operator=(Graph&&) = default;

  Spec spec;
  std::vector<Step> steps;

  // The steps called `name` that `step` needs: those with its own values of the parameters they share.
  std::vector<int> matching(const Step& step, std::string_view name) const;
};

Graph make_graph(Spec spec);

}  // namespace tandem::pipeline
