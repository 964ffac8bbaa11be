// What an update does with whole matrices: directions, which are made element by element, and the parts of
// Newton and Schulz's iteration that are no products. An element's bits do not depend on where a tensor is
// cut, and directions have the bits of a GPU's.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "tandem/ir/placed_boxes.h"
#include "tandem/kernels/cpu/optimizer/optimizer_kernels.h"
#include "tandem/kernels/cpu/pointwise/pointwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tandem/kernels/cpu/optimizer/matrix_update.cpp"
#include "hwy/foreach_target.h"
#include "tandem/kernels/cpu/pointwise/pointwise-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {
namespace {

template <typename G, typename U>
void direct_elems(const OptimizerStep<Muon>& step, bool keep, G* g, float* m, U* u, int64_t elems) {
  const FloatTag d;
  const auto factor = hn::Set(d, step.grad_factor), largest = hn::Set(d, step.largest);
  const auto momentum = hn::Set(d, step.own.momentum), rest = hn::Set(d, step.own.rest);
  for_each_vector(static_cast<size_t>(elems), [&](size_t i, auto part) {
    const auto scaled = hn::Mul(load_float(d, g + i, part), factor);
    const auto fresh = hn::Mul(rest, hn::Min(hn::Max(scaled, hn::Neg(largest)), largest));
    const auto mean = hn::Add(hn::Mul(momentum, load_float(d, m + i, part)), fresh);
    store_float(d, mean, m + i, part);
    store_float(d, hn::Add(hn::Mul(momentum, mean), fresh), u + i, part);
    if (!keep) store_float(d, hn::Zero(d), g + i, part);
  });
}

void muon_direction(const KernelArgs& args, const OptimizerStep<Muon>& step, bool keep, int64_t begin,
                    int64_t end) {
  cpu::with_storage(args.in[2].type.dtype, [&]<typename G>(G) {
    cpu::with_storage(args.out[0].type.dtype, [&]<typename U>(U) {
      G* g = args.in[2].as<G>() + begin;
      direct_elems(step, keep, g, args.in[3].as<float>() + begin, args.out[0].as<U>() + begin, end - begin);
    });
  });
}

// dst = factor src
void scale_elems(DType dtype, float factor, const void* src, void* dst, int64_t elems) {
  cpu::with_storage(dtype, [&]<typename S>(S) {
    const FloatTag d;
    const auto* from = static_cast<const S*>(src);
    auto* to = static_cast<S*>(dst);
    for_each_vector(static_cast<size_t>(elems), [&](size_t i, auto part) {
      store_float(d, hn::Mul(hn::Set(d, factor), load_float(d, from + i, part)), to + i, part);
    });
  });
}

void add_weighted(const KernelArgs& args, float p, float q, int64_t begin, int64_t end) {
  cpu::with_storage(args.out[0].type.dtype, [&]<typename S>(S) {
    const FloatTag d;
    const S* a = args.in[0].as<S>() + begin;
    const S* b = args.in[1].as<S>() + begin;
    S* y = args.out[0].as<S>() + begin;
    for_each_vector(static_cast<size_t>(end - begin), [&](size_t i, auto part) {
      const auto left = hn::Mul(hn::Set(d, p), load_float(d, a + i, part));
      store_float(d, hn::Add(left, hn::Mul(hn::Set(d, q), load_float(d, b + i, part))), y + i, part);
    });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem {
HWY_EXPORT(muon_direction);
HWY_EXPORT(scale_elems);
HWY_EXPORT(add_weighted);

namespace cpu {
namespace {

bool supports_direction(const CallSignature& call) {
  return call.in[0].dtype == DType::F32 && call.in[1].dtype == DType::F64 && is_storage(call.in[2].dtype) &&
         call.in[3].dtype == DType::F32 && is_storage(call.out[0].dtype);
}

void run_direction(const KernelArgs& args, Stream& stream) {
  const auto step = optimizer_step<Muon>(args.in[0].as<float>(), args.in[1].as<double>());
  const bool keep = args.attrs.integer_or("keep", 0) != 0;
  const auto make = HWY_DYNAMIC_DISPATCH(muon_direction);
  const auto zero = [](const TensorArg& tensor, int64_t begin, int64_t end) {
    const int64_t width = dtype_bytes(tensor.type.dtype);
    std::memset(tensor.as<std::byte>() + begin * width, 0, static_cast<size_t>((end - begin) * width));
  };
  for_pieces(stream.pool(), args.in[2].elems(), kElemsPerTask, [&](int64_t begin, int64_t end, int) {
    if (!step.skip) return make(args, step, keep, begin, end);
    zero(args.out[0], begin, end);
    if (!keep) zero(args.in[2], begin, end);
  });
}

bool supports_matrix(const CallSignature& call) {
  return std::all_of(call.in.begin(), call.in.end(),
                     [&](const TensorType& in) { return in.dtype == call.out[0].dtype; }) &&
         is_storage(call.out[0].dtype);
}

// A row of a matrix as it lies in flat memory: elements [begin, begin + elems) of it from `at` on.
struct Segment {
  int64_t begin, elems, at;
};
template <typename Visit>
void for_segments(const std::vector<PlacedBox>& parts, int64_t row, Visit&& visit) {
  for (const auto& [offset, box] : parts) {
    if (row < box.row_begin || row >= box.row_end) continue;
    visit(Segment{box.col_begin, box.cols(), offset + (row - box.row_begin) * box.cols()});
  }
}

size_t row_sums(const CallSignature& call, int) {
  return static_cast<size_t>(whole_box(call.out[0].shape).row_end) * sizeof(double);
}

void run_normalize(const KernelArgs& args, Stream& stream) {
  const std::vector<PlacedBox> parts = parse_placed(args.attrs.text("parts"));
  const Box whole = whole_box(args.out[0].type.shape);
  const DType dtype = args.out[0].type.dtype;
  const int64_t width = dtype_bytes(dtype);
  const auto* src = args.in[0].as<const std::byte>();
  auto* dst = args.out[0].as<std::byte>();
  auto* sums = reinterpret_cast<double*>(args.workspace.data());
  for_row_groups(stream.pool(), whole.rows(), whole.cols(), [&](int64_t first, int64_t last, int) {
    for (int64_t row = first; row < last; ++row) {
      sums[row] = 0;
      for_segments(parts, row, [&](const Segment& segment) {
        sums[row] += sum_of_squares(dtype, src + segment.at * width, segment.elems);
      });
    }
  });
  double sum = 0;
  for (int64_t row = 0; row < whole.rows(); ++row) sum += sums[row];
  const auto factor = static_cast<float>(1 / std::max(std::sqrt(sum), args.attrs.real("eps")));
  const auto scale = HWY_DYNAMIC_DISPATCH(scale_elems);
  for_row_groups(stream.pool(), whole.rows(), whole.cols(), [&](int64_t first, int64_t last, int) {
    for (int64_t row = first; row < last; ++row) {
      for_segments(parts, row, [&](const Segment& segment) {
        scale(dtype, factor, src + segment.at * width, dst + (row * whole.cols() + segment.begin) * width,
              segment.elems);
      });
    }
  });
}

void run_place(const KernelArgs& args, Stream& stream) {
  const std::vector<PlacedBox> parts = parse_placed(args.attrs.text("parts"));
  const Box whole = whole_box(args.in[1].type.shape);
  const int64_t width = dtype_bytes(args.out[0].type.dtype);
  const auto* src = args.in[1].as<const std::byte>();
  auto* dst = args.out[0].as<std::byte>();
  for_row_groups(stream.pool(), whole.rows(), whole.cols(), [&](int64_t first, int64_t last, int) {
    for (int64_t row = first; row < last; ++row) {
      for_segments(parts, row, [&](const Segment& segment) {
        std::memcpy(dst + segment.at * width, src + (row * whole.cols() + segment.begin) * width,
                    static_cast<size_t>(segment.elems * width));
      });
    }
  });
}

void run_weighted_sum(const KernelArgs& args, Stream& stream) {
  const auto p = static_cast<float>(args.attrs.real("p")), q = static_cast<float>(args.attrs.real("q"));
  const auto add = HWY_DYNAMIC_DISPATCH(add_weighted);
  for_pieces(stream.pool(), args.out[0].elems(), kElemsPerTask,
             [&](int64_t begin, int64_t end, int) { add(args, p, q, begin, end); });
}

}  // namespace

void add_matrix_update_kernels(KernelRegistry& registry) {
  registry.add({"cpu.muon_direction", Op::MuonDirection, supports_direction, nullptr, run_direction});
  registry.add({"cpu.normalize_matrix", Op::NormalizeMatrix, supports_matrix, row_sums, run_normalize});
  registry.add({"cpu.place_matrix", Op::PlaceMatrix, supports_matrix, nullptr, run_place});
  registry.add({"cpu.weighted_sum", Op::WeightedSum, supports_matrix, nullptr, run_weighted_sum});
}

}  // namespace cpu
}  // namespace tandem
#endif
