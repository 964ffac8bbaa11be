#include "tandem/compile/passes/precision.h"

#include "tandem/base/error.h"
#include "tandem/compile/rewrite.h"
#include "tandem/ir/infer.h"

namespace tandem {

PrecisionPolicy precision_policy(Precision precision) {
  switch (precision) {
    case Precision::Fp32: return {};
    case Precision::Bf16: return {.storage = DType::BF16};
    case Precision::Fp16: return {.storage = DType::F16};
    case Precision::Fp8: return {.storage = DType::BF16, .fp8 = true};
  }
  TANDEM_CHECK(false, "precision {}", static_cast<int>(precision));
  return {};
}

namespace {

// What a value is another shape of.
Value reshaped_from(const Graph& graph, Value value) {
  while (graph.node(value.node).op == Op::Reshape) value = graph.node(value.node).inputs[0];
  return value;
}

// An embedding's partial sums stay narrow: one rank has the row (and a rank the position's), the others
// zeros, so that nothing is rounded but the sum.
Graph widen_partial_sums(Graph graph, DType storage) {
  for (int32_t id = 0; id < graph.num_nodes(); ++id) {
    Node& node = graph.node(id);
    if (node.op != Op::ReduceScatter && node.op != Op::Matmul) continue;
    Node& source = graph.node(reshaped_from(graph, node.inputs[0]).node);
    if (node.op == Op::Matmul && source.op == Op::AllGather) node.attrs.set("wide_grad", int64_t{1});
    if (node.op != Op::ReduceScatter || source.op != Op::Matmul) continue;
    source.attrs.set("wide", int64_t{1});
    node.attrs.set("dtype", std::string(dtype_name(storage)));
  }
  return graph;
}

Graph store(const Graph& forward, const PrecisionPolicy& policy) {
  Rewrite rewrite(forward);
  for (int32_t id = 0; id < forward.num_nodes(); ++id) {
    const Node& node = forward.node(id);
    const int32_t copy = rewrite.copy(id);
    Node& made = rewrite.graph().node(copy);
    if (node.op == Op::Param) made.outputs[0].dtype = policy.storage;
    if (node.op == Op::Recv && is_float(made.outputs[0].dtype)) {  // an activation, of the chunk before
      made.outputs[0].dtype = policy.storage;
      made.attrs.set("dtype", std::string(dtype_name(policy.storage)));
    }
    if (node.op == Op::State && policy.storage == DType::F64) made.outputs[0].dtype = DType::F64;
    if (node.op == Op::Input && is_float(node.outputs[0].dtype) && node.outputs[0].dtype != policy.storage) {
      const Attrs attrs{{"dtype", std::string(dtype_name(policy.storage))}};
      rewrite.set({id, 0}, append(rewrite.graph(), Op::Cast, {{copy, 0}}, attrs));
    }
  }
  return rewrite.finish();
}

}  // namespace

Graph apply_precision(const Graph& forward, const PrecisionPolicy& policy) {
  const bool widens = is_half(policy.storage) && policy.partial == DType::F32;
  return store(widens ? widen_partial_sums(forward, policy.storage) : forward, policy);
}

}  // namespace tandem
