#include "tandem/plan/search_space.h"

#include <fmt/format.h>

#include <algorithm>

#include "tandem/config/enum_names.h"
#include "tandem/config/mesh.h"

namespace tandem::plan {
namespace {

constexpr int64_t kMostInPass = 64;  // sequences or images
constexpr int64_t kMostChunks = 8;
constexpr double kFirstWithFp8 = 8.9, kFirstWithBf16 = 8.0;

class Space {
 public:
  Space(const ResolvedConfig& given, const Cluster& cluster, int num_blocks)
      : given_(given), config_(given.config), cluster_(cluster), blocks_(num_blocks) {}

  std::vector<Candidate> list() {
    for (const int64_t tensor : tensors()) {
      for (int64_t pipeline = 1; pipeline <= std::min<int64_t>(blocks_, cluster_.gpus); ++pipeline) {
        const int64_t data = cluster_.gpus / (tensor * pipeline);
        if (data * tensor * pipeline != cluster_.gpus) continue;
        if (!may_be("parallel.pipeline", config_.parallel.pipeline, pipeline) ||
            !may_be("parallel.data", config_.parallel.data, data) || config_.train.batch % data != 0)
          continue;
        Candidate at;
        at.mesh = {static_cast<int>(data), static_cast<int>(tensor), static_cast<int>(pipeline)};
        add_strategies(at);
      }
    }
    return std::move(made_);
  }

 private:
  // Whether a key may have a value: it is free, or that is the one it has.
  template <typename T>
  bool may_be(std::string_view key, const T& has, const T& value) const {
    return !is_fixed(given_, key) || has == value;
  }

  // The values of a key: its own where it is fixed.
  template <typename T>
  std::vector<T> values(std::string_view key, const T& has, std::vector<T> free) const {
    return is_fixed(given_, key) ? std::vector<T>{has} : free;
  }

  std::vector<int64_t> tensors() const {
    const ModelConfig& model = config_.model;
    std::vector<int64_t> sizes;
    for (int64_t size = 1; size <= std::min(cluster_.gpus_per_node, cluster_.gpus); ++size) {
      const bool splits = model.is_language_model() && model.heads % size == 0 &&
                          model.num_kv_heads() % size == 0 && model.ffn_width() % size == 0;
      if (cluster_.gpus % size == 0 && (size == 1 || splits)) sizes.push_back(size);
    }
    return values("parallel.tensor", config_.parallel.tensor, sizes);
  }

  std::vector<Precision> precisions() const {
    std::vector<Precision> free = {cluster_.gpu.capability >= kFirstWithBf16 ? Precision::Bf16
                                                                             : Precision::Fp16};
    const bool has_fp8 = cluster_.gpu.capability >= kFirstWithFp8 && cluster_.gpu.matmul_fp8 > 0;
    if (has_fp8 && config_.model.is_language_model()) free.push_back(Precision::Fp8);
    return values("precision", config_.precision, free);
  }

  std::vector<Recompute> recomputes() const {
    std::vector<Recompute> free = {{RecomputeKind::None, 0}, {RecomputeKind::Selective, 0}};
    if (config_.model.is_language_model()) free.push_back({RecomputeKind::AllButAttention, 0});
    free.push_back({RecomputeKind::Full, 0});
    return values("memory.recompute", config_.memory.recompute, free);
  }

  void add_strategies(Candidate at) {
    const std::vector<Strategy> free =
        at.mesh.data > 1
            ? std::vector<Strategy>{Strategy::Ddp, Strategy::Zero1, Strategy::Zero2, Strategy::Fsdp}
            : std::vector<Strategy>{Strategy::Single};
    for (const Strategy strategy : values("parallel.strategy", config_.parallel.strategy, free)) {
      if (at.mesh.data > 1 && (strategy == Strategy::Single || strategy == Strategy::Dp)) continue;
      at.strategy = strategy;
      add_schedules(at);
    }
  }

