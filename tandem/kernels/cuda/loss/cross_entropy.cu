// Softmax cross-entropy. The gradient needs a row twice. Rows of a usual vocabulary stream through the chip
// (logit_stream.cuh). Of others, as much as two blocks of a multiprocessor can keep in shared memory is read
// from memory once, and the rest of a longer row comes from the L2 cache the second time; two blocks, so that
// one reads while the other computes.
#include <algorithm>
#include <iterator>

#include "tandem/kernels/cuda/block_sum.cuh"
#include "tandem/kernels/cuda/device/cuda_check.h"
#include "tandem/kernels/cuda/loss/logit_row.cuh"
#include "tandem/kernels/cuda/loss/logit_stream.cuh"
#include "tandem/kernels/cuda/loss/loss_kernels.h"

namespace tandem::cuda {
namespace {

enum class RowWork { Loss, Gradient, GradientOfTerms };

template <typename T, int kSize, RowWork kWork>
__global__ void __launch_bounds__(kLogitThreads, 2)
    cross_entropy_kernel(T* logits, const int32_t* targets, const float* scale, int vocab, int64_t pitch,
                         int num_kept, LossTerms terms, const int32_t* partners, const float* shares,
                         RowLoss* losses) {
  constexpr bool kGrad = kWork != RowWork::Loss;
  extern __shared__ int4 shared[];
  T* row = logits + int64_t{blockIdx.x} * pitch;
  const int target = targets[blockIdx.x];
  if (target < 0) {
    if constexpr (kGrad) zero_row<T, kSize>(row, vocab);
    if (threadIdx.x == 0) losses[blockIdx.x] = {0, 0};
    return;
  }
  const float at_target = target < vocab ? to_float(row[target]) : NAN;
  int partner = target;
  float at_partner = at_target;
  if constexpr (kWork == RowWork::GradientOfTerms) {
    if (partners != nullptr) partner = partners[blockIdx.x];
    at_partner = partner >= 0 && partner < vocab ? to_float(row[partner]) : NAN;
  }
  const KeptGroups<T, kSize> kept{reinterpret_cast<Group<T, kSize>*>(shared), num_kept};
  const RowMass mass = row_mass<T, kSize>(row, vocab, kept);
  const double margin = static_cast<double>(at_target) - mass.largest;
  const double log_sum = log(static_cast<double>(mass.sum)), correct = mass.first == target ? 1.0 : 0.0;
  if constexpr (kWork == RowWork::GradientOfTerms) {
    const double z = mass.largest + log_sum, share = terms.smoothing, each = share / vocab;
    const double mean = share == 0 ? 0 : row_mean<T, kSize>(row, vocab, kept) - mass.largest;
    const double weight = 1 + 2 * terms.z * z;
    const double own = partner == target ? 1 : static_cast<double>(shares[blockIdx.x]);
    const double other = static_cast<double>(at_partner) - mass.largest;
    const double wanted = partner == target ? margin : own * margin + (1 - own) * other;
    if (threadIdx.x == 0)
      losses[blockIdx.x] = {log_sum - (1 - share) * wanted - share * mean + terms.z * z * z, correct};
    exp_row<T, kSize>(row, vocab, kept, mass.largest, static_cast<float>(*scale * weight / mass.sum),
                      static_cast<float>(each * *scale));
    const auto store = [&](int label, double at, double part) {
      const double gradient = exp(at) / mass.sum * weight - each - (1 - share) * part;
      if (label >= 0 && label < vocab && owns_column<kSize>(label))
        row[label] = from_float<T>(static_cast<float>(gradient * *scale));
    };
    store(target, margin, own);
    if (partner != target) store(partner, other, 1 - own);
    return;
  }
  if (threadIdx.x == 0) losses[blockIdx.x] = {log_sum - margin, correct};
  if constexpr (kGrad) {
    exp_row<T, kSize>(row, vocab, kept, mass.largest, *scale / mass.sum);
    // Near a sure prediction the difference p - 1 would cancel in fp32.
    if (target < vocab && owns_column<kSize>(target))
      row[target] = from_float<T>(static_cast<float>((exp(margin) / mass.sum - 1) * *scale));
  }
}

constexpr int kSumThreads = 1024;

__global__ void __launch_bounds__(kSumThreads)
    sum_losses_kernel(const RowLoss* losses, int64_t rows, double* stats) {
  double nll = 0, correct = 0;
#pragma unroll 4
  for (int64_t row = threadIdx.x; row < rows; row += kSumThreads) {
    const RowLoss loss = losses[row];
    nll += loss.nll;
    correct += loss.correct;
  }
  nll = block_sum<kSumThreads>(nll);
  correct = block_sum<kSumThreads>(correct);
  if (threadIdx.x == 0) {
    stats[0] = nll;
    stats[1] = correct;
  }
}

// How the gradient is found, by the bytes of a row.
enum class RowPlan {
  BlockEach,  // any row
  TwoBlocks,  // rows stream through two blocks a multiprocessor: each works in the other's barriers
  OneBlock    // rows stream through one block, which has room for longer ones
};
struct PlannedRows {
  int64_t up_to_bytes;
  RowPlan plan;
};
constexpr PlannedRows kPlannedRows[] = {{32 << 10, RowPlan::BlockEach},
                                        {128 << 10, RowPlan::TwoBlocks},
                                        {300 << 10, RowPlan::OneBlock},
                                        {INT64_MAX, RowPlan::BlockEach}};

RowPlan plan_of(int64_t row_bytes) {
  return std::find_if(std::begin(kPlannedRows), std::end(kPlannedRows),
                      [&](const PlannedRows& rows) { return row_bytes <= rows.up_to_bytes; })
      ->plan;
}

// What each of some blocks on a multiprocessor may use, besides its few static variables.
int64_t shared_bytes_of_block(int blocks) {
  constexpr int kStaticBytes = 1024;
  return device_attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor) / blocks -
         device_attribute(cudaDevAttrReservedSharedMemoryPerBlock) - kStaticBytes;
}

template <typename Kernel>
void allow_shared_bytes(Kernel* kernel, int bytes) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), "shared memory");
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                             cudaSharedmemCarveoutMaxShared),
        "shared memory");
}

