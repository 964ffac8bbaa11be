// Every gradient rule against finite differences, in double precision on the reference kernels: small models
// that together use every differentiable op, compiled by the real pipeline.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>

#include "tandem/base/error.h"
#include "tandem/base/rng.h"
#include "tandem/compile/compile_step.h"
#include "tandem/compile/passes/documents.h"
#include "tandem/compile/passes/norms/sync_norm.h"
#include "tandem/ir/op_table.h"
#include "tandem/kernels/cpu/register.h"
#include "tandem/models/family_models_test.h"
#include "tandem/models/model.h"
#include "tandem/runtime/session.h"

namespace tandem {
namespace {

struct Case {
  std::string name;
  Graph forward;
};

class GradientCheck {
 public:
  GradientCheck(const Graph& forward, bool fused, const Communicators* comms = nullptr)
      : registry_(cpu::reference_kernels()),
        pool_(1),
        session_(compile(forward, fused), registry_, pool_, comms) {
    session_.initialize(7);
    // Norm gains of one and zero biases hide mistakes: every parameter gets a spread of values.
    for (const Persistent* param : params()) {
      const Rng rng(3, hash_name(param->name));
      const std::span<double> values = doubles(*param);
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = 0.5 * values[i] + 0.6 * (rng.uniform(i) - 0.5) + 0.2;
    }
    fill_inputs();
  }

  void run() {
    for (const Persistent& item : session_.step().persistents) {
      if (item.slice.arena != Arena::Gradients) continue;
      const auto bytes = session_.buffer(item);
      std::fill(bytes.begin(), bytes.end(), std::byte{0});
    }
    loss();
    std::vector<std::vector<double>> gradients;
    for (const Persistent* param : params()) {
      const auto grad = doubles(*gradient_of(*param));
      gradients.emplace_back(grad.begin(), grad.end());
    }
    size_t index = 0;
    for (const Persistent* param : params()) check(*param, gradients[index++]);
  }

 private:
  CompiledStep compile(const Graph& forward, bool fused) {
    CompileOptions options;
    options.precision = {.storage = DType::F64, .gradients = DType::F64};
    if (!fused) options.without = {"fuse"};
    options.recompute = {RecomputeKind::Selective, 0};
    options.fuse.outputs_again = true;     // together with fusion
    options.fuse.chunk_logits_above = 64;  // so that the chunked loss is taken where the model allows it
    options.choose = choose_from(registry_, 1);
    return compile_step(forward, options);
  }

  std::vector<const Persistent*> params() const {
    std::vector<const Persistent*> list;
    for (const Persistent& item : session_.step().persistents) {
      if (item.slice.arena == Arena::Weights && gradient_of(item) != nullptr) list.push_back(&item);
    }
    return list;
  }
  const Persistent* gradient_of(const Persistent& weights) const {
    return session_.step().find("grads:" + weights.name.substr(weights.name.find(':') + 1));
  }
  std::span<double> doubles(const Persistent& item) const {
    const auto bytes = session_.buffer(item);
    return {reinterpret_cast<double*>(bytes.data()), bytes.size() / sizeof(double)};
  }

  void fill_inputs() {
    const Executable& pass = session_.step().pass;
    for (const Binding& input : pass.inputs) {
      std::vector<std::byte> bytes(static_cast<size_t>(input.slice.type.bytes()));
      const Rng rng(5, hash_name(input.name));
      for (int64_t i = 0; i < input.slice.type.shape.elems(); ++i) {
        if (input.slice.type.dtype == DType::I32) {
          auto* ids = reinterpret_cast<int32_t*>(bytes.data());
          ids[i] = static_cast<int32_t>(rng.below(static_cast<uint64_t>(i), 5));
          if (input.name == "targets" && i == 1) ids[i] = -1;  // one that does not count
        } else {
          reinterpret_cast<float*>(bytes.data())[i] =
              input.name == "scale" ? 0.25f : 2.0f * rng.uniform(static_cast<uint64_t>(i)) - 1.0f;
        }
      }
      inputs_.push_back({input.name, bytes});
    }
  }

