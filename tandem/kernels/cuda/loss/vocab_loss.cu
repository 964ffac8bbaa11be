// Cross-entropy where each of `size` ranks holds some columns of the logits: what a rank has to say of a row,
// and what all of them say together. The sums of a row's parts are brought under the largest of all their
// maxima, rank by rank and in double.
#include "tandem/kernels/cuda/device/cuda_check.h"
#include "tandem/kernels/cuda/loss/logit_row.cuh"
#include "tandem/kernels/cuda/loss/loss_kernels.h"

namespace tandem::cuda {
namespace {

constexpr int64_t kMaxVocabId = int64_t{1} << 24;  // ids travel as floats

// A row of the `parts` tensors.
struct alignas(16) VocabPart {
  float largest;
  float sum;     // of exp(logit - largest)
  float target;  // its logit, or -inf where another rank holds it
  float id;      // of the first of the largest
};

// What the gradient of a row needs: logits become exp(logit - shift) * factor, the target's `at_target`.
struct alignas(16) RowGrad {
  float shift;
  float factor;
  float at_target;
  int target;
};

// All parts of a row: `rows` apart, one a rank.
struct JoinedRow {
  float largest = -INFINITY;
  double sum = 0;     // of exp(logit - largest)
  double margin = 0;  // the target's logit - largest
  float id = 0;       // of the first of the largest
};

// Padding reads as -inf: it adds nothing to a row's sum, and its gradient is zero. So the kernels below take
// whole rows.
template <typename T>
__global__ void hide_padding_kernel(T* logits, int64_t rows, int columns, int valid) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int padding = columns - valid;
  if (i < rows * padding) logits[i / padding * columns + valid + i % padding] = from_float<T>(-INFINITY);
}

template <typename T, int kSize>
__global__ void __launch_bounds__(kLogitThreads, 2)
    vocab_parts_kernel(const T* logits, const int32_t* targets, int vocab, int first, VocabPart* parts) {
  const int target = targets[blockIdx.x];
  if (target < 0) {
    if (threadIdx.x == 0) parts[blockIdx.x] = {-INFINITY, 0, -INFINITY, static_cast<float>(first)};
    return;
  }
  const T* row = logits + int64_t{blockIdx.x} * vocab;
  const RowMass mass = row_mass<T, kSize>(row, vocab);
  if (threadIdx.x != 0) return;
  const int column = target - first;
  parts[blockIdx.x] = {.largest = mass.largest,
                       .sum = mass.sum,
                       .target = column >= 0 && column < vocab ? to_float(row[column]) : -INFINITY,
                       .id = static_cast<float>(first + mass.first)};
}

__device__ JoinedRow join_parts(const VocabPart* parts, int size, int64_t rows) {
  JoinedRow all;
  float target = -INFINITY;
  for (int rank = 0; rank < size; ++rank) {
    const VocabPart part = parts[rank * rows];
    if (rank == 0 || part.largest > all.largest) {
      all.largest = part.largest;
      all.id = part.id;
    }
    if (part.target != -INFINITY) target = part.target;
  }
  for (int rank = 0; rank < size; ++rank) {
    const VocabPart part = parts[rank * rows];
    all.sum += part.sum * exp(static_cast<double>(part.largest) - all.largest);
  }
  all.margin = static_cast<double>(target) - all.largest;
  return all;
}

constexpr int kJoinThreads = 128;

// A row a thread. `grads` and `scale` are null where nobody asks for the gradient.
__global__ void __launch_bounds__(kJoinThreads)
    join_parts_kernel(const VocabPart* parts, const int32_t* targets, int size, int64_t rows,
                      const float* scale, RowLoss* losses, RowGrad* grads) {
  const int64_t row = int64_t{blockIdx.x} * kJoinThreads + threadIdx.x;
  if (row >= rows) return;
  const int target = targets[row];
  if (target < 0) {
    losses[row] = {0, 0};
    if (grads != nullptr) grads[row] = {.shift = 0, .factor = 0, .at_target = 0, .target = target};
    return;
  }
  const JoinedRow all = join_parts(parts + row, size, rows);
  losses[row] = {log(all.sum) - all.margin, all.id == static_cast<float>(target) ? 1.0 : 0.0};
  if (grads == nullptr) return;
  // Near a sure prediction the difference p - 1 would cancel in fp32.
  const double at_target = (exp(all.margin) / all.sum - 1) * *scale;
  grads[row] = {.shift = all.largest,
                .factor = static_cast<float>(*scale / all.sum),
                .at_target = static_cast<float>(at_target),
                .target = target};
}

template <typename T, int kSize>
__global__ void __launch_bounds__(kLogitThreads)
    vocab_loss_grad_kernel(T* logits, const RowGrad* grads, int vocab, int first) {
  T* row = logits + int64_t{blockIdx.x} * vocab;
  const RowGrad grad = grads[blockIdx.x];
  if (grad.target < 0) return zero_row<T, kSize>(row, vocab);
  exp_row<T, kSize>(row, vocab, {}, grad.shift, grad.factor);
  const int column = grad.target - first;
  if (column >= 0 && column < vocab && owns_column<kSize>(column))
    row[column] = from_float<T>(grad.at_target);
}

bool supports_parts(const CallSignature& call) {
  return is_storage(call.in[0].dtype) && call.in[1].dtype == DType::I32 && call.out[0].dtype == DType::F32;
}

int first_column(const KernelArgs& args) {
  const int64_t first = args.attrs.integer("first"), vocab = args.in[0].type.shape.last();
  TANDEM_CHECK(first >= 0 && first + vocab <= kMaxVocabId, "columns {}, +{}", first, vocab);
  return static_cast<int>(first);
}

void hide_padding(const KernelArgs& args, cudaStream_t queue) {
  constexpr int kThreads = 256;
  const TensorArg& logits = args.in[0];
  const int64_t rows = logits.type.shape.rows(), columns = logits.type.shape.last();
  const int64_t valid = args.attrs.integer_or("valid", columns), hidden = rows * (columns - valid);
  if (hidden == 0) return;
  for_storage(logits.type.dtype, [&]<typename T>(T*) {
    hide_padding_kernel<<<static_cast<unsigned>((hidden + kThreads - 1) / kThreads), kThreads, 0, queue>>>(
        logits.as<T>(), rows, static_cast<int>(columns), static_cast<int>(valid));
  });
  check_launch("hide_padding");
}

void run_parts(const KernelArgs& args, Stream& stream) {
  const TensorArg& logits = args.in[0];
  const auto rows = static_cast<unsigned>(logits.type.shape.rows());
  const int64_t vocab = logits.type.shape.last();
  if (rows == 0) return;
  hide_padding(args, queue_of(stream));
  for_logits(logits.type.dtype, logits.data, vocab,
             [&]<typename T, int kSize>(T*, std::integral_constant<int, kSize>) {
               vocab_parts_kernel<T, kSize><<<rows, kLogitThreads, 0, queue_of(stream)>>>(
                   logits.as<const T>(), args.in[1].as<const int32_t>(), static_cast<int>(vocab),
                   first_column(args), args.out[0].as<VocabPart>());
             });
  check_launch("vocab_parts");
}

// Scratch: a loss a row, and what its gradient needs.
size_t loss_workspace(const CallSignature& call, int) {
  return static_cast<size_t>(call.in[1].shape.elems()) * sizeof(RowLoss);
}
size_t grad_workspace(const CallSignature& call, int) {
  return static_cast<size_t>(call.in[1].shape.elems()) * (sizeof(RowLoss) + sizeof(RowGrad));
}

// The same bits on every rank: they depend on nothing but the parts.
void join(const TensorArg& parts, const TensorArg& targets, const KernelArgs& args, const float* scale,
          RowGrad* grads, double* stats, cudaStream_t queue) {
  const int64_t rows = targets.elems();
  auto* losses = reinterpret_cast<RowLoss*>(args.workspace.data());
  const auto blocks = static_cast<unsigned>((rows + kJoinThreads - 1) / kJoinThreads);
  if (blocks > 0) {
    join_parts_kernel<<<blocks, kJoinThreads, 0, queue>>>(
        parts.as<const VocabPart>(), targets.as<const int32_t>(),
        static_cast<int>(args.attrs.integer("size")), rows, scale, losses, grads);
    check_launch("join_parts");
  }
  sum_losses(losses, rows, stats, queue);
}

bool supports_loss(const CallSignature& call) {
  return call.in[0].dtype == DType::F32 && call.in[1].dtype == DType::I32 && call.out[0].dtype == DType::F64;
}
void run_loss(const KernelArgs& args, Stream& stream) {
  join(args.in[0], args.in[1], args, nullptr, nullptr, args.out[0].as<double>(), queue_of(stream));
}

bool supports_grad(const CallSignature& call) {
  return is_storage(call.in[0].dtype) && call.in[1].dtype == DType::I32 && call.in[2].dtype == DType::F32 &&
         call.in[3].dtype == DType::F32 && call.out[1].dtype == DType::F64;
}
void run_grad(const KernelArgs& args, Stream& stream) {
  const TensorArg &logits = args.in[0], &targets = args.in[1];
  const auto rows = static_cast<unsigned>(targets.elems());
  const int64_t vocab = logits.type.shape.last();
  auto* grads = reinterpret_cast<RowGrad*>(args.workspace.data() + rows * sizeof(RowLoss));
  join(args.in[2], targets, args, args.in[3].as<const float>(), grads, args.out[1].as<double>(),
       queue_of(stream));
  if (rows == 0) return;
  hide_padding(args, queue_of(stream));
  for_logits(logits.type.dtype, logits.data, vocab,
             [&]<typename T, int kSize>(T*, std::integral_constant<int, kSize>) {
               vocab_loss_grad_kernel<T, kSize><<<rows, kLogitThreads, 0, queue_of(stream)>>>(
                   logits.as<T>(), grads, static_cast<int>(vocab), first_column(args));
             });
  check_launch("vocab_loss_grad");
}

}  // namespace

void add_vocab_loss_kernels(KernelRegistry& registry) {
  registry.add({"cuda.vocab_parts", Op::VocabParts, supports_parts, nullptr, run_parts});
  registry.add({"cuda.vocab_loss", Op::VocabLoss, supports_loss, loss_workspace, run_loss});
  registry.add({"cuda.vocab_loss_grad", Op::VocabLossGrad, supports_grad, grad_workspace, run_grad});
}

}  // namespace tandem::cuda
