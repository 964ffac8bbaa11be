// THE list of passes, from a model's forward graph to the graphs of a step: `pass_list` has all of it. Each
// pass is named, timed, verified, can be observed (`tandem plan --dump after:NAME`) and, where that is right,
// left out (`--without NAME`).
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/compile/compile_step.h"
#include "tandem/compile/pass_info.h"
#include "tandem/compile/row_sections.h"
#include "tandem/compile/units.h"

namespace tandem {

// What is made of a model, and of what: Training of Model; Pass, LastPass and Update of Training; Eval,
// Gather, Exchange, Prefill and Decode of Model.
enum class Part { Model, Training, Pass, LastPass, Update, Eval, Gather, Exchange, Prefill, Decode };

using Graphs = std::vector<Graph>;  // one for each chunk of the model on a pipeline rank, else one

struct Pass {
  PassInfo info;
  std::vector<Part> parts;  // those it runs for
  bool applies = true;      // to this step
  std::function<Graphs(const Graphs& graphs, Part part)> run;

  bool runs_for(Part part) const;
};

// What later passes take from finished parts.
struct StepDraft {
  std::vector<std::string> params;     // of the whole model, whoever holds them
  Graphs model;                        // this rank's forward in its storage types
  Graphs training;                     // with gradients
  UnitLayout layout;                   // of the model's parameters
  std::vector<std::string> fp8_slots;  // the whole model's matrices in 8 bits
  GenerationOptions generation;        // of a step that generates
  RowSections sections;                // of the whole model's packed matrices
  std::vector<std::string> metrics;    // the whole model's own
};

// In the order in which they run. Reads `options` and `draft` when the passes run, so both must live on.
std::vector<Pass> pass_list(const CompileOptions& options, const StepDraft& draft,
                            ForwardOutput output = ForwardOutput::Loss);

// The graphs of a whole step. Those that a step does not have are empty.
struct StepGraphs {
  UnitLayout layout;
  Graph pass, last_pass, update, eval, gather, exchange, prefill, decode;
};
StepGraphs run_passes(const Graph& forward, const CompileOptions& options);

// Of the forward alone, on one rank.
StepGraphs run_forward_passes(const Graph& forward, const CompileOptions& options, ForwardOutput output);

// Prefill and decode alone, on one rank.
StepGraphs run_generation_passes(const Graph& forward, const CompileOptions& options,
                                 const GenerationOptions& generation);

// As `observe` has them in training, in order; then a second time as "eval.NAME" those that evaluation
// shares. Those of generation are "prefill.NAME" and "decode.NAME".
inline constexpr std::string_view kEvalPrefix = "eval.";
std::vector<std::string> pass_names();
std::vector<std::string_view> optional_passes();

}  // namespace tandem