  double loss() {
    for (const auto& [name, bytes] : inputs_) session_.write(session_.step().pass, name, bytes);
    session_.run_pass();
    return 0.25 * *reinterpret_cast<const double*>(session_.read(session_.step().pass, "stats").data());
  }

  void check(const Persistent& param, const std::vector<double>& gradient) {
    const std::span<double> values = doubles(param);
    const size_t stride = std::max<size_t>(1, values.size() / 6);  // a handful of elements of each parameter
    for (size_t i = 0; i < values.size(); i += stride) {
      const double kept = values[i], h = 1e-5;
      values[i] = kept + h;
      const double up = loss();
      values[i] = kept - h;
      const double down = loss();
      values[i] = kept;
      const double expected = (up - down) / (2 * h);
      EXPECT_NEAR(gradient[i], expected, 1e-6 * std::max(1.0, std::abs(expected)))
          << param.name << "[" << i << "]";
    }
  }

  KernelRegistry registry_;
  ThreadPool pool_;
  Session session_;
  std::vector<std::pair<std::string, std::vector<std::byte>>> inputs_;
};

ModelConfig tiny(Family family) {
  ModelConfig config;
  config.family = family;
  config.layers = 2;
  config.width = 8;
  config.heads = 4;
  config.kv_heads = 2;
  config.context = 5;
  config.vocab = 7;
  config.ffn = 12;
  config.tied = family == Family::Gpt2;
  config.qkv_bias = true;
  config.image_size = 6;
  config.channels = 2;
  config.classes = 5;
  config.blocks = {1, 1};
  config.groups = 2;
  return config;
}

// Ops that no built-in model uses.
Graph other_ops_tokens() {
  Builder b = Builder::for_tokens(2, 5);
  const Value x = b.embedding(6, 8, false);
  const Value q = b.linear(x, 8, "q"), k = b.linear(x, 4, "k"), v = b.linear(x, 4, "v");
  const Value y = b.attention(q, k, v, 4, 2, /*causal=*/false);
  b.cross_entropy(b.linear(b.gelu(b.softcap(y, 0.5)), 6, "head"));
  return b.take();
}

// Attention within segments (the inputs are numbers below 5), with and without the causal mask.
Graph segments_tokens() {
  Builder b = Builder::for_tokens(2, 7);
  Value x = b.embedding(6, 8, false);
  x = b.attention(b.linear(x, 16, "qkv1"), 4, 2, {.causal = false, .segments = b.segments()});
  x = b.attention(b.linear(x, 16, "qkv2"), 4, 2, {.window = 4, .softcap = 0.7, .segments = b.segments()});
  b.cross_entropy(b.linear(x, 6, "head"));
  return b.take();
}

Graph other_ops_images() {
  Builder b = Builder::for_images(2, 6, 2);
  const Value x = b.max_pool(b.conv2d(b.images(), 4, 3, 1, "conv"), 3, 2, 1);
  b.cross_entropy(b.linear(b.global_avg_pool(x), 5, "head"));
  return b.take();
}

std::vector<Case> cases() {
  ModelConfig group_norm = tiny(Family::Resnet);
  group_norm.width = 4;
  group_norm.norm = ImageNorm::Group;
  ModelConfig batch_norm = group_norm;
  batch_norm.norm = ImageNorm::Batch;
  ModelConfig dropout = tiny(Family::Gpt2);
  dropout.dropout = 0.3;
  std::vector<Case> cases = {{"gpt2", build_model(tiny(Family::Gpt2), 2)},
                             {"llama", build_model(tiny(Family::Llama), 2)},
                             {"resnet_batch", build_model(batch_norm, 3)},
                             {"resnet_group", build_model(group_norm, 2)},
                             {"mlp", build_model(tiny(Family::Mlp), 3)},
                             {"other_tokens", other_ops_tokens()},
                             {"segments", segments_tokens()},
                             {"gpt2_documents", separate_documents(build_model(tiny(Family::Gpt2), 2))},
                             {"llama_documents", separate_documents(build_model(tiny(Family::Llama), 2))},
                             {"dropout", build_model(dropout, 2)},
                             {"other_images", other_ops_images()}};
  for (FamilyModel family : family_models()) {
    family.model.context = 9;
    family.model.vocab = 7;
    cases.push_back({family.name, build_model(family.model, 1)});
  }
  return cases;
}

TEST(Gradients, MatchFiniteDifferencesInDouble) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    GradientCheck(c.forward, /*fused=*/false).run();
  }
}

