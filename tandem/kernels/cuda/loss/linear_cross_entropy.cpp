// The vocabulary projection and its loss, `chunk` rows at a time: no more than chunk x vocab logits ever
// exist, and each chunk's turn into their own gradient before the next chunk is projected.
//
// The library's products are six times slower where a size is odd, as with 50257 logits a row. Such a
// vocabulary is padded in scratch memory: the weight's copy ends with rows of zeros, so that the logits
// behind a row's last are zeros, which the loss does not look at; they stay zeros in its gradient, and add
// nothing to the input's.
#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/kernels/cuda/device/cuda_check.h"
#include "tandem/kernels/cuda/gemm/gemm.h"
#include "tandem/kernels/cuda/loss/loss_kernels.h"
#include "tandem/kernels/cuda/register.h"

namespace tandem::cuda {
namespace {

constexpr int64_t kBlock = 64;  // of classes

struct Projection {
  DType dtype;
  int64_t rows, dim, vocab, chunk;
  bool fresh;  // the weight's gradient is overwritten, by the first chunk

  int64_t largest_chunk() const { return std::min(chunk, rows); }
  bool is_padded() const { return vocab * dtype_bytes(dtype) % 16 != 0; }
  int64_t pitch() const { return is_padded() ? (vocab + kBlock - 1) / kBlock * kBlock : vocab; }
  // Of the weight's gradient, which is not padded: whole blocks are one product, the classes left another.
  int64_t whole_blocks() const { return is_padded() ? vocab / kBlock * kBlock : vocab; }
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

// The products of a chunk of `rows`.
Gemm logits_of(const Projection& p, int64_t rows) {
  return {.m = rows, .n = p.pitch(), .k = p.dim, .trans_b = true, .in = p.dtype, .out = p.dtype};
}
Gemm input_grad_of(const Projection& p, int64_t rows) {
  return {.m = rows, .n = p.dim, .k = p.pitch(), .in = p.dtype, .out = p.dtype};
}
// Of so many classes.
Gemm weight_grad_of(const Projection& p, int64_t classes, int64_t rows, bool accumulate) {
  return {.m = classes,
          .n = p.dim,
          .k = rows,
          .trans_a = true,
          .in = p.dtype,
          .out = DType::F32,
          .accumulate = accumulate,
          .pitch_a = p.pitch()};
}

// Scratch: a loss a row, the logits of a chunk, a padded weight, and what the matrix products need.
struct Scratch {
  size_t logits_at, weight_at, gemm_at, bytes;

  explicit Scratch(const Projection& p)
      : logits_at(aligned(p.rows * static_cast<int64_t>(sizeof(RowLoss)))),
        weight_at(logits_at + aligned(p.largest_chunk() * p.pitch() * dtype_bytes(p.dtype))),
        gemm_at(weight_at + (p.is_padded() ? aligned(p.pitch() * p.dim * dtype_bytes(p.dtype)) : 0)),
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

  // The weight as the products take it.
  const void* weight() const {
    const TensorArg& w = args_.in[1];
    if (!p_.is_padded()) return w.data;
    std::byte* copy = args_.workspace.data() + scratch_.weight_at;
    const auto bytes = static_cast<size_t>(p_.vocab * p_.dim * dtype_bytes(p_.dtype));
    const auto padding = static_cast<size_t>((p_.pitch() - p_.vocab) * p_.dim * dtype_bytes(p_.dtype));
    check(cudaMemcpyAsync(copy, w.data, bytes, cudaMemcpyDeviceToDevice, queue_), "padding the vocabulary");
    check(cudaMemsetAsync(copy + bytes, 0, padding, queue_), "padding the vocabulary");
    return copy;
  }

  // product(gemm, its tensors) for each product of each chunk, with the loss in between.
  template <typename Product>
  void for_each(const Product& product) {
    const TensorArg& x = args_.in[0];
    const void* w = weight();
    for (int64_t begin = 0; begin < p_.rows; begin += p_.chunk) {
      const int64_t rows = std::min(p_.chunk, p_.rows - begin);
      product(logits_of(p_, rows), {.a = row(x, begin), .b = w, .d = logits()});
      cross_entropy_rows({.logits = logits(),
                          .dtype = p_.dtype,
                          .rows = rows,
                          .vocab = p_.vocab,
                          .pitch = p_.pitch(),
                          .targets = args_.in[2].as<const int32_t>() + begin,
                          .terms = read_loss_terms(args_.attrs)},
                         has_grad() ? args_.in[3].as<const float>() : nullptr, losses() + begin, queue_);
      if (!has_grad()) continue;
      product(input_grad_of(p_, rows), {.a = logits(), .b = w, .d = row(args_.out[0], begin)});
      if (args_.out.size() < 3) continue;  // the weight is frozen
      const bool accumulate = begin > 0 || !p_.fresh;
      for_classes([&](int64_t first, int64_t classes) {
        product(weight_grad_of(p_, classes, rows, accumulate),
                {.a = logits() + first * dtype_bytes(p_.dtype),
                 .b = row(x, begin),
                 .d = args_.out[2].as<float>() + first * p_.dim});
      });
    }
  }

  // fn(the first, how many) of the classes whose gradient is one product.
  template <typename Fn>
  void for_classes(const Fn& fn) const {
    const int64_t whole = p_.whole_blocks();
    if (whole > 0) fn(int64_t{0}, whole);
    if (whole < p_.vocab) fn(whole, p_.vocab - whole);
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
         (call.in.size() < 5 || call.in[4].dtype == DType::F32) && call.out[0].dtype == p.dtype &&
         call.out[1].dtype == DType::F64 && gemm_supported(logits_of(p, p.largest_chunk())) &&
         gemm_supported(input_grad_of(p, p.largest_chunk())) &&
         gemm_supported(weight_grad_of(p, p.vocab, p.largest_chunk(), true));
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
