// The vocabulary projection and its loss, `chunk` rows at a time: no more than chunk x vocab logits ever
// exist, and each chunk's turn into their own gradient before the next chunk is projected. Scaled and capped
// logits go through the kernels of the single ops; what a cap was given is kept beside them for its gradient.
#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/kernels/cpu/gemm/gemm.h"
#include "tandem/kernels/cpu/loss/loss_kernels.h"
#include "tandem/kernels/cpu/pointwise/pointwise.h"

namespace tandem::cpu {
namespace {

struct Projection {
  DType dtype;
  int64_t rows, dim, vocab, chunk;
  double scale, cap;  // 1 and 0: none

  int64_t logits_bytes() const { return std::min(chunk, rows) * vocab * dtype_bytes(dtype); }
};

Projection projection(const TensorType& x, const TensorType& w, const Attrs& attrs) {
  const Projection p{x.dtype,
                     x.shape.rows(),
                     x.shape.last(),
                     w.shape.rows(),
                     attrs.integer("chunk"),
                     attrs.real_or("scale", 1),
                     attrs.real_or("softcap", 0)};
  TANDEM_CHECK(p.chunk > 0 && w.shape.last() == p.dim, "{} by {} in chunks of {}", to_string(x.shape),
               to_string(w.shape), p.chunk);
  return p;
}

constexpr int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Scratch: the tasks' loss sums, the logits of a chunk, again before they are capped, and what the matrix
// products need.
struct Scratch {
  int64_t logits_at, uncapped_at, gemm_at;

