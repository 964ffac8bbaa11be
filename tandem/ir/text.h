// Graphs as text, one node a line, so that a pass can be tested with text in and text out:
//
//   %2, %3, %4 = layer_norm(%0, %1, %1) {eps=1e-05} block 0 : f32[4,8], f32[4], f32[4]
//   output "loss" %9
//
// Values are numbered in order of definition; a phase other than forward is written after the block.
#pragma once

#include <string>
#include <string_view>

#include "tandem/ir/graph.h"

namespace tandem {

std::string print(const Graph& graph);
Graph parse_graph(std::string_view text);  // throws ConfigError naming the line

}  // namespace tandem
