// The graphs whose patterns cuDNN's attention engines recognise. They look for these very ops: the engines
// fuse, and skip what the causal mask hides, only where the mask is a select by row >= column.
#include <cmath>
#include <limits>

#include "tandem/kernels/cuda/attention/fused_attention.h"

namespace tandem::cuda {
namespace {

using cudnn::Graph;
using cudnn::Layout;
using Tensor = Graph::Tensor;

cudnnDataType_t data_type(DType type) { return type == DType::BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF; }

// The views of packed rows, [B,heads,T,head_dim] or, transposed, [B,heads,head_dim,T].
Layout packed(const FusedAttention& s, int64_t heads) {
  return {{s.batch, heads, s.time, s.head_dim}, {s.time * s.width(), s.head_dim, s.width(), 1}};
}
Layout packed_transposed(const FusedAttention& s, int64_t heads) {
  return {{s.batch, heads, s.head_dim, s.time}, {s.time * s.width(), s.head_dim, 1, s.width()}};
}
Layout output(const FusedAttention& s) {
  const int64_t row = s.heads * s.head_dim;
  return {{s.batch, s.heads, s.time, s.head_dim}, {s.time * row, s.head_dim, row, 1}};
}
Layout dense(const FusedAttention& s, int64_t last) {
  return {{s.batch, s.heads, s.time, last}, {s.heads * s.time * last, s.time * last, last, 1}};
}
Layout scores(const FusedAttention& s) { return dense(s, s.time); }
Layout scores_transposed(const FusedAttention& s) {
  Layout layout = scores(s);
  std::swap(layout.strides[2], layout.strides[3]);
  return layout;
}
Layout statistics(const FusedAttention& s) { return dense(s, 1); }

float score_scale(const FusedAttention& s) {
  if (s.scale != 0) return s.scale;
  return static_cast<float>(1 / std::sqrt(static_cast<double>(s.head_dim)));
}

Tensor product(Graph& graph, Tensor a, Tensor b, Layout layout) {
  const Tensor out = graph.temporary(std::move(layout));
  graph.matmul(a, b, out);
  return out;
}

// Minus infinity where the key comes after the query, or too long before it.
Tensor hide_unseen(Graph& graph, const FusedAttention& s, Tensor x) {
  const auto select = [&](Tensor seen) {
    const Tensor hidden = graph.scalar(-std::numeric_limits<float>::infinity());
    return graph.pointwise(CUDNN_POINTWISE_BINARY_SELECT, {x, hidden, seen});
  };
  if (s.causal) {
    const Tensor row = graph.index(x, 2), column = graph.index(x, 3);
    x = select(
        graph.pointwise(CUDNN_POINTWISE_CMP_GE, {row, column}, CUDNN_DATA_BOOLEAN, CUDNN_DATA_BOOLEAN));
  }
  if (s.window != 0) {
    const Tensor row = graph.index(x, 2), column = graph.index(x, 3);
    const Tensor end =
        graph.pointwise(CUDNN_POINTWISE_ADD, {column, graph.scalar(static_cast<float>(s.window))});
    x = select(graph.pointwise(CUDNN_POINTWISE_CMP_GT, {end, row}, CUDNN_DATA_BOOLEAN, CUDNN_DATA_BOOLEAN));
  }
  return x;
}

// The hyperbolic tangent of scores over their cap.
Tensor bent(Graph& graph, const FusedAttention& s, Tensor score) {
  const Tensor small = graph.pointwise(CUDNN_POINTWISE_DIV, {score, graph.scalar(s.cap)});
  return graph.pointwise(CUDNN_POINTWISE_TANH_FWD, {small});
}

// The gradient of keys or values: its product is made for each query head, then summed over a group's.
void product_summed_over_groups(Graph& graph, const FusedAttention& s, Tensor a, Tensor b, Tensor out) {
  if (s.heads == s.kv_heads) return graph.matmul(a, b, out);
  const Tensor each = graph.temporary(dense(s, s.head_dim), data_type(s.type));
  graph.matmul(a, b, each);
  graph.reduce(CUDNN_REDUCE_TENSOR_ADD, each, out);
}

}  // namespace

Graph fused_attention_graph(const FusedAttention& s) {
  const cudnnDataType_t type = data_type(s.type);
  Graph graph;
  const Tensor q = graph.tensor(packed(s, s.heads), type);
  const Tensor k_transposed = graph.tensor(packed_transposed(s, s.kv_heads), type);
  const Tensor v = graph.tensor(packed(s, s.kv_heads), type);
  const Tensor out = graph.tensor(output(s), type);
  const Tensor lse = graph.tensor(statistics(s), CUDNN_DATA_FLOAT);

  Tensor score = product(graph, q, k_transposed, scores(s));
  score = graph.pointwise(CUDNN_POINTWISE_MUL, {score, graph.scalar(score_scale(s))});
  if (s.cap != 0) score = graph.pointwise(CUDNN_POINTWISE_MUL, {bent(graph, s, score), graph.scalar(s.cap)});
  score = hide_unseen(graph, s, score);

  const Tensor largest = graph.temporary(statistics(s)), sum = graph.temporary(statistics(s));
  graph.reduce(CUDNN_REDUCE_TENSOR_MAX, score, largest);
  const Tensor exponential =
      graph.pointwise(CUDNN_POINTWISE_EXP, {graph.pointwise(CUDNN_POINTWISE_SUB, {score, largest})});
  graph.reduce(CUDNN_REDUCE_TENSOR_ADD, exponential, sum);
  graph.pointwise(CUDNN_POINTWISE_ADD, {largest, graph.pointwise(CUDNN_POINTWISE_LOG, {sum})}, lse);
  const Tensor probability = graph.pointwise(CUDNN_POINTWISE_DIV, {exponential, sum}, type);
  graph.matmul(probability, v, out);
  return graph;
}

// With p = exp(score - lse) and d = dout . out: dv = p^T dout, dscore = p (dout v^T - d).
Graph fused_attention_grad_graph(const FusedAttention& s) {
  const cudnnDataType_t type = data_type(s.type);
  Graph graph;
  const Tensor q = graph.tensor(packed(s, s.heads), type);
  const Tensor k_transposed = graph.tensor(packed_transposed(s, s.kv_heads), type);
  const Tensor v_transposed = graph.tensor(packed_transposed(s, s.kv_heads), type);
  const Tensor out = graph.tensor(output(s), type);
  const Tensor dout = graph.tensor(output(s), type);
  const Tensor lse = graph.tensor(statistics(s), CUDNN_DATA_FLOAT);
  const Tensor dq = graph.tensor(packed(s, s.heads), type);
  const Tensor dk = graph.tensor(packed(s, s.kv_heads), type);
  const Tensor dv = graph.tensor(packed(s, s.kv_heads), type);
  const Tensor row_sums = graph.tensor(statistics(s), CUDNN_DATA_FLOAT);
  const Tensor scale = graph.scalar(score_scale(s));

  const Tensor dout_out = graph.temporary(dense(s, s.head_dim)), d = graph.temporary(statistics(s));
  graph.pointwise(CUDNN_POINTWISE_MUL, {dout, out}, dout_out);
  graph.reduce(CUDNN_REDUCE_TENSOR_ADD, dout_out, d);
  graph.pointwise(CUDNN_POINTWISE_MUL, {d, graph.scalar(1)}, row_sums);  // where dropout would scale

  Tensor score = product(graph, q, k_transposed, scores(s));
  score = graph.pointwise(CUDNN_POINTWISE_MUL, {score, scale});
  Tensor tangent = {};
  if (s.cap != 0) {
    tangent = bent(graph, s, score);
    score = graph.pointwise(CUDNN_POINTWISE_MUL, {tangent, graph.scalar(s.cap)});
  }
  score = graph.pointwise(CUDNN_POINTWISE_SUB, {score, lse});
  score = hide_unseen(graph, s, score);
  const Tensor p = graph.pointwise(CUDNN_POINTWISE_EXP, {score});
  const Tensor p_transposed = graph.temporary(scores_transposed(s), type);
  graph.reshape(p, p_transposed);
  product_summed_over_groups(graph, s, p_transposed, dout, dv);

  Tensor dscore = product(graph, dout, v_transposed, scores(s));
  dscore = graph.pointwise(CUDNN_POINTWISE_SUB, {dscore, row_sums});
  dscore = graph.pointwise(CUDNN_POINTWISE_MUL, {dscore, p});
  if (s.cap != 0) {  // the slope of the hyperbolic tangent
    const Tensor square = graph.pointwise(CUDNN_POINTWISE_MUL, {tangent, tangent});
    const Tensor slope = graph.pointwise(CUDNN_POINTWISE_SUB, {graph.scalar(1), square});
    dscore = graph.pointwise(CUDNN_POINTWISE_MUL, {dscore, slope});
  }
  dscore = graph.pointwise(CUDNN_POINTWISE_MUL, {dscore, scale});
  const Tensor dscore_transposed = graph.temporary(scores_transposed(s), type);
  graph.reshape(dscore, dscore_transposed);
  product_summed_over_groups(graph, s, dscore_transposed, q, dk);

  const Tensor k = graph.temporary(packed(s, s.kv_heads), type);
  graph.reshape(k_transposed, k);
  if (s.deterministic) {
    graph.matmul(dscore, k, dq);
  } else {
    const Tensor dq_sums = graph.tensor(dense(s, s.head_dim), CUDNN_DATA_FLOAT);
    graph.matmul(dscore, k, dq_sums);
    graph.pointwise(CUDNN_POINTWISE_IDENTITY, {dq_sums}, dq);
  }
  return graph;
}

}  // namespace tandem::cuda