// False where the device or the rows are not made for it.
template <typename T, int kThreads, int kBlocks>
bool stream_rows(const LogitRows& in, const float* scale, RowLoss* losses, cudaStream_t queue) {
  constexpr int kSize = 16 / sizeof(T);
  constexpr int kBytes = kStreamSlots * kThreads * 16;
  const int64_t lead = in.pitch % kSize == 0 ? 0 : kSize - 1;  // at most
  const int64_t groups = (lead + in.vocab + kSize - 1) / kSize;
  const int64_t rounds = (groups + kThreads - 1) / kThreads;
  if (rounds > kStreamRounds || in.rows > INT_MAX / 2 || in.rows * in.pitch % kSize != 0 ||
      !is_aligned(in.logits, 16) || shared_bytes_of_block(kBlocks) < kBytes)
    return false;
  const auto kernel = cross_entropy_stream_kernel<T, kThreads, kBlocks>;
  allow_shared_bytes(kernel, kBytes);
  // Two blocks overlap better when each ends with its row (3% at 50304 columns); one alone must go on.
  const int64_t blocks = kBlocks > 1 ? in.rows : device_attribute(cudaDevAttrMultiProcessorCount);
  const auto grid = static_cast<unsigned>(std::min(in.rows, blocks));
  kernel<<<grid, kThreads, kBytes, queue>>>(static_cast<T*>(in.logits), {.targets = in.targets,
                                                                         .scale = scale,
                                                                         .rows = static_cast<int>(in.rows),
                                                                         .vocab = static_cast<int>(in.vocab),
                                                                         .pitch = in.pitch,
                                                                         .rounds = static_cast<int>(rounds),
                                                                         .losses = losses});
  return true;
}

bool try_stream(const LogitRows& in, const float* scale, RowLoss* losses, cudaStream_t queue) {
  const RowPlan plan = plan_of(in.vocab * dtype_bytes(in.dtype));
  bool streamed = false;
  for_storage(in.dtype, [&]<typename T>(T*) {
    if (plan == RowPlan::TwoBlocks) streamed = stream_rows<T, 512, 2>(in, scale, losses, queue);
    if (plan == RowPlan::OneBlock) streamed = stream_rows<T, 1024, 1>(in, scale, losses, queue);
  });
  return streamed;
}

