// A pipeline gives the bits of one rank that accumulates the same micro-batches. All ranks' unrolled graphs
// are run node by node with reference kernels; messages between two ranks go through one queue a direction,
// so the order in which they are sent and received is tested too.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>

#include "tandem/base/error.h"
#include "tandem/base/rng.h"
#include "tandem/compile/passes/differentiate.h"
#include "tandem/compile/passes/fuse.h"
#include "tandem/compile/passes/precision.h"
#include "tandem/compile/passes/recompute.h"
#include "tandem/compile/passes/schedule.h"
#include "tandem/compile/passes/stage.h"
#include "tandem/compile/passes/unroll.h"
#include "tandem/ir/infer.h"
#include "tandem/ir/verify.h"
#include "tandem/kernels/cpu/register.h"
#include "tandem/models/model.h"
#include "tandem/runtime/kernel.h"

namespace tandem {
namespace {

using Bytes = std::vector<std::byte>;
using Leaves = std::map<std::string, Bytes>;
using Channels = std::map<std::pair<int, int>, std::deque<Bytes>>;  // from, to

// Parameters start away from zeros and ones, so that every path carries a gradient; states start at zero.
Bytes starting_bytes(const Node& leaf) {
  const TensorType& type = leaf.outputs[0];
  Bytes bytes(static_cast<size_t>(type.bytes()));
  if (leaf.op != Op::Param) return bytes;
  const Rng rng(7, hash_name(leaf.name));
  for (int64_t i = 0; i < type.shape.elems(); ++i) {
    const float value = rng.uniform(static_cast<uint64_t>(i)) - 0.3f;
    const BFloat16 rounded = to_bfloat16(value);
    const auto* source = type.dtype == DType::F32 ? static_cast<const void*>(&value) : &rounded;
    std::memcpy(bytes.data() + i * dtype_bytes(type.dtype), source,
                static_cast<size_t>(dtype_bytes(type.dtype)));
  }
  return bytes;
}

// One rank running a graph over its leaves, which outlive the run.
class Run {
 public:
  Run(const Graph& graph, Leaves& leaves, int stage, Channels& channels)
      : graph_(graph), stage_(stage), channels_(channels) {
    cpu::add_reference_kernels(kernels_);
    for (int32_t id = 0; id < graph.num_nodes(); ++id) {
      const Node& node = graph.node(id);
      if (!is_leaf(node.op)) continue;
      Bytes& bytes = leaves[node.name];
      if (bytes.empty()) bytes = starting_bytes(node);
      at_[{id, 0}] = bytes.data();
    }
  }

  // Runs until the end, or until a message is missing. Returns whether anything ran.
  bool advance() {
    const int32_t begin = next_;
    while (next_ < graph_.num_nodes() && run(next_)) ++next_;
    return next_ > begin;
  }
  bool done() const { return next_ == graph_.num_nodes(); }
  Bytes output(std::string_view name) const {
    for (const GraphOutput& output : graph_.outputs()) {
      if (output.name == name) return bytes(output.value);
    }
    return {};
  }

 private:
  Bytes bytes(Value value) const {
    const std::byte* data = at_.at(value);
    return {data, data + graph_.type(value).bytes()};
  }

  bool run(int32_t id) {
    const Node& node = graph_.node(id);
    if (is_leaf(node.op)) return true;
    std::optional<Bytes> message;
    if (node.op == Op::Recv && !(message = receive(node))) return false;

    std::vector<TensorArg> in, out;
    for (Value input : node.inputs) in.push_back({at_.at(input), graph_.type(input)});
    for (int i = 0; i < static_cast<int>(node.outputs.size()); ++i) {
      const int alias = aliased_input(node, i);
      std::byte* data = alias >= 0 ? in[static_cast<size_t>(alias)].as<std::byte>() + aliased_offset(node)
                                   : allocate(node.outputs[static_cast<size_t>(i)].bytes());
      at_[{id, i}] = data;
      out.push_back({data, node.outputs[static_cast<size_t>(i)]});
    }
    if (message) std::memcpy(out[0].data, message->data(), message->size());
    if (node.op == Op::Send)
      channels_[{stage_, static_cast<int>(node.attrs.integer("peer"))}].push_back(bytes({id, 0}));
    if (node.op != Op::Send && node.op != Op::Recv && !is_view(node.op)) {
      const Kernel& kernel = kernels_.choose({node.op, input_types(graph_, node), node.outputs, &node.attrs});
      kernel.run({in, out, node.attrs, {}}, stream_);
    }
    return true;
  }

