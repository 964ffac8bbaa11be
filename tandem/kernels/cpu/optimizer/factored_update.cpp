// What an update does where mean squares are kept by rows and columns (optimizers/adafactor.h). Squares are
// added up in double, in an order that depends on the pieces' shapes only.
#include <algorithm>
#include <vector>

#include "tandem/ir/factored_parts.h"
#include "tandem/kernels/cpu/optimizer/optimizer_kernels.h"
#include "tandem/kernels/cpu/pointwise/pointwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tandem/kernels/cpu/optimizer/factored_update.cpp"
#include "hwy/foreach_target.h"
#include "tandem/kernels/cpu/pointwise/pointwise-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {
namespace {

// A stored gradient, unscaled and clipped.
template <typename G>
HWY_INLINE FloatVec read_gradient(const OptimizerStep<Adafactor>& step, const G* g, auto part) {
  const FloatTag d;
  const auto largest = hn::Set(d, step.largest);
  const auto scaled = hn::Mul(load_float(d, g, part), hn::Set(d, step.grad_factor));
  return hn::Min(hn::Max(scaled, hn::Neg(largest)), largest);
}

void square_values(const OptimizerStep<Adafactor>& step, DType dtype, const void* src, int64_t elems,
                   float* squares) {
  cpu::with_storage(dtype, [&]<typename G>(G) {
    const auto* g = static_cast<const G*>(src);
    for_each_vector(static_cast<size_t>(elems), [&](size_t i, auto part) {
      const auto x = read_gradient(step, g + i, part);
      store_float(FloatTag(), hn::Mul(x, x), squares + i, part);
    });
  });
}

// g over the root of its mean square, scale * squares.
void direct_values(const OptimizerStep<Adafactor>& step, float scale, const float* squares, DType dtype,
                   void* values, int64_t elems) {
  cpu::with_storage(dtype, [&]<typename G>(G) {
    const FloatTag d;
    auto* g = static_cast<G*>(values);
    const auto least = hn::Set(d, static_cast<float>(Adafactor::kEps * Adafactor::kEps));
    for_each_vector(static_cast<size_t>(elems), [&](size_t i, auto part) {
      const auto square = hn::Mul(hn::Set(d, scale), load_float(d, squares + i, part));
      const auto x = read_gradient(step, g + i, part);
      store_float(d, hn::Div(x, hn::Sqrt(hn::Max(square, least))), g + i, part);
    });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem {
HWY_EXPORT(square_values);
HWY_EXPORT(direct_values);

namespace cpu {
namespace {

constexpr int64_t kStrip = 256;  // columns at a time

OptimizerStep<Adafactor> step_of(const KernelArgs& args) {
  return optimizer_step<Adafactor>(args.in[0].as<float>(), args.in[1].as<double>());
}

// Gradients of a box, row by row.
struct BoxOf {
  const TensorArg& tensor;
  const PlacedBox& part;

  DType dtype() const { return tensor.type.dtype; }
  std::byte* at(int64_t row, int64_t col) const {
    const int64_t elem = part.offset + row * part.box.cols() + col;
    return tensor.as<std::byte>() + elem * dtype_bytes(dtype());
  }
};

double sum_of(const float* values, int64_t count) {
  double lanes[8] = {};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (int64_t lane = 0; lane < 8; ++lane) lanes[lane] += values[i + lane];
  }
  for (; i < count; ++i) lanes[0] += values[i];
  double sum = 0;
  for (double lane : lanes) sum += lane;
  return sum;
}

void add_vector(const OptimizerStep<Adafactor>& step, const BoxOf& box, double* sums, ThreadPool& pool) {
  const auto square = HWY_DYNAMIC_DISPATCH(square_values);
  for_pieces(pool, box.part.box.rows(), kElemsPerTask, [&](int64_t begin, int64_t end, int) {
    float squares[kStrip];
    for (int64_t at = begin; at < end; at += kStrip) {
      const int64_t count = std::min(kStrip, end - at);
      square(step, box.dtype(), box.at(at, 0), count, squares);
      for (int64_t i = 0; i < count; ++i) sums[box.part.box.row_begin + at + i] += squares[i];
    }
  });
}

void add_rows(const OptimizerStep<Adafactor>& step, const BoxOf& box, double* rows, ThreadPool& pool) {
  const auto square = HWY_DYNAMIC_DISPATCH(square_values);
  const int64_t cols = box.part.box.cols();
  for_row_groups(pool, box.part.box.rows(), cols, [&](int64_t first, int64_t last, int) {
    float squares[kStrip];
    for (int64_t row = first; row < last; ++row) {
      double sum = 0;
      for (int64_t col = 0; col < cols; col += kStrip) {
        const int64_t count = std::min(kStrip, cols - col);
        square(step, box.dtype(), box.at(row, col), count, squares);
        sum += sum_of(squares, count);
      }
      rows[box.part.box.row_begin + row] += sum;
    }
  });
}

void add_columns(const OptimizerStep<Adafactor>& step, const BoxOf& box, double* cols, ThreadPool& pool) {
  const auto square = HWY_DYNAMIC_DISPATCH(square_values);
  for_pieces(pool, box.part.box.cols(), kStrip, [&](int64_t begin, int64_t end, int) {
    float squares[kStrip];
    double sums[kStrip] = {};
    for (int64_t row = 0; row < box.part.box.rows(); ++row) {
      square(step, box.dtype(), box.at(row, begin), end - begin, squares);
      for (int64_t i = 0; i < end - begin; ++i) sums[i] += squares[i];
    }
    for (int64_t i = 0; i < end - begin; ++i) cols[box.part.box.col_begin + begin + i] += sums[i];
  });
}

bool supports_sums(const CallSignature& call) {
  if (call.in[0].dtype != DType::F32 || call.in[1].dtype != DType::F64) return false;
  return std::all_of(call.in.begin() + 2, call.in.end(),
                     [](const TensorType& g) { return is_storage(g.dtype); });
}

void run_sums(const KernelArgs& args, Stream& stream) {
  const OptimizerStep<Adafactor> step = step_of(args);
  const std::vector<FactoredPart> parts = parse_factored(args.attrs.text("parts"));
  auto* sums = args.out[0].as<double>();
  std::fill_n(sums, args.out[0].elems(), 0.0);
  for (size_t i = 0; i < parts.size(); ++i) {
    double* own = sums + parts[i].first;
    for (const PlacedBox& part : parts[i].boxes) {
      const BoxOf box{args.in[2 + i], part};
      if (parts[i].factors.is_vector()) {
        add_vector(step, box, own, stream.pool());
      } else {
        add_rows(step, box, own, stream.pool());
        add_columns(step, box, own + parts[i].factors.rows, stream.pool());
      }
    }
  }
}

bool supports_moments(const CallSignature& call) {
  return call.in[0].dtype == DType::F32 && call.in[1].dtype == DType::F64 &&
         std::all_of(call.in.begin() + 3, call.in.end(),
                     [](const TensorType& state) { return state.dtype == DType::F32; });
}

void run_moments(const KernelArgs& args, Stream&) {
  const OptimizerStep<Adafactor> step = step_of(args);
  if (step.skip) return;
  const std::vector<Factors> list = parse_factors(args.attrs.text("factors"));
  const auto* sums = args.in[2].as<double>();
  for (size_t i = 0; i < list.size(); ++i) {
    auto* state = args.out[i].as<float>();
    const auto move = [&](int64_t begin, int64_t end, int64_t counted) {
      for (int64_t at = begin; at < end; ++at, ++sums) {
        const double mean = *sums / static_cast<double>(counted), old = state[at];
        state[at] = static_cast<float>(old + step.own.share * (mean - old));
      }
    };
    move(0, list[i].rows, list[i].is_vector() ? 1 : list[i].cols);
    move(list[i].rows, list[i].size(), list[i].rows);
  }
}

bool supports_directions(const CallSignature& call) {
  if (call.in[0].dtype != DType::F32 || call.in[1].dtype != DType::F64) return false;
  for (size_t i = 2; i < call.in.size(); i += 2) {
    if (!is_storage(call.in[i].dtype) || call.in[i + 1].dtype != DType::F32) return false;
  }
  return true;
}

void direct_matrix(const OptimizerStep<Adafactor>& step, const BoxOf& part, const float* state, int64_t rows,
                   float mean, ThreadPool& pool) {
  const auto direct = HWY_DYNAMIC_DISPATCH(direct_values);
  const Box& box = part.part.box;
  for_row_groups(pool, box.rows(), box.cols(), [&](int64_t first, int64_t last, int) {
    for (int64_t row = first; row < last; ++row)
      direct(step, state[box.row_begin + row] / mean, state + rows + box.col_begin, part.dtype(),
             part.at(row, 0), box.cols());
  });
}

void run_directions(const KernelArgs& args, Stream& stream) {
  const OptimizerStep<Adafactor> step = step_of(args);
  if (step.skip) return;
  const auto direct = HWY_DYNAMIC_DISPATCH(direct_values);
  const std::vector<FactoredPart> parts = parse_factored(args.attrs.text("parts"));
  for (size_t i = 0; i < parts.size(); ++i) {
    const Factors& factors = parts[i].factors;
    const auto* state = args.out[2 * i + 1].as<float>();
    const double mean = sum_of(state, factors.rows) / static_cast<double>(factors.rows);
    const auto least = static_cast<float>(std::max(mean, Adafactor::kEps));
    for (const PlacedBox& part : parts[i].boxes) {
      const BoxOf box{args.out[2 * i], part};
      if (!factors.is_vector()) {
        direct_matrix(step, box, state, factors.rows, least, stream.pool());
        continue;
      }
      for_pieces(stream.pool(), part.box.rows(), kElemsPerTask, [&](int64_t begin, int64_t end, int) {
        direct(step, 1, state + part.box.row_begin + begin, box.dtype(), box.at(begin, 0), end - begin);
      });
    }
  }
}

}  // namespace

void add_factored_update_kernels(KernelRegistry& kernels) {
  kernels.add({"cpu.factor_sums", Op::FactorSums, supports_sums, nullptr, run_sums});
  kernels.add({"cpu.factor_moments", Op::FactorMoments, supports_moments, nullptr, run_moments});
  kernels.add({"cpu.factor_directions", Op::FactorDirections, supports_directions, nullptr, run_directions});
}

}  // namespace cpu
}  // namespace tandem
#endif
