#include "tandem/config/mesh.h"

#include <numeric>

namespace tandem {

MeshShape mesh_shape(const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  return {static_cast<int>(parallel.data), static_cast<int>(parallel.tensor),
          static_cast<int>(parallel.pipeline)};
}

int64_t num_blocks(const ModelConfig& model) {
  if (model.has(kEqualBlocks)) return model.layers;
  return std::accumulate(model.blocks.begin(), model.blocks.end(), int64_t{0});
}

bool deals_micro_batches(const Config& config) {
  return config.parallel.reproducible == Reproducible::Layout || config.parallel.elastic == Elastic::Data;
}

int64_t passes_per_step(const Config& config) {
  const int64_t unit = config.train.micro_batch * config.parallel.data;
  return (config.train.batch + unit - 1) / unit;
}

bool suits_mesh(const Config& config, int64_t micro_batch) {
  const ParallelConfig& parallel = config.parallel;
  const int64_t unit = micro_batch * parallel.data;
  if (config.train.batch % (deals_micro_batches(config) ? micro_batch : unit) != 0) return false;
  if (config.model.is_language_model() && micro_batch * config.model.context % parallel.tensor != 0)
    return false;
  return parallel.schedule != PipelineSchedule::Interleaved ||
         (config.train.batch + unit - 1) / unit % parallel.pipeline == 0;
}

int64_t largest_micro_batch(const Config& config, int64_t most) {
  int64_t micro_batch = most;
  while (micro_batch > 0 && !suits_mesh(config, micro_batch)) --micro_batch;
  return micro_batch;
}

}  // namespace tandem