  void add_schedules(Candidate at) {
    if (at.mesh.pipeline == 1) {
      at.schedule = config_.parallel.schedule;
      at.chunks = config_.parallel.chunks;
      add_sizes(at);
      return;
    }
    for (const PipelineSchedule schedule :
         values("parallel.schedule", config_.parallel.schedule,
                {PipelineSchedule::OneFOneB, PipelineSchedule::Interleaved})) {
      std::vector<int64_t> free = {1};
      if (schedule == PipelineSchedule::Interleaved) {
        free.clear();
        for (int64_t chunks = 2; chunks <= kMostChunks && chunks * at.mesh.pipeline <= blocks_; chunks *= 2)
          free.push_back(chunks);
      }
      for (const int64_t chunks : values("parallel.chunks", config_.parallel.chunks, free)) {
        if (chunks > 1 && schedule != PipelineSchedule::Interleaved) continue;
        at.schedule = schedule;
        at.chunks = chunks;
        add_sizes(at);
      }
    }
  }

  void add_sizes(Candidate at) {
    Config config = with(config_, at);
    const int64_t share = config_.train.batch / at.mesh.data;
    std::vector<int64_t> free;
    for (int64_t size = 1; size <= std::min(share, kMostInPass); size *= 2) {
      if (suits_mesh(config, size)) free.push_back(size);
    }
    for (const int64_t size : values("train.micro_batch", config_.train.micro_batch, free)) {
      if (!suits_mesh(config, size)) continue;
      at.micro_batch = size;
      add_syncs(at);
    }
  }

  // Reducing once a step saves traffic and costs memory, where there are several passes to reduce after.
  void add_syncs(Candidate at) {
    const bool has_both = (at.strategy == Strategy::Ddp || at.strategy == Strategy::Zero1) &&
                          at.mesh.pipeline == 1 && at.mesh.data > 1 && at.passes(config_.train.batch) > 1;
    std::vector<GradientSync> free = {GradientSync::Pass};
    if (has_both) free.insert(free.begin(), GradientSync::Step);
    for (const GradientSync sync : values("parallel.sync", config_.parallel.sync, free)) {
      at.sync = sync;
      add_rest(at);
    }
  }

  void add_rest(Candidate at) {
    std::vector<std::vector<OffloadKind>> free = {{}, {OffloadKind::Optimizer}};
    if (at.strategy == Strategy::Fsdp) free.push_back({OffloadKind::Params, OffloadKind::Optimizer});
    for (const auto& offload : values("memory.offload", config_.memory.offload, free)) {
      for (const Precision precision : precisions()) {
        const bool params = std::find(offload.begin(), offload.end(), OffloadKind::Params) != offload.end();
        if (params && precision == Precision::Fp8) continue;
        for (const Recompute& recompute : recomputes()) {
          at.offload = offload;
          at.precision = precision;
          at.recompute = recompute;
          made_.push_back(at);
        }
      }
    }
  }

  const ResolvedConfig& given_;
  const Config& config_;
  const Cluster& cluster_;
  const int64_t blocks_;
  std::vector<Candidate> made_;
};

}  // namespace

bool is_fixed(const ResolvedConfig& given, std::string_view key) {
  const std::string_view origin = given.origin(key);
  return origin != "default" && !origin.starts_with("derived");
}

Config with(Config config, const Candidate& candidate) {
  config.parallel.data = candidate.mesh.data;
  config.parallel.tensor = candidate.mesh.tensor;
  config.parallel.pipeline = candidate.mesh.pipeline;
  config.parallel.strategy = candidate.strategy;
  config.parallel.schedule = candidate.schedule;
  config.parallel.chunks = candidate.chunks;
  config.parallel.sync = candidate.sync;
  config.train.micro_batch = candidate.micro_batch;
  config.precision = candidate.precision;
  config.memory.recompute = candidate.recompute;
  config.memory.offload = candidate.offload;
  return config;
}

std::string family_of(const Candidate& c) {
  return fmt::format("{} {} {} {} {} {} {}", c.mesh.data, c.mesh.tensor, c.mesh.pipeline, name_of(c.strategy),
                     name_of(c.schedule), c.chunks, name_of(c.precision));
}

std::vector<Candidate> search_space(const ResolvedConfig& given, const Cluster& cluster, int num_blocks) {
  return Space(given, cluster, num_blocks).list();
}

}  // namespace tandem::plan
