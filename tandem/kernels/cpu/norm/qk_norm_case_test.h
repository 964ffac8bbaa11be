// Calls of the norms of queries and keys over one shape, for the tests of every device.
#pragma once

#include "tandem/kernels/cpu/norm/norm_data_test.h"

namespace tandem::cpu {

struct QkNormCase {
  int64_t rows, heads, kv_heads, head_dim;
  bool all, plus_one;
  DType storage;

  int64_t q_width() const { return all ? heads * head_dim : head_dim; }
  int64_t k_width() const { return all ? kv_heads * head_dim : head_dim; }
  TensorType qkv() const { return {storage, {1, rows, (heads + 2 * kv_heads) * head_dim}}; }
  TensorType rstd() const { return {DType::F32, {rows, all ? 2 : heads + kv_heads}}; }
  Attrs attrs() const {
    Attrs attrs{{"heads", heads}, {"kv_heads", kv_heads}, {"eps", 1e-5}};
    if (all) attrs.set("all", int64_t{1});
    if (plus_one) attrs.set("plus_one", int64_t{1});
    return attrs;
  }
  Call forward(int y_shares = -1) const {
    return {Op::QkNorm,
            {random_tensor(storage, qkv().shape, 1, 1.5), random_tensor(storage, {q_width()}, 2, 0.5, 0.7),
             random_tensor(storage, {k_width()}, 3, 0.5, 0.7)},
            {qkv(), rstd()},
            {y_shares, -1},
            attrs()};
  }
  Call backward(int dx_shares = -1) const {
    const Call call = forward();
    return {
        Op::QkNormGrad,
        {random_tensor(storage, qkv().shape, 4), call.in[0], call.in[1], call.in[2], run_reference(call)[1],
         random_tensor(DType::F32, {q_width()}, 5), random_tensor(DType::F32, {k_width()}, 6)},
        {qkv(), {DType::F32, {q_width()}}, {DType::F32, {k_width()}}},
        {dx_shares, 5, 6},
        attrs()};
  }
};

}  // namespace tandem::cpu
