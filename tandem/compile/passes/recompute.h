// Trading arithmetic for memory: activations that are cheap to make again are not kept for backward.
//
// Changes: backward nodes that read a dropped activation read a copy, made again just before its first use
//   in backward from what was kept (phase "recompute").
// Keeps: the values, bit for bit (the same kernels run on the same inputs); block outputs; nodes with side
//   effects (batch_norm updates its running statistics once; sends and recvs happen once).
#pragma once

#include <set>

#include "tandem/compile/pass_info.h"
#include "tandem/config/config.h"
#include "tandem/ir/graph.h"

namespace tandem {

// What backward gives again by itself is not made twice; schedule moves copies to where they are read.
inline constexpr PassInfo kRecomputePass = {.name = "recompute",
                                            .needs_before = {"differentiate", "again"},
                                            .needs_after = {"schedule"},
                                            .optional = true};

int32_t num_blocks(const Graph& graph);

// When a gelu is made again: where other cheap ops are, only together with its product, because the two as
// one op give other bits (FuseOptions::gelu_of_product), or in every block, whatever the choice.
enum class GeluAgain { AsChosen, WithProduct, Always };

// The forward nodes whose outputs `choice` (not Auto) drops.
std::set<int32_t> dropped_nodes(const Graph& graph, const Recompute& choice,
                                GeluAgain gelu = GeluAgain::AsChosen);

Graph recompute(const Graph& graph, const Recompute& choice, GeluAgain gelu = GeluAgain::AsChosen);

// What `auto` tries, cheapest in extra arithmetic first: none, selective, every:K for falling K, all but
// attention, full. Each needs less memory than the one before it: an every:K that makes more again than all
// but attention is left out, which is many of them in long contexts.
std::vector<Recompute> recompute_candidates(const Graph& forward);

std::string recompute_name(const Recompute& choice);  // "every:2"

}  // namespace tandem
