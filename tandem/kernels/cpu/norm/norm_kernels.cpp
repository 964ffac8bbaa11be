#include "tandem/kernels/cpu/norm/norm_kernels.h"

#include "tandem/kernels/cpu/pointwise/bias_grad.h"
#include "tandem/kernels/cpu/pointwise/pointwise.h"
#include "tandem/kernels/cpu/register.h"

namespace tandem::cpu {
namespace {

// Whether tensors [first, last) exist and all have type `dtype`.
bool all_of_type(DType dtype, const std::vector<TensorType>& types, size_t first, size_t last) {
  return last <= types.size() && std::all_of(types.begin() + static_cast<ptrdiff_t>(first),
                                             types.begin() + static_cast<ptrdiff_t>(last),
                                             [=](const TensorType& type) { return type.dtype == dtype; });
}

bool supports_forward(const CallSignature& call, size_t num_in, size_t num_storage_out, size_t num_stats) {
  if (call.in.size() != num_in || call.out.size() != num_storage_out + num_stats) return false;
  const DType storage = call.in[0].dtype;
  return is_storage(storage) && all_of_type(storage, call.in, 0, num_in) &&
         all_of_type(storage, call.out, 0, num_storage_out) &&
         all_of_type(DType::F32, call.out, num_storage_out, call.out.size());
}

constexpr size_t layer_only(NormKind kind) { return kind == NormKind::Layer ? 1 : 0; }

}  // namespace

template <NormKind kKind>
bool supports_norm(const CallSignature& call) {
  return supports_forward(call, 2 + layer_only(kKind), 1, 1 + layer_only(kKind));
}

template <NormKind kKind>
bool supports_add_norm(const CallSignature& call) {
  return supports_forward(call, 3 + layer_only(kKind), 2, 1 + layer_only(kKind));
}

template <NormKind kKind>
bool supports_norm_grad(const CallSignature& call) {
  const size_t num_sums = 1 + layer_only(kKind);
  const size_t first_acc = 3 + num_sums;
  const size_t first_dres = first_acc + num_sums;
  if (call.in.size() < first_dres || call.in.size() > first_dres + 1 || call.out.size() != 1 + num_sums)
    return false;
  const DType storage = call.in[0].dtype;
  for (size_t k = 0; k < num_sums; ++k) {
    const DType acc = call.in[first_acc + k].dtype;
    if (!is_storage(acc) || call.out[1 + k].dtype != acc) return false;
  }
  return is_storage(storage) && all_of_type(storage, call.in, 0, 3) &&
         all_of_type(DType::F32, call.in, 3, first_acc) &&
         all_of_type(storage, call.in, first_dres, call.in.size()) && call.out[0].dtype == storage;
}

size_t norm_workspace(const CallSignature& call, int num_threads) {
  return is_half(call.in[0].dtype) || adds_one(*call.attrs)
             ? NormScratch::bytes(call.in[0].shape.last(), num_threads)
             : 0;
}

template <NormKind kKind>
size_t norm_grad_workspace(const CallSignature& call, int) {
  const Shape& shape = call.in[0].shape;
  const int64_t num_sums = 1 + static_cast<int64_t>(layer_only(kKind));
  const int64_t num_params = is_half(call.in[0].dtype) || adds_one(*call.attrs) ? 1 : 0;  // gamma in fp32
  return static_cast<size_t>((RowChunks(shape.rows()).count * num_sums + num_params) * shape.last()) *
         sizeof(float);
}

template bool supports_norm<NormKind::Layer>(const CallSignature&);
template bool supports_norm<NormKind::Rms>(const CallSignature&);
template bool supports_add_norm<NormKind::Layer>(const CallSignature&);
template bool supports_add_norm<NormKind::Rms>(const CallSignature&);
template bool supports_norm_grad<NormKind::Layer>(const CallSignature&);
template bool supports_norm_grad<NormKind::Rms>(const CallSignature&);
template size_t norm_grad_workspace<NormKind::Layer>(const CallSignature&, int);
template size_t norm_grad_workspace<NormKind::Rms>(const CallSignature&, int);

void add_norm_kernels(KernelRegistry& registry) {
  add_layer_norm_kernels(registry);
  add_rms_norm_kernels(registry);
  add_qk_norm_kernels(registry);
  add_bias_grad_kernels(registry);
}

}  // namespace tandem::cpu
