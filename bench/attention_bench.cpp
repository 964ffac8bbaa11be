// Speed of fused attention on one thread, as a share of the fused multiply-add peak measured in the same run.
// Work is counted by formula, half for the causal mask: 4 B h T T hd / 2 forward, 2.5 times that backward.
#include <fmt/format.h>

#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <vector>

#include "tandem/base/rng.h"
#include "tandem/kernels/cpu/register.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/attention_bench.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Independent chains of multiply-adds in registers; returns how many floating-point operations they were.
double multiply_adds(int64_t repeats, float* sink) {
  const hn::ScalableTag<float> d;
  const auto x = hn::Set(d, sink[0]);
  const auto y = hn::Set(d, sink[1]);
  // Different starts, or the compiler would keep one chain only.
  auto a = x, b = y, c = hn::Add(x, y), e = hn::Sub(x, y), f = hn::Mul(x, y), g = hn::Add(c, y);
  auto h = hn::Add(g, y), i = hn::Add(h, y), j = hn::Add(i, y), k = hn::Add(j, y);
  for (int64_t n = 0; n < repeats; ++n) {
    a = hn::MulAdd(a, y, x);
    b = hn::MulAdd(b, y, x);
    c = hn::MulAdd(c, y, x);
    e = hn::MulAdd(e, y, x);
    f = hn::MulAdd(f, y, x);
    g = hn::MulAdd(g, y, x);
    h = hn::MulAdd(h, y, x);
    i = hn::MulAdd(i, y, x);
    j = hn::MulAdd(j, y, x);
    k = hn::MulAdd(k, y, x);
  }
  const auto sum = hn::Add(hn::Add(hn::Add(a, b), hn::Add(c, e)), hn::Add(hn::Add(f, g), hn::Add(h, i)));
  sink[2] = hn::GetLane(hn::Add(sum, hn::Add(j, k)));
  return 20.0 * static_cast<double>(repeats) * static_cast<double>(hn::Lanes(d));
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem {
HWY_EXPORT(multiply_adds);
namespace {

// Processor time, so that other work on the machine disturbs little.
double cpu_seconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

template <typename Fn>
double best_seconds(Fn&& fn) {
  double best = 1e30;
  const double begin = cpu_seconds();
  for (int i = 0; i < 3 || cpu_seconds() - begin < 1.0; ++i) {
    const double start = cpu_seconds();
    fn();
    best = std::min(best, cpu_seconds() - start);
  }
  return best;
}

double peak_flops() {
  float sink[3] = {0.5f, 0.25f, 0.0f};
  double operations = 0;
  const double seconds =
      best_seconds([&] { operations = HWY_DYNAMIC_DISPATCH(multiply_adds)(200'000, sink); });
  return operations / seconds;
}

struct Buffer {
  TensorArg arg;
  std::unique_ptr<std::byte, decltype(&std::free)> memory{nullptr, &std::free};
  explicit Buffer(TensorType type) : Buffer(static_cast<size_t>(type.bytes())) { arg.type = std::move(type); }
  explicit Buffer(size_t bytes) {
    memory.reset(static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64)));
    arg.data = memory.get();
  }
};

void fill_random(const TensorArg& arg, uint64_t stream) {
  const Rng rng(7, stream);
  for (int64_t i = 0; i < arg.elems(); ++i) {
    const float value = rng.uniform(static_cast<uint64_t>(i)) * 2.0f - 1.0f;
    if (arg.type.dtype == DType::F32) arg.as<float>()[i] = value;
    if (arg.type.dtype == DType::BF16) arg.as<BFloat16>()[i] = to_bfloat16(value);
  }
}

struct Case {
  const char* name;
  int64_t batch, tokens, heads, kv_heads, head_dim;
};

double time_kernel(const char* name, Op op, std::vector<TensorArg> in, std::vector<TensorArg> out,
                   const Attrs& attrs) {
  KernelRegistry registry;
  cpu::add_attention_kernels(registry);
  const Kernel& kernel = registry.by_name(name);
  CallSignature call{op, {}, {}, &attrs};
  for (const TensorArg& arg : in) call.in.push_back(arg.type);
  for (const TensorArg& arg : out) call.out.push_back(arg.type);
  const Buffer workspace(kernel.workspace(call, 1));
  ThreadPool pool(1);
  Stream stream(pool);
  const KernelArgs args{in, out, attrs, {workspace.arg.as<std::byte>(), kernel.workspace(call, 1)}};
  return best_seconds([&] { kernel.run(args, stream); });
}

void run_case(const Case& c, DType dtype, double peak) {
  const Attrs attrs(
      {{"heads", c.heads}, {"kv_heads", c.kv_heads}, {"causal", int64_t{1}}, {"theta", 10000.0}});
  const Buffer qkv(TensorType{dtype, {c.batch, c.tokens, (c.heads + 2 * c.kv_heads) * c.head_dim}});
  const Buffer dqkv(qkv.arg.type);
  const Buffer out(TensorType{dtype, {c.batch, c.tokens, c.heads * c.head_dim}});
  const Buffer dout(out.arg.type);
  const Buffer lse(TensorType{DType::F32, {c.batch, c.heads, c.tokens}});
  fill_random(qkv.arg, 1);
  fill_random(dout.arg, 2);
  const double forward = time_kernel("cpu.attention", Op::Attention, {qkv.arg}, {out.arg, lse.arg}, attrs);
  const double backward = time_kernel("cpu.attention_grad", Op::AttentionGrad,
                                      {dout.arg, qkv.arg, out.arg, lse.arg}, {dqkv.arg}, attrs);
  const double rope = time_kernel("cpu.rope", Op::Rope, {dqkv.arg}, {dqkv.arg}, attrs);
  const double work = 2.0 * static_cast<double>(c.batch * c.heads * c.tokens * c.tokens * c.head_dim);
  fmt::print(
      "{:<10} {:<5} forward {:8.3f} ms {:6.1f} GFLOP/s {:.3f} of peak | backward {:8.3f} ms {:6.1f} GFLOP/s "
      "{:.3f} of peak | rope {:6.3f} ms\n",
      c.name, dtype_name(dtype), forward * 1e3, work / forward * 1e-9, work / forward / peak, backward * 1e3,
      2.5 * work / backward * 1e-9, 2.5 * work / backward / peak, rope * 1e3);
}

}  // namespace
}  // namespace tandem

int main() {
  using namespace tandem;
  const double peak = peak_flops();
  fmt::print("peak {:.1f} GFLOP/s on one thread\n", peak * 1e-9);
  for (const DType dtype : {DType::F32, DType::BF16}) {
    run_case({"cpu-gpt", 16, 256, 6, 6, 64}, dtype, peak);
    run_case({"cpu-llama", 8, 256, 8, 4, 64}, dtype, peak);
    run_case({"long", 1, 2048, 4, 2, 64}, dtype, peak);
    run_case({"wide", 2, 512, 4, 4, 128}, dtype, peak);
  }
}
#endif
