// Training on mixed images (data/images/mixed_images.h): each has two labels.
//
// Changes: the gradient of the loss, which gives the loss of training, reads two more inputs: the other label
// of each
//   row and the share of its target (ir/ops/loss.cpp).
// Keeps: evaluation, whose images are not mixed.
#pragma once

#include "tandem/compile/pass_info.h"
#include "tandem/ir/graph.h"

namespace tandem {

inline constexpr PassInfo kMixImagesPass = {.name = "mix", .needs_before = {"differentiate"}};

Graph mix_images(const Graph& graph);

}  // namespace tandem
