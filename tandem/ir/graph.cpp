#include "tandem/ir/graph.h"

#include "tandem/base/error.h"

namespace tandem {

Value Graph::add(Node node) {
  if (is_leaf(node.op)) leaves_.try_emplace(node.name, num_nodes());
  nodes_.push_back(std::move(node));
  return {num_nodes() - 1, 0};
}

const TensorType& Graph::type(Value value) const {
  return node(value.node).outputs.at(static_cast<size_t>(value.index));
}

Value Graph::find(std::string_view leaf_name) const {
  const auto it = leaves_.find(leaf_name);
  return it == leaves_.end() ? Value{} : Value{it->second, 0};
}

bool is_leaf(Op op) { return op == Op::Input || op == Op::Param || op == Op::State; }

bool is_transient(const Node& node) {
  return node.op == Op::State && node.attrs.integer_or("transient", 0) != 0;
}

namespace {

// `need`, where there is one, is the last input and the last output.
int aliased_need(const Node& node, int index) {
  const int64_t tensors = node.attrs.integer("rows") + node.attrs.integer("columns");
  return index < tensors ? -1 : static_cast<int>(node.inputs.size()) - 1;
}

// Of what a gradient may have beyond its own: the sums, which come last, are in place, and y is not.
int aliased_sums(const Node& node, int index) {
  const bool last = index + 1 == static_cast<int>(node.outputs.size());
  return last && node.attrs.integer_or("sums", 0) != 0 ? static_cast<int>(node.inputs.size()) - 1 : -1;
}

}  // namespace

int aliased_input(const Node& node, int index) {
  switch (node.op) {
    case Op::MatmulAcc:
    case Op::Fp8MatmulAcc:
    case Op::Conv2dGradWeight:
    case Op::BiasGrad:
    case Op::EmbeddingGrad:
    case Op::PositionGrad:
    case Op::Reshape:
    case Op::View:
    case Op::Join:
    case Op::AllReduce:
    case Op::Send:
    case Op::Rope:
    case Op::RopeGrad:
    case Op::AddStats:
    case Op::NextLossScale: return 0;
    case Op::MatmulBiasAcc:
    case Op::Fp8Ranges: return index;
    case Op::Fp8Quantize:
    case Op::Fp8Swiglu:
    case Op::Fp8SwigluGrad: return aliased_need(node, index);
    case Op::CrossEntropyGrad:
    case Op::VocabLossGrad: return index == 0 ? 0 : -1;
    case Op::Zeros: return node.inputs.empty() ? -1 : 0;
    case Op::AllGather:
    case Op::ReduceScatter:
    case Op::Copy: return node.inputs.size() > 1 ? 1 : -1;
    case Op::BatchNormGradStats: return index == 0 ? -1 : index + 3;
    case Op::LinearCrossEntropyGrad: return index == 2 ? 4 : -1;
    case Op::LayerNormGrad:
      if (index > 2) return aliased_sums(node, index);
      return index == 0 ? -1 : index + 4;
    case Op::BatchNormGrad:
    case Op::GroupNormGrad: return index == 0 ? -1 : index + 4;
    case Op::AttentionGrad: return index == 0 ? -1 : aliased_sums(node, index);
    case Op::RmsNormGrad:
      if (index > 1) return aliased_sums(node, index);
      return index == 0 ? -1 : 4;
    case Op::BatchNorm:
    case Op::BatchNormApply: return index < 3 ? -1 : index;  // running statistics
    default: return optimizer_of(node.op) ? index + 2 : -1;
  }
}

int64_t aliased_offset(const Node& node) {
  return node.op == Op::View ? node.attrs.integer("begin") * dtype_bytes(node.outputs[0].dtype) : 0;
}

bool is_view(Op op) { return op == Op::Reshape || op == Op::View || op == Op::Join; }

bool is_collective(Op op) { return op >= Op::AllGather && op <= Op::Recv; }

int reusable_input(const Node& node, int index) {
  switch (node.op) {
    case Op::Add:
    case Op::Scale:
    case Op::Gelu:
    case Op::GeluGrad:
    case Op::Relu:
    case Op::ReluGrad: return 0;
    case Op::LayerNormGrad:
    case Op::RmsNormGrad: return index == 0 ? 0 : -1;
    case Op::SwigluGrad: return index == 0 ? 1 : 0;
    default: return -1;
  }
}

}  // namespace tandem