template <typename T, int kSize>
void launch_rows(const LogitRows& in, const float* scale, RowLoss* losses, cudaStream_t queue) {
  const auto grid = static_cast<unsigned>(in.rows);
  const int vocab = static_cast<int>(in.vocab);
  auto* logits = static_cast<T*>(in.logits);
  if (scale == nullptr) {
    cross_entropy_kernel<T, kSize, RowWork::Loss><<<grid, kLogitThreads, 0, queue>>>(
        logits, in.targets, nullptr, vocab, in.pitch, 0, in.terms, nullptr, nullptr, losses);
  } else {
    constexpr int kGroupBytes = sizeof(Group<T, kSize>);
    const bool plain = in.terms.none() && in.partners == nullptr;
    const auto kernel = plain ? cross_entropy_kernel<T, kSize, RowWork::Gradient>
                              : cross_entropy_kernel<T, kSize, RowWork::GradientOfTerms>;
    const int kept = static_cast<int>(std::min(shared_bytes_of_block(2) / kGroupBytes, in.vocab / kSize));
    const int bytes = kept * kGroupBytes;
    allow_shared_bytes(kernel, bytes);
    kernel<<<grid, kLogitThreads, static_cast<size_t>(bytes), queue>>>(
        logits, in.targets, scale, vocab, in.pitch, kept, in.terms, in.partners, in.shares, losses);
  }
}

}  // namespace

void cross_entropy_rows(const LogitRows& in, const float* scale, RowLoss* losses, cudaStream_t queue) {
  if (in.rows == 0) return;
  const bool plain = in.terms.none() && in.partners == nullptr;
  if (scale == nullptr || !plain || !try_stream(in, scale, losses, queue)) {
    for_logits(in.dtype, in.logits, in.vocab,
               [&]<typename T, int kSize>(T*, std::integral_constant<int, kSize>) {
                 launch_rows<T, kSize>(in, scale, losses, queue);
               });
  }
  check_launch("cross_entropy");
}

void sum_losses(const RowLoss* losses, int64_t rows, double* stats, cudaStream_t queue) {
  sum_losses_kernel<<<1, kSumThreads, 0, queue>>>(losses, rows, stats);
  check_launch("sum_losses");
}

namespace {

bool supports(const CallSignature& call) {  // the stats come last
  return is_storage(call.in[0].dtype) && call.in[1].dtype == DType::I32 &&
         call.out.back().dtype == DType::F64 && (call.in.size() < 3 || call.in[2].dtype == DType::F32) &&
         (call.in.size() < 5 || (call.in[3].dtype == DType::I32 && call.in[4].dtype == DType::F32));
}

size_t workspace(const CallSignature& call, int) {
  return static_cast<size_t>(call.in[0].shape.rows()) * sizeof(RowLoss);
}

// The stats are the last output; the gradient has the scale behind the targets.
void run(const KernelArgs& args, Stream& stream) {
  const TensorArg& logits = args.in[0];
  const bool mixed = args.in.size() > 3;
  const LogitRows rows{.logits = logits.data,
                       .dtype = logits.type.dtype,
                       .rows = logits.type.shape.rows(),
                       .vocab = logits.type.shape.last(),
                       .pitch = logits.type.shape.last(),
                       .targets = args.in[1].as<const int32_t>(),
                       .terms = read_loss_terms(args.attrs),
                       .partners = mixed ? args.in[3].as<const int32_t>() : nullptr,
                       .shares = mixed ? args.in[4].as<const float>() : nullptr};
  const float* scale = args.in.size() > 2 ? args.in[2].as<const float>() : nullptr;
  auto* losses = reinterpret_cast<RowLoss*>(args.workspace.data());
  cross_entropy_rows(rows, scale, losses, queue_of(stream));
  sum_losses(losses, rows.rows, args.out.back().as<double>(), queue_of(stream));
}

}  // namespace

void add_cross_entropy_kernels(KernelRegistry& registry) {
  registry.add({"cuda.cross_entropy", Op::CrossEntropy, supports, workspace, run});
  registry.add({"cuda.cross_entropy_grad", Op::CrossEntropyGrad, supports, workspace, run});
}

}  // namespace tandem::cuda
