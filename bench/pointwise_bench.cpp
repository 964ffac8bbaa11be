// Memory-bound kernels against a plain copy of the same tensors by the same threads: bytes read and
// written per second, and the ratio to the copy. Run it alone on an idle machine.
//   pointwise_bench [threads [part of a kernel's name]]
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tandem/base/rng.h"
#include "tandem/kernels/cpu/register.h"

namespace tandem {
namespace {

struct AlignedFree {
  void operator()(void* bytes) const { std::free(bytes); }
};
using Buffer = std::unique_ptr<std::byte, AlignedFree>;

// Large pages, or the cost of walking page tables would hide everything else.
Buffer allocate(size_t bytes) {
  constexpr size_t kPage = size_t{2} << 20;
  const size_t rounded = (bytes + kPage) / kPage * kPage;
  void* memory = std::aligned_alloc(kPage, rounded);
  madvise(memory, rounded, MADV_HUGEPAGE);
  std::memset(memory, 1, rounded);
  return Buffer(static_cast<std::byte*>(memory));
}

// Owns the memory of one call. Inputs hold small numbers near 1 of their type; ids are spread over the
// vocabulary.
class BenchCall {
 public:
  BenchCall(const KernelRegistry& registry, Op op, std::vector<TensorType> in, std::vector<TensorType> out,
            std::vector<int> shares, Attrs attrs, int num_threads)
      : attrs_(std::move(attrs)) {
    const CallSignature call{op, in, out, &attrs_};
    kernel_ = &registry.choose(call);
    const int64_t vocab = op == Op::Embedding ? in[1].shape[0] : in[0].shape[0];
    for (const TensorType& type : in) in_.push_back(make(type, vocab));
    for (size_t k = 0; k < out.size(); ++k) {
      out_.push_back(shares[k] < 0 ? make(out[k], vocab)
                                   : TensorArg{in_[static_cast<size_t>(shares[k])].data, out[k]});
    }
    const size_t bytes = kernel_->workspace == nullptr ? 0 : kernel_->workspace(call, num_threads);
    workspace_ = {own(bytes), bytes};
  }

  void run(Stream& stream) { kernel_->run({in_, out_, attrs_, workspace_}, stream); }
  const std::string& name() const { return kernel_->name; }

 private:
  std::byte* own(size_t bytes) { return buffers_.emplace_back(allocate(bytes)).get(); }
  TensorArg make(const TensorType& type, int64_t vocab) {
    const TensorArg arg{own(static_cast<size_t>(type.bytes())), type};
    const Rng rng(3, buffers_.size());
    for (int64_t i = 0; i < arg.elems(); ++i) {
      const float value = 2.5f * (rng.uniform(static_cast<uint64_t>(i)) - 0.4f);
      switch (type.dtype) {
        case DType::F32: arg.as<float>()[i] = value; break;
        case DType::BF16: arg.as<BFloat16>()[i] = to_bfloat16(value); break;
        case DType::F16: arg.as<Half>()[i] = to_half(value); break;
        default:
          arg.as<int32_t>()[i] =
              static_cast<int32_t>(rng.below(static_cast<uint64_t>(i), static_cast<uint64_t>(vocab)));
      }
    }
    return arg;
  }

