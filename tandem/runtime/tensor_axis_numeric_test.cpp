// The tensor axis against one rank: the ranks' graphs run in lockstep, in double precision on the reference
// kernels, and their collectives are made here. Loss and the gradient of every parameter must be those of the
// model that is not split.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <memory>

#include "tandem/base/error.h"
#include "tandem/base/rng.h"
#include "tandem/compile/passes/differentiate.h"
#include "tandem/compile/passes/documents.h"
#include "tandem/compile/passes/fuse.h"
#include "tandem/compile/passes/inference.h"
#include "tandem/compile/passes/precision.h"
#include "tandem/compile/passes/recompute.h"
#include "tandem/compile/passes/remake_outputs.h"
#include "tandem/compile/passes/schedule.h"
#include "tandem/compile/passes/tensor_axis.h"
#include "tandem/compile/units.h"
#include "tandem/ir/infer.h"
#include "tandem/ir/verify.h"
#include "tandem/kernels/cpu/register.h"
#include "tandem/models/family_models_test.h"
#include "tandem/models/model.h"
#include "tandem/runtime/kernel.h"

namespace tandem {
namespace {

using Doubles = std::vector<double>;
constexpr int kVocab = 18;  // over 4 ranks: 5, 5, 4 and 4 ids

// The part of a logical tensor that a leaf holds, as the elements' places in it.
std::vector<size_t> places(const Node& leaf) {
  std::vector<size_t> list;
  if (!leaf.attrs.has("boxes")) {
    for (int64_t i = 0; i < leaf.outputs[0].shape.elems(); ++i) list.push_back(static_cast<size_t>(i));
    return list;
  }
  const Shape logical = parse_shape(leaf.attrs.text("logical"));
  const int64_t cols = logical.elems() / logical[0];
  for (const Box& box : parse_boxes(leaf.attrs.text("boxes"))) {
    for (int64_t row = box.row_begin; row < box.row_end; ++row) {
      for (int64_t col = box.col_begin; col < box.col_end; ++col)
        list.push_back(static_cast<size_t>(row * cols + col));
    }
  }
  return list;
}

// One rank's graph, run node by node. Buffers are never shared but where the op says so.
class Interpreter {
 public:
  explicit Interpreter(Graph graph) : graph_(std::move(graph)), pool_(1), stream_(pool_) {}

  const Graph& graph() const { return graph_; }
  const Node* waiting() const { return at_ < graph_.num_nodes() ? &graph_.node(at_) : nullptr; }
  std::span<std::byte> bytes(Value value) { return *buffers_.at(value); }
  Doubles doubles(Value value) {
    const std::span<std::byte> raw = bytes(value);
    Doubles values(raw.size() / sizeof(double));
    std::memcpy(values.data(), raw.data(), raw.size());
    return values;
  }

  // Runs up to the next collective, or to the end.
  void advance(const KernelRegistry& registry) {
    for (; at_ < graph_.num_nodes() && !is_collective(graph_.node(at_).op); ++at_) {
      const Node& node = graph_.node(at_);
      if (is_leaf(node.op)) {
        fill(node);
      } else {
        compute(node, registry);
      }
    }
  }

  // Ends the collective it waits for.
  void resume(std::vector<std::byte> result) {
    buffers_[{at_++, 0}] = std::make_shared<std::vector<std::byte>>(std::move(result));
  }

 private:
  void fill(const Node& node) {
    auto buffer = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(node.outputs[0].bytes()));
    const Rng rng(3, hash_name(node.name));
    const int64_t elems = node.outputs[0].shape.elems();
    if (node.op == Op::Param) {  // element i of a tensor has its value wherever it lies
      auto* values = reinterpret_cast<double*>(buffer->data());
      for (size_t place : places(node)) *values++ = 0.8 * (rng.uniform(place) - 0.5) + 0.1;
    } else if (node.name == "scale") {
      *reinterpret_cast<float*>(buffer->data()) = 0.25f;
    } else if (node.op == Op::Input) {
      auto* ids = reinterpret_cast<int32_t*>(buffer->data());
      auto below = static_cast<uint64_t>(kVocab);
      if (node.name == "segments") below = 2;
      if (node.name == "positions") below = static_cast<uint64_t>(node.outputs[0].shape.last());
      for (int64_t i = 0; i < elems; ++i)
        ids[i] = static_cast<int32_t>(rng.below(static_cast<uint64_t>(i), below));
      if (node.name == "targets") ids[1] = -1;  // one that does not count
    }
    buffers_[{at_, 0}] = std::move(buffer);
  }