  explicit Scratch(const Projection& p)
      : logits_at(aligned(num_loss_partials(std::min(p.chunk, p.rows), p.vocab) *
                          static_cast<int64_t>(sizeof(LossSums)))),
        uncapped_at(p.cap == 0 ? logits_at : logits_at + aligned(p.logits_bytes())),
        gemm_at(uncapped_at + aligned(p.logits_bytes())) {}
};

size_t gemm_bytes(const Projection& p, int64_t rows, bool grad, int num_threads) {
  const DType s = p.dtype;
  size_t bytes = gemm_workspace({.m = rows, .n = p.vocab, .k = p.dim, .a = s, .b = s, .c = s}, num_threads);
  if (!grad) return bytes;
  bytes = std::max(
      bytes, gemm_workspace({.m = rows, .n = p.dim, .k = p.vocab, .a = s, .b = s, .c = s}, num_threads));
  return std::max(
      bytes,
      gemm_workspace({.m = p.vocab, .n = p.dim, .k = rows, .a = s, .b = s, .c = DType::F32}, num_threads));
}

size_t total_bytes(const CallSignature& call, bool grad, int num_threads) {
  const Projection p = projection(call.in[0], call.in[1], *call.attrs);
  size_t bytes = gemm_bytes(p, std::min(p.chunk, p.rows), grad, num_threads);
  const int64_t last = p.rows % p.chunk;
  if (last != 0) bytes = std::max(bytes, gemm_bytes(p, last, grad, num_threads));
  return static_cast<size_t>(Scratch(p).gemm_at) + bytes;
}
size_t workspace(const CallSignature& call, int num_threads) { return total_bytes(call, false, num_threads); }
size_t workspace_grad(const CallSignature& call, int num_threads) {
  return total_bytes(call, true, num_threads);
}

bool supports(const CallSignature& call) {
  return is_storage(call.in[0].dtype) && call.in[1].dtype == call.in[0].dtype &&
         call.in[2].dtype == DType::I32 && call.out[0].dtype == DType::F64;
}
bool supports_grad(const CallSignature& call) {
  return is_storage(call.in[0].dtype) && call.in[1].dtype == call.in[0].dtype &&
         call.in[2].dtype == DType::I32 && call.in[3].dtype == DType::F32 &&
         (call.in.size() < 5 || call.in[4].dtype == DType::F32) && call.out[0].dtype == call.in[0].dtype &&
         call.out[1].dtype == DType::F64;
}

TensorArg tensor_of(const LogitRows& rows) {
  return {rows.logits, {rows.dtype, Shape({rows.rows, rows.vocab})}};
}

// From the gradient of a chunk's logits to that of the product, in place.
void turn_back(const LogitRows& logits, const Projection& p, std::byte* workspace, Stream& stream) {
  const TensorArg gradient = tensor_of(logits);
  const TensorArg uncapped{workspace + Scratch(p).uncapped_at, gradient.type};
  if (p.cap != 0) cap_values_grad(gradient, uncapped, p.cap, gradient, stream);
  if (p.scale != 1) scale_values(gradient, p.scale, gradient, stream);
}

// Calls fn(chunk's logits, address of its first row of x, first row) after projecting each chunk.
template <typename Fn>
LossSums for_each_chunk(const KernelArgs& args, const Projection& p, Stream& stream, const Fn& fn) {
  const TensorArg &x = args.in[0], &w = args.in[1];
  const auto* targets = args.in[2].as<const int32_t>();
  check_targets(targets, p.rows, p.vocab);
  const Scratch scratch(p);
  LossSums total;
  for (int64_t begin = 0; begin < p.rows; begin += p.chunk) {
    const LogitRows logits{.logits = args.workspace.data() + scratch.logits_at,
                           .dtype = p.dtype,
                           .rows = std::min(p.chunk, p.rows - begin),
                           .vocab = p.vocab,
                           .targets = targets + begin};
    const MatrixView x_rows{x.as<std::byte>() + begin * p.dim * dtype_bytes(p.dtype), p.dtype, p.dim, 1};
    gemm({.m = logits.rows,
          .n = p.vocab,
          .k = p.dim,
          .a = x_rows,
          .b = {w.data, p.dtype, 1, p.dim},
          .c = args.workspace.data() + scratch.uncapped_at,
          .c_dtype = p.dtype,
          .ldc = p.vocab},
         args.workspace.subspan(static_cast<size_t>(scratch.gemm_at)), stream.pool());
    const TensorArg capped = tensor_of(logits);
    const TensorArg uncapped{args.workspace.data() + scratch.uncapped_at, capped.type};
    if (p.scale != 1) scale_values(uncapped, p.scale, uncapped, stream);
    if (p.cap != 0) cap_values(uncapped, p.cap, capped, stream);
    const LossSums sums = fn(logits, x_rows, begin);
    total.nll += sums.nll;
    total.correct += sums.correct;
  }
  return total;
}

void run(const KernelArgs& args, Stream& stream) {
  const Projection p = projection(args.in[0].type, args.in[1].type, args.attrs);
  auto* partials = reinterpret_cast<LossSums*>(args.workspace.data());
  store_loss(for_each_chunk(args, p, stream,
                            [&](const LogitRows& logits, const MatrixView&, int64_t) {
                              return cross_entropy_rows(logits, partials, stream.pool());
                            }),
             args.out[0]);
}

void run_grad(const KernelArgs& args, Stream& stream) {
  const Projection p = projection(args.in[0].type, args.in[1].type, args.attrs);
  const TensorArg &w = args.in[1], &dx = args.out[0];
  const TensorArg* acc_dw = args.out.size() > 2 ? &args.out[2] : nullptr;  // none where w is frozen
  const float scale = args.in[3].as<float>()[0];
  const LossTerms terms = read_loss_terms(args.attrs);
  auto* partials = reinterpret_cast<LossSums*>(args.workspace.data());
  const auto gemm_scratch = args.workspace.subspan(static_cast<size_t>(Scratch(p).gemm_at));
  const LossSums total =
      for_each_chunk(args, p, stream, [&](const LogitRows& logits, const MatrixView& x, int64_t begin) {
        const LossSums sums = cross_entropy_rows_grad(logits, scale, terms, partials, stream.pool());
        turn_back(logits, p, args.workspace.data(), stream);
        gemm({.m = logits.rows,
              .n = p.dim,
              .k = p.vocab,
              .a = {logits.logits, p.dtype, p.vocab, 1},
              .b = {w.data, p.dtype, p.dim, 1},
              .c = dx.as<std::byte>() + begin * p.dim * dtype_bytes(p.dtype),
              .c_dtype = p.dtype,
              .ldc = p.dim},
             gemm_scratch, stream.pool());
        if (acc_dw == nullptr) return sums;
        gemm({.m = p.vocab,
              .n = p.dim,
              .k = logits.rows,
              .a = {logits.logits, p.dtype, 1, p.vocab},
              .b = x,
              .c = acc_dw->data,
              .ldc = p.dim,
              .accumulate = true},
             gemm_scratch, stream.pool());
        return sums;
      });
  store_loss(total, args.out[1]);
}

}  // namespace

void add_linear_cross_entropy_kernels(KernelRegistry& registry) {
  registry.add({"cpu.linear_cross_entropy", Op::LinearCrossEntropy, supports, workspace, run});
  registry.add(
      {"cpu.linear_cross_entropy_grad", Op::LinearCrossEntropyGrad, supports_grad, workspace_grad, run_grad});
}

}  // namespace tandem::cpu
