// Calls of the norms and their gradients, for the tests of every device. Statistics come from the reference.
#pragma once

#include "tandem/kernels/cpu/pointwise/pointwise_test.h"

namespace tandem::cpu {

inline std::vector<HostTensor> run_reference(const Call& call) {
  return run(reference_kernel(call.op), call, pool_of(1));
}

inline const Attrs kEps{{"eps", 1e-5}};

// What a norm reads, for both kinds: a residual pair with a mean away from zero, and gradients.
struct NormData {
  NormData(DType storage_type, int64_t num_rows, int64_t row_width)
      : storage(storage_type),
        rows(num_rows),
        a(random_tensor(storage, {rows, row_width}, 1, 1.5, 0.5)),
        b(random_tensor(storage, {rows, row_width}, 2)),
        gamma(random_tensor(storage, {row_width}, 3, 0.2, 1)),
        beta(random_tensor(storage, {row_width}, 4)),
        dy(random_tensor(storage, {rows, row_width}, 5)),
        dres(random_tensor(storage, {rows, row_width}, 6)),
        acc_dgamma(random_tensor(DType::F32, {row_width}, 7)),
        acc_dbeta(random_tensor(DType::F32, {row_width}, 8)) {}

  TensorType row_type() const { return a.type; }
  TensorType stat_type() const { return {DType::F32, {rows}}; }

  Call layer_norm(const HostTensor& x) const {
    return {Op::LayerNorm, {x, gamma, beta}, {row_type(), stat_type(), stat_type()}, {-1, -1, -1}, kEps};
  }
  Call add_layer_norm() const {
    return {Op::AddLayerNorm,
            {a, b, gamma, beta},
            {row_type(), row_type(), stat_type(), stat_type()},
            {-1, -1, -1, -1},
            kEps};
  }
  Call rms_norm(const HostTensor& x) const {
    return {Op::RmsNorm, {x, gamma}, {row_type(), stat_type()}, {-1, -1}, kEps};
  }
  Call add_rms_norm() const {
    return {Op::AddRmsNorm, {a, b, gamma}, {row_type(), row_type(), stat_type()}, {-1, -1, -1}, kEps};
  }
  Call add(const HostTensor& x, const HostTensor& y) const {
    return {Op::Add, {x, y}, {row_type()}, {-1}, {}};
  }

  Call layer_norm_grad(bool with_dres, int dx_shares = -1) const {
    const auto forward = run_reference(layer_norm(a));
    Call call{Op::LayerNormGrad,
              {dy, a, gamma, forward[1], forward[2], acc_dgamma, acc_dbeta},
              {row_type(), acc_dgamma.type, acc_dbeta.type},
              {dx_shares, 5, 6},
              {}};
    if (with_dres) call.in.push_back(dres);
    return call;
  }
  Call rms_norm_grad(bool with_dres, int dx_shares = -1) const {
    const auto forward = run_reference(rms_norm(a));
    Call call{Op::RmsNormGrad,
              {dy, a, gamma, forward[1], acc_dgamma},
              {row_type(), acc_dgamma.type},
              {dx_shares, 4},
              {}};
    if (with_dres) call.in.push_back(dres);
    return call;
  }

  DType storage;
  int64_t rows;
  HostTensor a, b, gamma, beta, dy, dres, acc_dgamma, acc_dbeta;
};

// The same call of a gradient, which also gives the norm's output.
inline Call with_again(Call call, const NormData& data) {
  if (call.op == Op::LayerNormGrad) call.in.insert(call.in.begin() + 7, data.beta);
  call.out.push_back(data.row_type());
  call.shares.push_back(-1);
  call.attrs.set("again", int64_t{1});
  return call;
}

// The same call of an RMS norm or its gradient, times 1 + gamma.
inline Call with_plus_one(Call call) {
  call.attrs.set("plus_one", int64_t{1});
  return call;
}

// A row of one element has no spread: rstd is 1 / sqrt(eps), which magnifies every rounding.
inline double slack_of(const NormData& data) {
  const double ulp = is_half(data.storage) ? relative_tolerance(data.storage) : 0;
  return (data.a.type.shape.last() == 1 ? 5e-3 : 2e-5) + ulp;
}

}  // namespace tandem::cpu