  void compute(const Node& node, const KernelRegistry& registry) {
    std::vector<TensorArg> in, out;
    for (Value input : node.inputs) in.push_back({buffers_.at(input)->data(), graph_.type(input)});
    for (int i = 0; i < static_cast<int>(node.outputs.size()); ++i) {
      const TensorType& type = node.outputs[static_cast<size_t>(i)];
      const int alias = aliased_input(node, i);
      auto& buffer = buffers_[{at_, i}];
      buffer = alias >= 0 ? buffers_.at(node.inputs[static_cast<size_t>(alias)])
                          : std::make_shared<std::vector<std::byte>>(static_cast<size_t>(type.bytes()));
      out.push_back({buffer->data(), type});
    }
    if (is_view(node.op)) return;
    const CallSignature call{node.op, input_types(graph_, node), node.outputs, &node.attrs};
    registry.choose(call).run({in, out, node.attrs, {}}, stream_);
  }

  Graph graph_;
  ThreadPool pool_;
  Stream stream_;
  int32_t at_ = 0;
  std::map<Value, std::shared_ptr<std::vector<std::byte>>> buffers_;
};

using Ranks = std::vector<std::unique_ptr<Interpreter>>;

// All ranks stand before the same collective; each gets its result.
void exchange(Ranks& ranks) {
  const Node& first = *ranks[0]->waiting();
  const size_t size = ranks.size();
  ASSERT_EQ(first.attrs.text("axis"), "tensor");
  ASSERT_EQ(first.attrs.integer("size"), static_cast<int64_t>(size));
  std::vector<std::byte> gathered;
  Doubles sum;
  for (const auto& rank : ranks) {
    const Node* node = rank->waiting();
    ASSERT_TRUE(node != nullptr && node->op == first.op && node->outputs == first.outputs);
    const std::span<std::byte> part = rank->bytes(node->inputs[0]);
    if (node->op == Op::AllGather) {
      gathered.insert(gathered.end(), part.begin(), part.end());
      continue;
    }
    ASSERT_EQ(node->op, Op::ReduceScatter);
    ASSERT_EQ(node->outputs[0].dtype, DType::F64);
    const Doubles values = rank->doubles(node->inputs[0]);
    sum.resize(values.size());
    for (size_t i = 0; i < values.size(); ++i) sum[i] += values[i];
  }
  const bool scatters = first.op == Op::ReduceScatter;
  for (size_t r = 0; r < size; ++r) {
    if (!scatters) {
      ranks[r]->resume(gathered);
      continue;
    }
    std::vector<std::byte> rows(sum.size() / size * sizeof(double));
    std::memcpy(rows.data(), sum.data() + r * (sum.size() / size), rows.size());
    ranks[r]->resume(std::move(rows));
  }
}

using Compile = Graph (*)(const Graph& typed);  // from one rank's forward graph to what is run

struct Result {
  Doubles stats;
  std::map<std::string, Doubles> gradients;  // whole, by parameter
};

Ranks run(const Graph& model, int size, Compile compile) {
  const KernelRegistry registry = cpu::reference_kernels();
  Ranks ranks;
  for (int r = 0; r < size; ++r) {
    const Graph forward = shard_tensor(model, MeshPosition::of({1, size, 1}, r));
    verify(forward, "tensor");
    const Graph graph = compile(apply_precision(forward, {.storage = DType::F64, .gradients = DType::F64}));
    verify(graph, "compile");
    ranks.push_back(std::make_unique<Interpreter>(graph));
  }
  for (;;) {
    for (const auto& rank : ranks) rank->advance(registry);
    if (ranks[0]->waiting() == nullptr) break;
    exchange(ranks);
    if (testing::Test::HasFatalFailure()) break;
  }
  return ranks;
}

Value output(const Graph& graph, std::string_view name) {
  for (const GraphOutput& item : graph.outputs()) {
    if (item.name == name) return item.value;
  }
  return {};
}

// The gradient of one parameter put together from the ranks that hold it.
Doubles assemble(const Ranks& ranks, const Node& param) {
  Doubles whole(static_cast<size_t>(param.outputs[0].shape.elems()));
  std::vector<int> written(whole.size());
  bool summed = false;
  for (const auto& rank : ranks) {
    const Graph& graph = rank->graph();
    const Value leaf = graph.find(param.name), grad = graph.find("grad:" + param.name);
    if (!leaf.valid()) continue;
    const Node& node = graph.node(leaf.node);
    summed = summed || node.attrs.integer_or("tensor_sum", 0) == 1;
    const Doubles values = rank->doubles(grad);
    const std::vector<size_t> where = places(node);
    EXPECT_LE(where.size(), values.size()) << param.name;
    for (size_t i = where.size(); i < values.size(); ++i)
      EXPECT_EQ(values[i], 0) << "padding of " << param.name;
    for (size_t i = 0; i < where.size(); ++i) {
      whole[where[i]] += values[i];
      ++written[where[i]];
    }
  }
  const int times = summed ? static_cast<int>(ranks.size()) : 1;
  for (int count : written) EXPECT_EQ(count, times) << param.name;
  return whole;
}

Result train(const Graph& model, int size, Compile compile) {
  const Ranks ranks = run(model, size, compile);
  Result result;
  for (const auto& rank : ranks) {
    const Doubles stats = rank->doubles(output(rank->graph(), "stats"));
    if (result.stats.empty()) result.stats = stats;
    EXPECT_EQ(stats, result.stats) << "every rank knows the whole loss";
  }
  for (const Node& node : model.nodes()) {
    if (node.op == Op::Param) result.gradients[node.name] = assemble(ranks, node);
  }
  return result;
}

// Parts of the split loss are fp32, everything else is double.
void expect_same(const Result& split, const Result& single) {
  EXPECT_NEAR(split.stats[0], single.stats[0], 1e-6 * std::abs(single.stats[0]));
  EXPECT_EQ(split.stats[1], single.stats[1]);
  ASSERT_EQ(split.gradients.size(), single.gradients.size());
  for (const auto& [name, expected] : single.gradients) {
    double largest = 0, error = 0;
    for (double value : expected) largest = std::max(largest, std::abs(value));
    const Doubles& found = split.gradients.at(name);
    for (size_t i = 0; i < expected.size(); ++i) error = std::max(error, std::abs(found[i] - expected[i]));
    EXPECT_GT(largest, 0) << name;
    EXPECT_LE(error, 1e-6 * largest) << name;
  }
}

Graph plain(const Graph& typed) { return differentiate(typed); }
Graph finished(const Graph& typed, RecomputeKind kind) {
  return schedule(fuse(recompute(plain(typed), {kind, 0}), {.chunk_logits_above = 0, .chunk_bytes = 1024}));
}
Graph fused(const Graph& typed) { return finished(typed, RecomputeKind::None); }
Graph recomputed(const Graph& typed) { return finished(typed, RecomputeKind::Full); }
Graph selective(const Graph& typed) { return finished(typed, RecomputeKind::Selective); }
Graph given_again(const Graph& typed) { return schedule(fuse(remake_outputs(plain(typed)))); }
Graph evaluated(const Graph& typed) { return schedule(fuse(inference(typed, /*keep_logits=*/false))); }

ModelConfig tiny(Family family, bool tied, bool qkv_bias, int64_t kv_heads) {
  ModelConfig config;
  config.family = family;
  config.layers = 2;
  config.width = 16;
  config.heads = 8;
  config.kv_heads = kv_heads;
  config.context = 6;
  config.vocab = kVocab;
  config.ffn = 24;
  config.tied = tied;
  config.qkv_bias = qkv_bias;
  return config;
}

void check(const Graph& model, Compile compile = plain, std::initializer_list<int> sizes = {2, 4}) {
  const Result single = train(model, 1, plain);
  for (int size : sizes) {
    SCOPED_TRACE(fmt::format("tensor {}", size));
    expect_same(train(model, size, compile), single);
  }
}

TEST(TensorAxisNumeric, Gpt2HasTheLossAndGradientsOfOneRank) {
  check(build_model(tiny(Family::Gpt2, /*tied=*/true, /*qkv_bias=*/true, /*kv_heads=*/0), 2));
  check(build_model(tiny(Family::Gpt2, /*tied=*/false, /*qkv_bias=*/false, /*kv_heads=*/4), 2));
}

TEST(TensorAxisNumeric, LlamaHasTheLossAndGradientsOfOneRank) {
  check(build_model(tiny(Family::Llama, /*tied=*/false, /*qkv_bias=*/false, /*kv_heads=*/4), 2));
  check(build_model(tiny(Family::Llama, /*tied=*/true, /*qkv_bias=*/true, /*kv_heads=*/0), 2));
}

TEST(TensorAxisNumeric, EveryFamilyHasTheLossAndGradientsOfOneRank) {
  for (FamilyModel family : family_models()) {
    SCOPED_TRACE(family.name);
    family.model.vocab = kVocab;
    const Graph graph = build_model(family.model, 2);
    if (family.model.qk_norm == QkNorm::All) {
      EXPECT_THROW(check(graph, plain, {2}), ConfigError);
      continue;
    }
    for (Compile compile : {plain, fused, recomputed, selective, given_again}) check(graph, compile, {2});
  }
}

TEST(TensorAxisNumeric, SegmentsAreOfAllTokens) {
  Builder b = Builder::for_tokens(2, 6);
  const Value x = b.rms_norm(b.embedding(kVocab, 16, /*positions=*/false), "norm");
  const Value qkv = b.linear(x, 32, "qkv", {.dims = "heads,width"});
  const Value y = b.attention(qkv, 4, 2, {.causal = false, .segments = b.segments()});
  b.cross_entropy(b.linear(b.linear(y, 16, "out", {.dims = "width,heads"}), kVocab, "head",
                           {.bias = false, .dims = "vocab,width"}));
  check(b.take(), plain, {2});
}

TEST(TensorAxisNumeric, SeparateDocumentsHaveTheLossAndGradientsOfOneRank) {
  for (Family family : {Family::Gpt2, Family::Llama}) {
    const Graph model = build_model(tiny(family, /*tied=*/true, /*qkv_bias=*/true, /*kv_heads=*/4), 2);
    for (Compile compile : {plain, fused, recomputed}) check(separate_documents(model), compile, {2});
  }
}

TEST(TensorAxisNumeric, RowsOfARankMayEndInsideASequence) {
  ModelConfig config = tiny(Family::Gpt2, true, true, 0);
  config.context = 4;
  check(build_model(config, 3), plain, {2});  // one sequence and a half
  config.context = 8;
  check(build_model(config, 1), plain, {8});  // one token, one head
}

TEST(TensorAxisNumeric, FusionAndRecomputationChangeNothing) {
  for (Family family : {Family::Gpt2, Family::Llama}) {
    const Graph model = build_model(tiny(family, /*tied=*/true, /*qkv_bias=*/true, /*kv_heads=*/4), 2);
    for (Compile compile : {fused, recomputed, selective, given_again}) check(model, compile, {2});
  }
}

TEST(TensorAxisNumeric, EvaluationHasTheLossOfOneRank) {
  const Graph model = build_model(tiny(Family::Llama, false, true, 4), 2);
  const Ranks single = run(model, 1, evaluated), split = run(model, 4, evaluated);
  const Doubles expected = single[0]->doubles(output(single[0]->graph(), "stats"));
  for (const auto& rank : split) {
    const Doubles found = rank->doubles(output(rank->graph(), "stats"));
    EXPECT_NEAR(found[0], expected[0], 1e-6 * expected[0]);
    EXPECT_EQ(found[1], expected[1]);
  }
}

// Queries, keys and values from linears of their own, a head with a bias, a scale after it.
TEST(TensorAxisNumeric, AnOwnModelIsSplitAsItsDimsSay) {
  Builder b = Builder::for_tokens(2, 6);
  Value x = b.embedding(kVocab, 16, /*positions=*/true);
  {
    const auto block = b.block(0);
    const Value y = b.rms_norm(x, "norm");
    const Value q = b.linear(y, 16, "q", {.dims = "heads,width"});
    const Value k = b.linear(y, 8, "k", {.bias = false, .dims = "heads,width"});
    const Value v = b.linear(y, 8, "v", {.dims = "heads,width"});
    x = b.add(b.linear(b.attention(q, k, v, 8, 4, /*causal=*/false), 16, "out", {.dims = "width,heads"}), x);
    const Value hidden = b.reshape(b.relu(b.linear(x, 20, "up", {.dims = "ffn,width"})), Shape({12, 20}));
    const Value down = b.linear(hidden, 16, "down", {.bias = false, .dims = "width,ffn"});
    x = b.add(x, b.reshape(down, Shape({2, 6, 16})));
  }
  b.cross_entropy(b.relu(b.linear(x, kVocab, "head", {.dims = "vocab,width"})));
  check(b.take());
}

}  // namespace
}  // namespace tandem
