// The vocabulary projection and its loss, `chunk` rows at a time: no more than chunk x vocab logits ever
// exist, and each chunk's turn into their own gradient before the next chunk is projected.
#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/kernels/cuda/gemm.h"
#include "tandem/kernels/cuda/loss_kernels.h"
#include "tandem/kernels/cuda/register.h"

namespace tandem::cuda {
namespace {

struct Projection {
  DType dtype;
  int64_t rows, dim, vocab, chunk;
  bool fresh;  // the weight's gradient is overwritten, by the first chunk

  int64_t largest_chunk() const { return std::min(chunk, rows); }
};

Projection projection(const TensorType& x, const TensorType& w, const Attrs& attrs) {
  const Projection p{.dtype = x.dtype,
                     .rows = x.shape.rows(),
                     .dim = x.shape.last(),
                     .vocab = w.shape.rows(),
                     .chunk = attrs.integer("chunk"),
                     .fresh = attrs.integer_or("fresh", 0) != 0};
  TANDEM_CHECK(p.chunk > 0 && w.shape.last() == p.dim, "{} by {} in chunks of {}", to_string(x.shape),
               to_string(w.shape), p.chunk);
  return p;
}

// The three products of a chunk of `rows`.
Gemm logits_of(const Projection& p, int64_t rows) {
  return {.m = rows, .n = p.vocab, .k = p.dim, .trans_b = true, .in = p.dtype, .out = p.dtype};
}
Gemm input_grad_of(const Projection& p, int64_t rows) {
  return {.m = rows, .n = p.dim, .k = p.vocab, .in = p.dtype, .out = p.dtype};
}
Gemm weight_grad_of(const Projection& p, int64_t rows, bool accumulate) {
  return {.m = p.vocab,
          .n = p.dim,
          .k = rows,
          .trans_a = true,
          .in = p.dtype,
          .out = DType::F32,
          .accumulate = accumulate};
}

// Scratch: a loss a row, the logits of a chunk, and what the matrix products need.
struct Scratch {
  size_t logits_at, gemm_at, bytes;

  explicit Scratch(const Projection& p)
      : logits_at(aligned(p.rows * static_cast<int64_t>(sizeof(RowLoss)))),
        gemm_at(logits_at + aligned(p.largest_chunk() * p.vocab * dtype_bytes(p.dtype))),
        bytes(gemm_at + kGemmWorkspace) {}

 private:
  static size_t aligned(int64_t bytes) { return static_cast<size_t>((bytes + 255) / 256 * 256); }
};

// A call's tensors, cut into chunks.
class Chunks {
 public:
  Chunks(const KernelArgs& args, Stream& stream)
      : args_(args),
        p_(projection(args.in[0].type, args.in[1].type, args.attrs)),
        scratch_(p_),
        queue_(static_cast<cudaStream_t>(stream.queue())) {}

  void run() {
    for_each([this](const Gemm& gemm, const GemmTensors& tensors) {
      gemm_run(gemm, tensors, gemm_scratch(), queue_);
    });
    sum_losses(losses(), p_.rows, args_.out[has_grad() ? 1 : 0].as<double>(), queue_);
  }

  void prepare() {
    for_each([this](const Gemm& gemm, const GemmTensors& tensors) {
      gemm_prepare(gemm, tensors, gemm_scratch(), queue_);
    });
  }

 private:
  bool has_grad() const { return args_.in.size() > 3; }
  std::byte* logits() const { return args_.workspace.data() + scratch_.logits_at; }
  RowLoss* losses() const { return reinterpret_cast<RowLoss*>(args_.workspace.data()); }
  std::span<std::byte> gemm_scratch() const {
    return args_.workspace.subspan(scratch_.gemm_at, kGemmWorkspace);
  }
  std::byte* row(const TensorArg& tensor, int64_t at) const {
    return tensor.as<std::byte>() + at * p_.dim * dtype_bytes(p_.dtype);
  }

  // product(gemm, its tensors) for each product of each chunk, with the loss in between.
  template <typename Product>
  void for_each(const Product& product) {
    const TensorArg &x = args_.in[0], &w = args_.in[1];
    for (int64_t begin = 0; begin < p_.rows; begin += p_.chunk) {
      const int64_t rows = std::min(p_.chunk, p_.rows - begin);
      product(logits_of(p_, rows), {.a = row(x, begin), .b = w.data, .d = logits()});
      cross_entropy_rows({.logits = logits(),
                          .dtype = p_.dtype,
                          .rows = rows,
                          .vocab = p_.vocab,
                          .targets = args_.in[2].as<const int32_t>() + begin},
                         has_grad() ? args_.in[3].as<const float>() : nullptr, losses() + begin, queue_);
      if (!has_grad()) continue;
      product(input_grad_of(p_, rows), {.a = logits(), .b = w.data, .d = row(args_.out[0], begin)});
      product(weight_grad_of(p_, rows, begin > 0 || !p_.fresh),
              {.a = logits(), .b = row(x, begin), .d = args_.out[2].data});
    }
  }

  const KernelArgs& args_;
  Projection p_;
  Scratch scratch_;
  cudaStream_t queue_;
};

size_t workspace(const CallSignature& call, int) {
  return Scratch(projection(call.in[0], call.in[1], *call.attrs)).bytes;
}

bool supports(const CallSignature& call) {
  const Projection p = projection(call.in[0], call.in[1], *call.attrs);
  return call.in[1].dtype == p.dtype && call.in[2].dtype == DType::I32 && call.out[0].dtype == DType::F64 &&
         gemm_supported(logits_of(p, p.largest_chunk()));
}
bool supports_grad(const CallSignature& call) {
  const Projection p = projection(call.in[0], call.in[1], *call.attrs);
  return call.in[1].dtype == p.dtype && call.in[2].dtype == DType::I32 && call.in[3].dtype == DType::F32 &&
         call.in[4].dtype == DType::F32 && call.out[0].dtype == p.dtype && call.out[1].dtype == DType::F64 &&
         gemm_supported(logits_of(p, p.largest_chunk())) &&
         gemm_supported(input_grad_of(p, p.largest_chunk())) &&
         gemm_supported(weight_grad_of(p, p.largest_chunk(), true));
}

void run(const KernelArgs& args, Stream& stream) { Chunks(args, stream).run(); }
void prepare(const KernelArgs& args, Stream& stream) { Chunks(args, stream).prepare(); }

}  // namespace

void add_linear_cross_entropy_kernels(KernelRegistry& registry) {
  registry.add({"cuda.linear_cross_entropy", Op::LinearCrossEntropy, supports, workspace, run, prepare});
  registry.add(
      {"cuda.linear_cross_entropy_grad", Op::LinearCrossEntropyGrad, supports_grad, workspace, run, prepare});
}

void add_loss_kernels(KernelRegistry& registry) {
  add_cross_entropy_kernels(registry);
  add_linear_cross_entropy_kernels(registry);
  add_vocab_loss_kernels(registry);
  add_stats_kernels(registry);
}

}  // namespace tandem::cuda