  std::optional<Bytes> receive(const Node& node) {
    auto& channel = channels_[{static_cast<int>(node.attrs.integer("peer")), stage_}];
    if (channel.empty()) return std::nullopt;
    Bytes message = std::move(channel.front());
    channel.pop_front();
    TANDEM_CHECK(static_cast<int64_t>(message.size()) == node.outputs[0].bytes(),
                 "a message of another size");
    return message;
  }

  // Unwritten memory reads as NaN.
  std::byte* allocate(int64_t size) {
    return storage_.emplace_back(std::make_unique<Bytes>(static_cast<size_t>(size), std::byte{0xff}))->data();
  }

  const Graph& graph_;
  int stage_;
  Channels& channels_;
  int32_t next_ = 0;
  std::map<Value, std::byte*> at_;
  std::vector<std::unique_ptr<Bytes>> storage_;
  KernelRegistry kernels_;
  ThreadPool pool_{1};
  Stream stream_{pool_};
};

constexpr int64_t kMicroBatch = 2;

ModelConfig tiny(Family family) {
  ModelConfig config;
  config.family = family;
  config.layers = 6;
  config.width = 8;
  config.heads = 2;
  config.kv_heads = family == Family::Llama ? 1 : 2;
  config.context = 4;
  config.vocab = 11;
  config.ffn = 12;
  config.tied = family == Family::Gpt2;
  config.qkv_bias = family == Family::Gpt2;
  return config;
}

template <typename T>
Bytes bytes_of(const std::vector<T>& values) {
  const auto view = std::as_bytes(std::span(values));
  return {view.begin(), view.end()};
}

Bytes tokens(const ModelConfig& config, int micro_batch, int shift) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < kMicroBatch * config.context; ++i)
    ids.push_back(static_cast<int32_t>((i * i * 5 + i + 3 * micro_batch + shift) % config.vocab));
  return bytes_of(ids);
}

struct Numbers {
  DType storage;
  Recompute recompute;
};

Graph finish(const Graph& forward, const Numbers& numbers, bool split_tied) {
  const Graph typed = apply_precision(forward, {.storage = numbers.storage});
  const Graph trained = differentiate(typed, {}, split_tied);
  Graph graph = schedule(fuse(recompute(trained, numbers.recompute)));
  verify(graph, "schedule");
  return graph;
}

struct Result {
  Leaves leaves;             // gradients
  std::vector<Bytes> stats;  // by micro-batch
};

const Bytes kScale = bytes_of(std::vector<float>{0.05f});

Result accumulate(const ModelConfig& config, const Numbers& numbers, int micro_batches) {
  const Graph graph = finish(build_model(config, kMicroBatch), numbers, /*split_tied=*/true);
  Result result;
  Channels none;
  for (int i = 0; i < micro_batches; ++i) {
    result.leaves["tokens"] = tokens(config, i, 0);
    result.leaves["targets"] = tokens(config, i, 1);
    result.leaves["scale"] = kScale;
    Run run(graph, result.leaves, 0, none);
    run.advance();
    result.stats.push_back(run.output("stats"));
  }
  return result;
}

struct Layout {
  PipelineSchedule schedule;
  int stages, chunks, micro_batches;
};

Graph unrolled(const ModelConfig& config, const Numbers& numbers, const Layout& layout, int stage) {
  std::vector<Graph> chunks;
  for (int i = 0; i < layout.chunks; ++i) {
    const MeshPosition at{.shape = {.pipeline = layout.stages}, .pipeline = stage};
    const Graph part = cut_stage(build_model(config, kMicroBatch), i * layout.stages + stage,
                                 layout.stages * layout.chunks, at);
    chunks.push_back(finish(part, numbers, /*split_tied=*/false));
  }
  Graph graph = unroll(
      chunks, pipeline_order(layout.schedule, stage, layout.stages, layout.chunks, layout.micro_batches),
      layout.micro_batches);
  verify(graph, "unroll");
  return graph;
}

