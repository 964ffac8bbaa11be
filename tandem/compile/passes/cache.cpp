#include "tandem/compile/passes/cache.h"

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/compile/rewrite.h"
#include "tandem/ir/infer.h"
#include "tandem/ir/op_table.h"

namespace tandem {
namespace {

constexpr int64_t kFewRows = 4;  // up to so many, a product waits for its weights, not for its sums

[[noreturn]] void refuse(const Node& node, std::string_view why) {
  throw ConfigError(
      "{}{}: {}, so that no cache of keys and values can be kept; run the whole text for every token instead "
      "(tandem sample --no-cache)",
      node.block == kNoBlock ? "" : fmt::format("blocks.{}: ", node.block), op_name(node.op), why);
}

// Ops that make each row of a row, with weights.
bool works_on_each_token(const Node& node) {
  switch (op_info(node.op).split) {
    case Split::Param:
    case Split::Pointwise:
    case Split::Rows:
    case Split::Linear:
    case Split::Heads:
    case Split::GateUp:
    case Split::Concat:
    case Split::Embedding: return true;
    default: return false;
  }
}

class Caching {
 public:
  Caching(const Graph& graph, const CacheOptions& options)
      : graph_(graph), options_(options), rewrite_(graph) {}

  Graph run() {
    find_tokens();
    find_wide();
    for (int32_t id = 0; id < graph_.num_nodes(); ++id) rewrite_node(id);
    if (options_.logits) {
      Value logits = rewrite_.at(logits_);
      if (made().type(logits).dtype != DType::F32)
        logits = append(made(), Op::Cast, {logits}, {{"dtype", std::string(dtype_name(DType::F32))}});
      made().add_output("logits", logits);
      return std::move(made());
    }
    return only_the_cache();
  }

 private:
  Graph& made() { return rewrite_.graph(); }

  void find_tokens() {
    const Value tokens = graph_.find("tokens");
    if (!tokens.valid() || graph_.type(tokens).shape.rank() != 2)
      throw ConfigError("generate: the model does not read tokens [batch, context]");
    batch_ = graph_.type(tokens).shape[0];
    context_ = graph_.type(tokens).shape[1];
    positions_ = options_.positions == 0 ? context_ : options_.positions;
    TANDEM_CHECK(
        options_.rows <= options_.most_rows && options_.most_rows <= positions_ && positions_ <= context_,
        "{} rows of {} positions of {}", options_.most_rows, positions_, context_);
    TANDEM_CHECK(graph_.outputs().size() == 1 && graph_.outputs()[0].name == "logits");
    logits_ = graph_.outputs()[0].value;
  }

  // The product that the logits come from is not rounded: draws are made of it.
  void find_wide() {
    int32_t id = logits_.node;
    while (graph_.node(id).op == Op::Scale || graph_.node(id).op == Op::Softcap)
      id = graph_.node(id).inputs[0].node;
    if (graph_.node(id).op == Op::Matmul && is_half(graph_.node(id).outputs[0].dtype)) wide_ = id;
  }

  void rewrite_node(int32_t id) {
    const Node& node = graph_.node(id);
    switch (node.op) {
      case Op::Input: return input(id);
      case Op::Attention: return attention(id);
      case Op::Rope: return rope(id);
      case Op::Embedding: return embedding(id);
      case Op::Matmul: return product(id);
      case Op::Reshape: return reshape(id);
      case Op::State: return refuse(node, "keeps a state of its own");
      default: break;
    }
    if (!works_on_each_token(node)) refuse(node, "may look at other tokens");
    rewrite_.copy(id);
  }

  void input(int32_t id) {
    Node node = graph_.node(id);
    if (node.name != "tokens")
      throw ConfigError("generate: the model reads the input '{}', which a text that goes on does not have",
                        node.name);
    node.outputs[0].shape = Shape({batch_, options_.rows});
    rewrite_.set({id, 0}, made().add(std::move(node)));
    const TensorType two{DType::I32, Shape({2})};
    position_ = made().add({Op::Input, {}, {}, {two}, kNoBlock, Phase::Forward, "position"});
  }

