// The second half of a step as a graph: what is left to reduce, global norm, clipping and the optimizer.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "tandem/compile/pass_info.h"
#include "tandem/compile/passes/data_axis.h"
#include "tandem/compile/passes/precision.h"
#include "tandem/compile/row_sections.h"
#include "tandem/config/config.h"
#include "tandem/ir/graph.h"

namespace tandem {

// Numbers that the ranks add up with the norm, at the end of the "sums" output: the loss's two statistics,
// how many ranks were asked to stop, and the model's own metrics.
inline constexpr int64_t kStatLoss = 0;
inline constexpr int64_t kStatCorrect = 1;
inline constexpr int64_t kStatStop = 2;
inline constexpr int64_t kNumStats = 3;

inline constexpr PassInfo kUpdatePass = {
    .name = "update", .needs_before = {"differentiate", "loss_stats", "overwrite_gradients"}};
inline constexpr PassInfo kGatherPass = {.name = "gather", .needs_before = {"precision"}};
inline constexpr PassInfo kExchangePass = {.name = "exchange", .needs_before = {"differentiate"}};

// The moving average of a unit's weights is the persistent buffer "ema:<unit>", its parts "ema:<parameter>".
inline constexpr std::string_view kEmaState = "ema";

struct UpdateOptions {
  OptimizerKind optimizer = OptimizerKind::AdamW;
  StateType state_type = StateType::Fp32;
  MuonScale muon_scale = MuonScale::MatchAdamW;
  double ema = 0;        // decay of the weights' moving average; 0 = none is kept
  RowSections sections;  // of parameters that are several matrices
  PrecisionPolicy precision;
  std::vector<std::string> slots;  // all parameters of the model, whoever holds them, in order
  std::vector<std::string>
      split;  // those with an accumulator of their own for the embedding (kEmbeddingPart)
  // Running statistics that each rank of the data axis has made of its own micro-batches: their means are
  // kept.
  std::vector<Node> running;
  std::set<std::string> untrained;  // units that the loss does not depend on: they stay as they are
  bool together = false;            // one call of the optimizer for all units: there is nothing to overlap
  bool keep_gradients = false;      // the next pass overwrites them
  bool fixed_order = false;         // the norm does not show who has summed which part
  bool norms_apart = false;         // "sums" tells of each parameter, with fixed_order too
  bool sums_stats = false;          // the passes have added up this rank's statistics of the loss
  size_t num_metrics = 0;           // of the model's own, behind the other statistics
  bool sums_metrics = false;        // the passes have added up those that this rank makes
  int64_t fp8_slots = 0;            // of the states that scales are made of
};

// Inputs: "hyper", "stats". Outputs: "norm" (norm of the unclipped gradient, finite flag), "sums", which ends
// in the statistics (on several ranks, with what the passes have added up), and "loss_scaler" where the loss
// is scaled. Weights that were updated in parts are gathered at the end.
Graph build_update(const UnitLayout& layout, const DataAxisOptions& data, const UpdateOptions& options);

// Whether weights have masters beside them, and in which type.
bool has_masters(const PrecisionPolicy& precision, OptimizerKind optimizer);
DType type_of_masters(const PrecisionPolicy& precision, OptimizerKind optimizer);

// Makes weights that are ready to be read. Gathers whole ones from the ranks' parts, for zero1 and zero2
// after their masters were restored. With an optimizer that averages they are made of masters and states
// before, by the input "share" f32[1]: 0 gives the average, 1 - beta1 what passes read; `untrained` units
// stay as they are.
Graph build_gather(const UnitLayout& layout, const DataAxisOptions& data, OptimizerKind optimizer,
                   const std::set<std::string>& untrained);

// Puts the moving averages into the weights' places, and the weights (their masters, where they have some)
// into the averages': an evaluation then is the averages'. Run again, it gives every bit back. `untrained`
// units have no averages.
Graph build_exchange(const UnitLayout& layout, const DataAxisOptions& data, const PrecisionPolicy& precision,
                     const std::set<std::string>& untrained);

}  // namespace tandem
