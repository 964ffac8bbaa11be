#include "tandem/plan/refine.h"

#include <algorithm>
#include <map>
#include <memory>

#include "tandem/compile/passes/stage.h"
#include "tandem/plan/pipeline_slots.h"
#include "tandem/plan/time_plan.h"

namespace tandem::plan {
namespace {

constexpr int64_t kFewBlocks = 2, kMoreBlocks = 4;
constexpr int64_t kPassesCut = 2;

// A chunk of the model, compiled as a stage of a pipeline that has a stage for each.
struct Part {
  CompiledStep step;
  ChunkItems items;
  std::vector<Item> update;
};

// Which chunks are alike: the first, the last, and those between with as many blocks.
std::vector<int> alike_chunks(int num_blocks, int chunks) { return alike_stages(num_blocks, chunks, 1); }

// The update of a rank that has so many chunks: all but what the ranks of the world agree on.
std::vector<Item> repeated(std::vector<Item> items, int times) {
  for (Item& item : items) {
    if (item.kind != Kind::World) item.seconds *= times;
  }
  return items;
}

}  // namespace

std::optional<double> Refiner::seconds(const Candidate& candidate) const {
  const RecomputeKind again = candidate.recompute.kind;
  const bool is_alike =
      config_.model.has(kEqualBlocks) && again != RecomputeKind::Auto && again != RecomputeKind::Every;
  if (!is_alike || cluster_.is_cpu()) return std::nullopt;
  if (candidate.mesh.pipeline == 1)
    return blocks_ > 2 * kMoreBlocks ? std::optional(without_pipeline(candidate)) : std::nullopt;
  if (candidate.schedule == PipelineSchedule::GPipe) return std::nullopt;
  return of_pipeline(candidate);
}

double Refiner::without_pipeline(const Candidate& candidate) const {
  const auto with_blocks = [&](int64_t layers) {
    Config config = with(config_, candidate);
    config.model.layers = layers;
    PlanOptions options;
    options.model = model_;
    options.only = [](const MeshPosition& at) { return at.tensor == 0; };
    return CompiledRanks(config, backend_, cluster_, options).on(cluster_).step_s;
  };
  const double few = with_blocks(kFewBlocks), more = with_blocks(kMoreBlocks);
  return few + (more - few) * static_cast<double>(blocks_ - kFewBlocks) / (kMoreBlocks - kFewBlocks);
}

double Refiner::of_pipeline(const Candidate& candidate) const {
  const int stages = candidate.mesh.pipeline, chunks = static_cast<int>(candidate.chunks);
  const int parts = stages * chunks;
  Config config = with(config_, candidate);
  config.parallel.schedule = PipelineSchedule::OneFOneB;
  config.parallel.chunks = 1;
  config.parallel.pipeline = parts;
  MeshShape mesh = candidate.mesh;
  mesh.pipeline = parts;
  const std::vector<int> alike = alike_chunks(blocks_, parts);
  std::map<int, std::unique_ptr<Part>> made;
  for (int part = 0; part < parts; ++part) {
    if (alike[static_cast<size_t>(part)] != part) continue;
    auto one = std::make_unique<Part>();
    const MeshPosition at{mesh, 0, 0, part};
    CompileOptions options =
        compile_options(config, backend_, at, std::min(candidate.mesh.world(), cluster_.gpus_per_node));
    options.parallel.micro_batches = kPassesCut;
    one->step = compile_config(config, options, model_);
    const std::vector<Item> pass = program_of(one->step.pass, cluster_, at, kPassesCut);
    one->items =
        cut_slots(pass, pipeline_order(PipelineSchedule::OneFOneB, part, parts, 1, kPassesCut), 1)[0];
    one->update = repeated(program_of(one->step.update, cluster_, at, kPassesCut), chunks);
    made.emplace(part, std::move(one));
  }
  // A rank's chunks are those parts that are `stages` from each other; so are the parts of its neighbours.
  std::vector<std::vector<ChunkItems>> lists(static_cast<size_t>(stages));
  for (int part = 0; part < parts; ++part) {
    const int like = alike[static_cast<size_t>(part)];
    ChunkItems items = made.at(like)->items;
    for (std::vector<Item>* list : {&items.forward, &items.backward}) {
      for (Item& item : *list) {
        if (item.kind == Kind::Send || item.kind == Kind::Recv)
          item.peer = (item.peer - like + part + stages) % stages;
      }
    }
    lists[static_cast<size_t>(part % stages)].push_back(std::move(items));
  }
  const auto simulated = [&](int64_t passes) {
    std::vector<Program> programs;
    for (int stage = 0; stage < stages; ++stage) {
      const auto order = pipeline_order(candidate.schedule, stage, stages, chunks, static_cast<int>(passes));
      programs.push_back(in_order(lists[static_cast<size_t>(stage)], order));
      programs.back().push_back({&made.at(alike[static_cast<size_t>(stage)])->update, 1});
    }
    return simulate(
               programs,
               {.launch = cluster_.launch, .issue = cluster_.issue, .step_overhead = cluster_.step_overhead})
        .seconds;
  };
  const int64_t passes = candidate.passes(config_.train.batch), few = 2 * stages, more = 3 * stages;
  if (passes <= more) return simulated(passes);
  const double begun = simulated(few), then = simulated(more);
  return begun + (then - begun) * static_cast<double>(passes - few) / static_cast<double>(more - few);
}

}  // namespace tandem::plan
