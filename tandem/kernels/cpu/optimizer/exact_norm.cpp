// The norm of all gradients together, from sums of squares that have no order: {exact: 1}. There is one of
// all, or one for each parameter.
#include <algorithm>
#include <cmath>
#include <limits>
#include <new>
#include <vector>

#include "tandem/base/exact/exact_squares.h"
#include "tandem/kernels/cpu/optimizer/optimizer_chunks.h"
#include "tandem/kernels/cpu/optimizer/optimizer_kernels.h"
#include "tandem/runtime/optimizer_args.h"

namespace tandem::cpu {
namespace {

bool is_exact(const CallSignature& call) {
  return call.attrs != nullptr && call.attrs->integer_or("exact", 0) != 0;
}

bool supports_square_sums(const CallSignature& call) {
  return is_exact(call) && std::all_of(call.in.begin() + 2, call.in.end(),
                                       [](const TensorType& g) { return g.dtype == DType::F32; });
}

size_t workspace(const CallSignature& call, int) {
  int64_t chunks = 0;
  for (size_t i = 2; i < call.in.size(); ++i) chunks += OptimizerChunks::count(call.in[i].shape.elems());
  return static_cast<size_t>(chunks) * sizeof(ExactSquares);
}

void run_square_sums(const KernelArgs& args, Stream& stream) {
  const TensorArg& stats = args.in[1];
  const std::span<const TensorArg> pieces = args.in.subspan(2);
  OptimizerChunks chunks;
  for (const TensorArg& g : pieces) chunks.add_tensor(g.elems());
  auto* partials = reinterpret_cast<ExactSquares*>(args.workspace.data());
  stream.pool().parallel_for(chunks.size(), [&](int64_t task, int) {
    const auto [tensor, begin, elems] = chunks[task];
    ExactSquares* const partial = new (partials + task) ExactSquares;
    partial->add({pieces[tensor].as<float>() + begin, static_cast<size_t>(elems)});
  });
  const std::vector<int64_t> slots = read_slots(args);
  const int64_t num_slots = args.attrs.integer("num_slots");
  std::vector<ExactSquares> totals(static_cast<size_t>(num_slots / ExactSquares::kLimbs));
  for (int64_t task = 0; task < chunks.size(); ++task)
    totals[static_cast<size_t>(slots[chunks[task].tensor])].add(partials[task]);
  auto* sums = args.out[0].as<double>();
  sums[num_slots] = 0;
  for (size_t i = 0; i < totals.size(); ++i) {
    totals[i].write({sums + i * ExactSquares::kLimbs, ExactSquares::kLimbs});
    if (!totals[i].is_finite()) sums[num_slots] = 1;
  }
  std::copy_n(stats.as<double>(), stats.elems(), sums + num_slots + 1);
}

void run_global_norm(const KernelArgs& args, Stream&) {
  const auto* sums = args.in[0].as<double>();
  const double inv_scale = args.in[1].as<float>()[kHyperInvScale];
  const int64_t num_slots = args.attrs.integer("num_slots");
  const double norm =
      inv_scale * std::sqrt(ExactSquares::total_of_all({sums, static_cast<size_t>(num_slots)}));
  const bool is_finite = sums[num_slots] == 0 && std::isfinite(norm);
  args.out[0].as<double>()[0] = is_finite ? norm : std::numeric_limits<double>::infinity();
  args.out[0].as<double>()[1] = is_finite ? 1 : 0;
}

}  // namespace

void add_exact_norm_kernels(KernelRegistry& registry) {
  registry.add({"cpu.exact_square_sums", Op::SquareSums, supports_square_sums, workspace, run_square_sums});
  registry.add({"cpu.exact_global_norm", Op::GlobalNorm, is_exact, nullptr, run_global_norm});
}

}  // namespace tandem::cpu