TEST(Gradients, MatchFiniteDifferencesInDoubleAfterFusion) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    GradientCheck(c.forward, /*fused=*/true).run();
  }
}

// One of two ranks, the other of which has the same rows and weights: this rank's gradient is then the
// gradient of its own loss, and what the other would send is known.
class TwinCommunicator : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 2; }
  void all_reduce(std::span<std::byte> data, DType dtype, std::string_view) override {
    TANDEM_CHECK(dtype == DType::F64);
    auto* values = reinterpret_cast<double*>(data.data());
    for (size_t i = 0; i < data.size() / sizeof(double); ++i) values[i] += values[i];
  }
  void all_gather(std::span<const std::byte> src, std::span<std::byte> dst, std::string_view) override {
    TANDEM_CHECK(dst.size() == 2 * src.size());
    std::copy(src.begin(), src.end(), dst.begin());
    std::copy(src.begin(), src.end(), dst.begin() + std::ssize(src));
  }
  void reduce_scatter(std::span<const std::byte>, DType, std::span<std::byte>, DType, SumInto,
                      std::string_view) override {
    unused();
  }
  void all_to_all(std::span<const std::byte>, std::span<std::byte>, std::string_view) override { unused(); }
  void broadcast(std::span<std::byte>, int, std::string_view) override { unused(); }
  void send(std::span<const std::byte>, int, std::string_view) override { unused(); }
  void recv(std::span<std::byte>, int, std::string_view) override { unused(); }
  void barrier(std::string_view) override { unused(); }
  void abort(const std::string&) override {}
  CommCounters counters() const override { return {}; }
  int64_t memory_bytes() const override { return 0; }
  std::string description() const override { return "twin"; }

 private:
  static void unused() { TANDEM_CHECK(false, "not part of batch norm"); }
};

TEST(Gradients, OfBatchNormOverRanksMatchFiniteDifferences) {
  ModelConfig config = tiny(Family::Resnet);
  config.width = 4;
  config.norm = ImageNorm::Batch;
  Graph forward = build_model(config, 3);
  for (int32_t id = 0; id < forward.num_nodes(); ++id) {
    if (forward.node(id).op == Op::BatchNorm) forward.node(id).attrs.set("sync", int64_t{1});
  }
  const MeshPosition at{.shape = {.data = 2}};
  Communicators comms;
  comms.axes[static_cast<size_t>(Axis::Data)] = std::make_unique<TwinCommunicator>();
  GradientCheck(sync_norm(forward, at), /*fused=*/true, &comms).run();
}

TEST(Gradients, EveryRuleIsUsedByACase) {
  std::set<Op> used;
  for (const Case& c : cases()) {
    const Graph typed = apply_precision(c.forward, {.storage = DType::F64});
    for (const Node& node : typed.nodes()) used.insert(node.op);
  }
  for (int i = 0; i < kNumOps; ++i) {
    const Op op = static_cast<Op>(i);
    // What ranks do together is checked where there are several (runtime/tensor_axis_numeric_test.cpp), and
    // batch norm over them above.
    if (is_collective(op) || op == Op::BatchNormApply) continue;
    EXPECT_TRUE(op_info(op).gradient == nullptr || used.contains(op)) << op_name(op);
  }
}

}  // namespace
}  // namespace tandem
