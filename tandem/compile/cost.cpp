#include "tandem/compile/cost.h"

#include <vector>

#include "tandem/ir/infer.h"

namespace tandem {
namespace {

int64_t product_flops(const TensorType& a, const TensorType& y, bool trans_a) {
  const int64_t inner = trans_a ? a.shape.rows() : a.shape.last();
  return 2 * y.shape.elems() * inner;
}

// Two products forward (scores, values), five backward; causal attention does half of each.
int64_t attention_flops(const Node& node, const TensorType& qkv, int64_t products) {
  const int64_t heads = node.attrs.integer("heads"), kv_heads = node.attrs.integer("kv_heads");
  const int64_t head_dim = qkv.shape[2] / (heads + 2 * kv_heads);
  const int64_t full = products * 2 * qkv.shape[0] * heads * qkv.shape[1] * qkv.shape[1] * head_dim;
  return node.attrs.integer("causal") != 0 ? full / 2 : full;
}

int64_t node_flops(const Node& node, std::span<const TensorType> in) {
  switch (node.op) {
    case Op::Matmul:
    case Op::MatmulGeluGrad:
    case Op::MatmulGelu: return product_flops(in[0], node.outputs[0], node.attrs.integer("trans_a") != 0);
    case Op::MatmulAcc: return product_flops(in[1], node.outputs[0], node.attrs.integer("trans_a") != 0);
    case Op::Fp8Matmul: return product_flops(in[0], node.outputs[0], false);
    case Op::Fp8MatmulAcc: return product_flops(in[1], node.outputs[0], false);
    case Op::MatmulBiasAcc: return product_flops(in[2], node.outputs[0], true);
    case Op::Conv2d: return 2 * node.outputs[0].shape.elems() * (in[1].shape.elems() / in[1].shape[0]);
    case Op::Conv2dGradInput: return 2 * in[0].shape.elems() * (in[1].shape.elems() / in[1].shape[0]);
    case Op::Conv2dGradWeight:
      return 2 * in[2].shape.elems() * (in[0].shape.elems() / in[0].shape[0]);  // in[0]: acc
    case Op::Attention: return attention_flops(node, in[0], 2);
    case Op::AttentionGrad: return attention_flops(node, in[1], 5);
    case Op::LinearCrossEntropy: return 2 * in[0].shape.rows() * in[1].shape.elems();
    case Op::LinearCrossEntropyGrad: return 6 * in[0].shape.rows() * in[1].shape.elems();
    default: return 0;
  }
}

}  // namespace

Cost node_cost(const Node& node, std::span<const TensorType> in) {
  Cost cost{node_flops(node, in), 0};
  if (is_view(node.op)) return cost;
  for (const TensorType& type : in) cost.bytes += type.bytes();
  for (const TensorType& type : node.outputs) cost.bytes += type.bytes();
  if (node.op == Op::Embedding)
    cost.bytes = in[0].bytes() + 2 * node.outputs[0].bytes();  // only the rows read
  return cost;
}

int64_t forward_model_flops(const Graph& forward) {
  int64_t flops = 0;
  for (const Node& node : forward.nodes()) {
    if (is_leaf(node.op)) continue;
    flops += node_flops(node, input_types(forward, node));
  }
  return flops;
}

}  // namespace tandem