  // The node with other attributes and more inputs.
  void replace(int32_t id, Op op, Attrs attrs, std::initializer_list<Value> more = {}) {
    const Node& node = graph_.node(id);
    std::vector<Value> inputs;
    for (Value value : node.inputs) inputs.push_back(rewrite_.at(value));
    inputs.insert(inputs.end(), more);
    const Value value = append(made(), op, std::move(inputs), std::move(attrs), node.block);
    rewrite_.set({id, 0}, value);
  }

  void attention(int32_t id) {
    const Node& node = graph_.node(id);
    if (node.attrs.integer("causal") == 0) refuse(node, "sees later tokens");
    if (node.inputs.size() > 1) refuse(node, "sees tokens of one segment");
    Attrs attrs{{"heads", node.attrs.integer("heads")}, {"kv_heads", node.attrs.integer("kv_heads")}};
    const int64_t window = node.attrs.integer_or("window", context_);
    if (window < context_) attrs.set("window", window);
    for (const char* name : {"softcap", "scale"}) {
      if (node.attrs.has(name)) attrs.set(name, node.attrs.real(name));
    }
    const Value qkv = rewrite_.at(node.inputs[0]);
    const int64_t kv_heads = node.attrs.integer("kv_heads");
    const int64_t head_dim = made().type(qkv).shape.last() / (node.attrs.integer("heads") + 2 * kv_heads);
    const int64_t slots = std::min(positions_, window - 1 + options_.most_rows);
    const TensorType type{made().type(qkv).dtype, Shape({batch_, kv_heads, slots, head_dim})};
    const auto cache = [&](std::string_view what) {
      return made().add(
          zero_state(fmt::format("cache:{}.{}", count_, what), type, "cache", Phase::Forward, node.block));
    };
    const Value keys = cache("keys"), values = cache("values");
    ++count_;
    replace(id, Op::CachedAttention, std::move(attrs), {keys, values, position_});
  }

  void rope(int32_t id) {
    Attrs attrs = graph_.node(id).attrs;
    attrs.set("at", int64_t{1});
    attrs.set("context", context_);
    replace(id, Op::Rope, std::move(attrs), {position_});
  }

  void embedding(int32_t id) {
    Attrs attrs = graph_.node(id).attrs;
    if (graph_.node(id).inputs.size() < 3) return replace(id, Op::Embedding, std::move(attrs));
    attrs.set("at", int64_t{1});
    replace(id, Op::Embedding, std::move(attrs), {position_});
  }

  void product(int32_t id) {
    const Node& node = graph_.node(id);
    if (graph_.node(node.inputs[1].node).op != Op::Param) refuse(node, "multiplies tokens with each other");
    Attrs attrs = node.attrs;
    if (batch_ * options_.rows <= kFewRows) attrs.set("few", int64_t{1});
    if (id == wide_) attrs.set("wide", int64_t{1});
    replace(id, Op::Matmul, std::move(attrs));
  }

  // Leading dims that count tokens.
  void reshape(int32_t id) {
    const Node& node = graph_.node(id);
    std::vector<int64_t> dims = node.outputs[0].shape.dims();
    if (dims.size() > 1 && dims[0] == batch_ && dims[1] == context_) {
      dims[1] = options_.rows;
    } else if (dims[0] == batch_ * context_) {
      dims[0] = batch_ * options_.rows;
    } else {
      refuse(node, "does not keep tokens apart");
    }
    replace(id, Op::Reshape, {{"shape", shape_attr(Shape(dims))}});
  }

  Graph only_the_cache() {
    const Graph whole = std::move(made());
    std::set<int32_t> ends;
    for (int32_t id = 0; id < whole.num_nodes(); ++id) {
      if (whole.node(id).op == Op::CachedAttention) ends.insert(id);
    }
    Rewrite kept(whole);
    for (int32_t id : with_sources(whole, std::move(ends))) kept.copy(id);
    return kept.finish();
  }

  const Graph& graph_;
  const CacheOptions& options_;
  Rewrite rewrite_;
  int64_t batch_ = 0, context_ = 0, positions_ = 0;
  Value logits_, position_;
  int32_t wide_ = -1;
  int64_t count_ = 0;  // of attentions so far
};

}  // namespace

Graph with_cache(const Graph& forward, const CacheOptions& options) {
  return Caching(forward, options).run();
}

}  // namespace tandem