// By stage; the last one has the statistics.
std::vector<Result> pipeline(const ModelConfig& config, const Numbers& numbers, const Layout& layout) {
  std::vector<Result> results(static_cast<size_t>(layout.stages));
  std::vector<Graph> graphs;
  for (int stage = 0; stage < layout.stages; ++stage)
    graphs.push_back(unrolled(config, numbers, layout, stage));

  Channels channels;
  std::vector<std::unique_ptr<Run>> runs;
  for (int stage = 0; stage < layout.stages; ++stage) {
    Leaves& leaves = results[static_cast<size_t>(stage)].leaves;
    for (int i = 0; i < layout.micro_batches; ++i) {
      leaves[micro_batch_name("tokens", i)] = tokens(config, i, 0);
      leaves[micro_batch_name("targets", i)] = tokens(config, i, 1);
    }
    leaves["scale"] = kScale;
    runs.push_back(std::make_unique<Run>(graphs[static_cast<size_t>(stage)], leaves, stage, channels));
  }
  for (bool moved = true; moved;) {
    moved = false;
    for (const auto& run : runs) moved = run->advance() || moved;
  }
  for (const auto& run : runs) EXPECT_TRUE(run->done()) << "ranks wait for each other";
  for (const auto& [pair, channel] : channels) EXPECT_TRUE(channel.empty()) << "a message nobody received";
  for (int i = 0; i < layout.micro_batches; ++i)
    results.back().stats.push_back(runs.back()->output(micro_batch_name("stats", i)));
  return results;
}

bool is_alive(const Bytes& gradient) {
  double sum = 0;
  for (size_t i = 0; i < gradient.size(); i += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, gradient.data() + i, sizeof(value));
    sum += std::abs(value);
  }
  return sum > 0 && std::isfinite(sum);
}

void expect_same_bits(Family family, const Layout& layout, const Numbers& numbers) {
  SCOPED_TRACE(testing::Message() << "family " << static_cast<int>(family) << ", schedule "
                                  << static_cast<int>(layout.schedule) << ", stages " << layout.stages
                                  << ", chunks " << layout.chunks << ", storage "
                                  << dtype_name(numbers.storage));
  const ModelConfig config = tiny(family);
  const Result one = accumulate(config, numbers, layout.micro_batches);
  const std::vector<Result> many = pipeline(config, numbers, layout);
  EXPECT_EQ(many.back().stats, one.stats);

  size_t compared = 0;
  for (size_t stage = 0; stage < many.size(); ++stage) {
    for (const auto& [name, gradient] : many[stage].leaves) {
      if (!name.starts_with("grad:")) continue;
      const bool embedding = config.tied && stage == 0 && name == "grad:embed.weight";
      const auto it = one.leaves.find(embedding ? name + std::string(kEmbeddingPart) : name);
      ASSERT_NE(it, one.leaves.end()) << name;
      EXPECT_EQ(gradient, it->second) << name << " of stage " << stage;
      EXPECT_TRUE(is_alive(gradient)) << name << " is zero or not finite";
      ++compared;
    }
  }
  size_t expected = 0;
  for (const auto& [name, gradient] : one.leaves) expected += name.starts_with("grad:") ? 1 : 0;
  EXPECT_EQ(compared, expected);
}

const std::vector<Layout> kLayouts = {
    {PipelineSchedule::GPipe, 2, 1, 3},       {PipelineSchedule::OneFOneB, 2, 1, 4},
    {PipelineSchedule::Interleaved, 2, 2, 4}, {PipelineSchedule::Interleaved, 2, 3, 2},
    {PipelineSchedule::GPipe, 3, 1, 2},       {PipelineSchedule::OneFOneB, 3, 1, 5},
    {PipelineSchedule::Interleaved, 3, 2, 6},
};

TEST(Pipeline, GivesTheBitsOfOneRankThatAccumulates) {
  for (Family family : {Family::Gpt2, Family::Llama}) {
    for (const Layout& layout : kLayouts) expect_same_bits(family, layout, {DType::F32, {}});
  }
}

TEST(Pipeline, GivesTheSameBitsInHalfPrecisionAndWithRecomputation) {
  for (Family family : {Family::Gpt2, Family::Llama}) {
    for (const Layout& layout : kLayouts)
      expect_same_bits(family, layout, {DType::BF16, {RecomputeKind::Full, 0}});
  }
}

TEST(Pipeline, GivesTheSameBitsWhateverIsRecomputed) {
  for (const Recompute& choice : {Recompute{RecomputeKind::Selective, 0}, Recompute{RecomputeKind::Every, 2}})
    expect_same_bits(Family::Gpt2, {PipelineSchedule::Interleaved, 2, 2, 4}, {DType::F32, choice});
}

}  // namespace
}  // namespace tandem
