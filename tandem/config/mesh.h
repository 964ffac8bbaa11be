// What a config says about the mesh of ranks, and what the mesh asks of the other settings.
#pragma once

#include "tandem/base/mesh.h"
#include "tandem/config/config.h"

namespace tandem {

MeshShape mesh_shape(const Config& config);

// Blocks that the model of this config is built from: what the pipeline axis deals out.
int64_t num_blocks(const ModelConfig& model);

// Whether the ranks of the data axis are dealt the micro-batches of a batch in turn. Then any number of them
// can share a batch: in a step's last pass some may have nothing to do.
bool deals_micro_batches(const Config& config);

// Passes over the model per step: every rank's micro-batches of the largest batch.
int64_t passes_per_step(const Config& config);

// Whether passes of this size use up the batch, give every rank of the tensor axis as many rows, and come
// in the multiples of the pipeline axis that the interleaved schedule needs.
bool suits_mesh(const Config& config, int64_t micro_batch);

// The largest micro-batch up to `most` that suits the mesh; 0 when there is none.
int64_t largest_micro_batch(const Config& config, int64_t most);

}  // namespace tandem