  Attrs attrs_;
  const Kernel* kernel_ = nullptr;
  std::vector<Buffer> buffers_;
  std::vector<TensorArg> in_, out_;
  std::span<std::byte> workspace_;
};

// The shortest time of one run: what the kernel needs when nothing else disturbs it.
double seconds(const std::function<void()>& run) {
  using Clock = std::chrono::steady_clock;
  double best = 1e9;
  for (int i = 0; i < 60; ++i) {
    const auto start = Clock::now();
    run();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return best;
}

class Bench {
 public:
  Bench(int num_threads, std::string wanted)
      : pool_(num_threads), stream_(pool_), wanted_(std::move(wanted)) {
    cpu::add_norm_kernels(registry_);
    cpu::add_pointwise_kernels(registry_);
    cpu::add_embedding_kernels(registry_);
    fmt::print("{} threads\n", pool_.num_threads());
  }

  // `moved` counts the large tensors read or written.
  void report(Op op, std::vector<TensorType> in, std::vector<TensorType> out, std::vector<int> shares,
              Attrs attrs, double moved) {
    if (op_name(op).find(wanted_) == std::string_view::npos) return;
    BenchCall call(registry_, op, std::move(in), std::move(out), std::move(shares), std::move(attrs),
                   pool_.num_threads());
    const double copy = copy_rate();
    const double rate = moved * static_cast<double>(unit_.bytes()) / seconds([&] { call.run(stream_); });
    fmt::print("  {:24} {:7.1f} GB/s  {:5.2f} of copy\n", call.name(), rate / 1e9, rate / copy);
  }

  void shape(DType storage, int64_t rows, int64_t width) {
    unit_ = {storage, {rows, width}};
    src_ = allocate(static_cast<size_t>(unit_.bytes()));
    dst_ = allocate(static_cast<size_t>(unit_.bytes()));
    fmt::print("{} [{}, {}]  copy {:.1f} GB/s\n", dtype_name(storage), rows, width, copy_rate() / 1e9);
  }

  void run_all(DType storage, int64_t rows, int64_t width) {
    shape(storage, rows, width);
    const TensorType x = unit_, stat{DType::F32, {rows}}, gamma{storage, {width}}, acc{DType::F32, {width}};
    const TensorType ids{DType::I32, {8, rows / 8}}, y{storage, {8, rows / 8, width}};
    const Attrs eps{{"eps", 1e-5}};
    report(Op::Add, {x, x}, {x}, {-1}, {}, 3);
    report(Op::Gelu, {x}, {x}, {-1}, {}, 2);
    report(Op::GeluGrad, {x, x}, {x}, {-1}, {}, 3);
    report(Op::Relu, {x}, {x}, {-1}, {}, 2);
    report(Op::Swiglu, {{storage, {rows, 2 * width}}}, {x}, {-1}, {}, 3);
    report(Op::SwigluGrad, {x, {storage, {rows, 2 * width}}}, {{storage, {rows, 2 * width}}}, {-1}, {}, 5);
    report(Op::LayerNorm, {x, gamma, gamma}, {x, stat, stat}, {-1, -1, -1}, eps, 2);
    report(Op::AddLayerNorm, {x, x, gamma, gamma}, {x, x, stat, stat}, {-1, -1, -1, -1}, eps, 4);
    report(Op::LayerNormGrad, {x, x, gamma, stat, stat, acc, acc}, {x, acc, acc}, {-1, 5, 6}, {}, 3);
    report(Op::LayerNormGrad, {x, x, gamma, stat, stat, acc, acc, x}, {x, acc, acc}, {0, 5, 6}, {}, 4);
    report(Op::RmsNorm, {x, gamma}, {x, stat}, {-1, -1}, eps, 2);
    report(Op::AddRmsNorm, {x, x, gamma}, {x, x, stat}, {-1, -1, -1}, eps, 4);
    report(Op::RmsNormGrad, {x, x, gamma, stat, acc}, {x, acc}, {-1, 4}, {}, 3);
    report(Op::BiasGrad, {acc, x}, {acc}, {0}, {}, 1);
    for (const int64_t vocab : {256, 50304}) {
      const TensorType table{storage, {vocab, width}}, grad{DType::F32, {vocab, width}};
      report(Op::Embedding, {ids, table, {storage, {rows / 8, width}}}, {y}, {-1}, {}, 2);
      report(Op::EmbeddingGrad, {grad, ids, y}, {grad}, {0}, {},
             vocab == 256            ? 1
             : storage == DType::F32 ? 3
                                     : 5);
    }
    report(Op::PositionGrad, {{DType::F32, {rows / 8, width}}, y}, {{DType::F32, {rows / 8, width}}}, {0}, {},
           1);
  }

 private:
  double copy_rate() {
    constexpr size_t kPiece = 65536;
    const size_t bytes = static_cast<size_t>(unit_.bytes()), pieces = (bytes + kPiece - 1) / kPiece;
    const double time = seconds([&] {
      pool_.parallel_for(static_cast<int64_t>(pieces), [&](int64_t task, int) {
        const size_t at = static_cast<size_t>(task) * kPiece;
        std::memcpy(dst_.get() + at, src_.get() + at, std::min(kPiece, bytes - at));
      });
    });
    return 2 * static_cast<double>(bytes) / time;
  }

  ThreadPool pool_;
  Stream stream_;
  std::string wanted_;
  KernelRegistry registry_;
  TensorType unit_;
  Buffer src_, dst_;
};

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  tandem::Bench bench(argc > 1 ? std::atoi(argv[1]) : 0, argc > 2 ? argv[2] : "");
  for (const auto storage : {tandem::DType::F32, tandem::DType::BF16}) {
    for (const int64_t width : {384, 1536}) bench.run_all(storage, 4096, width);
  }
}
