// Matrix products of the cpu-gpt and cpu-llama steps: GFLOP/s and fraction of the multiply-add peak measured
// in the same run, ours and (where its headers are installed) BLIS on one thread, then ours on two. Where
// fp32 products use AMX, the same product by AVX-512 stands at the end.
//   gemm_bench [--bf16] [m n k trans_a trans_b]
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/kernels/cpu/gemm/gemm.h"

#ifdef TANDEM_BENCH_BLIS
#include <blis.h>
#endif

namespace {

using namespace tandem;
using namespace tandem::cpu;

struct Case {
  const char* name;
  int64_t m, n, k;
  bool trans_a, trans_b;
};

// Rows are tokens: 16 x 256 for cpu-gpt, 8 x 256 for cpu-llama. Forward multiplies by a transposed [out, in]
// weight, the input's gradient by the weight as it is, the weight's gradient has a transposed left operand.
constexpr Case kCases[] = {
    {"gpt qkv", 4096, 1152, 384, false, true},          {"gpt proj", 4096, 384, 384, false, true},
    {"gpt up", 4096, 1536, 384, false, true},           {"gpt down", 4096, 384, 1536, false, true},
    {"gpt head", 4096, 256, 384, false, true},          {"gpt d up", 4096, 384, 1536, false, false},
    {"gpt d down", 4096, 1536, 384, false, false},      {"gpt d qkv", 4096, 384, 1152, false, false},
    {"gpt dW up", 1536, 384, 4096, true, false},        {"gpt dW down", 384, 1536, 4096, true, false},
    {"gpt dW proj", 384, 384, 4096, true, false},       {"llama qkv", 2048, 1024, 512, false, true},
    {"llama gate_up", 2048, 2816, 512, false, true},    {"llama down", 2048, 512, 1408, false, true},
    {"llama d gate_up", 2048, 512, 2816, false, false}, {"llama dW gate_up", 2816, 512, 2048, true, false},
    {"llama head", 2048, 4096, 512, false, true},
};

double now(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// One thread is timed by its own CPU clock, which stops while another process has the core.
double seconds(clockid_t clock, const std::function<void()>& fn) {
  const double start = now(clock);
  fn();
  return now(clock) - start;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

#ifdef TANDEM_BENCH_BLIS
void blis_gemm(const Case& shape, const float* a, const float* b, float* c) {
  rntm_t runtime;
  bli_rntm_init(&runtime);
  bli_rntm_set_num_threads(1, &runtime);
  bli_rntm_disable_l3_sup(&runtime);
  float one = 1, zero = 0;
  bli_sgemm_ex(BLIS_NO_TRANSPOSE, BLIS_NO_TRANSPOSE, shape.m, shape.n, shape.k, &one, const_cast<float*>(a),
               shape.trans_a ? 1 : shape.k, shape.trans_a ? shape.m : 1, const_cast<float*>(b),
               shape.trans_b ? 1 : shape.n, shape.trans_b ? shape.k : 1, &zero, c, shape.n, 1, nullptr,
               &runtime);
}
#endif

void bench(const Case& shape, DType dtype, double peak) {
  const auto [name, m, n, k, trans_a, trans_b] = shape;
  std::vector<float> a(static_cast<size_t>(m * k)), b(static_cast<size_t>(k * n)),
      c(static_cast<size_t>(m * n));
  for (std::vector<float>* values : {&a, &b}) {
    for (size_t i = 0; i < values->size(); ++i)
      (*values)[i] = static_cast<float>(i * 2654435761u % 1024) / 512 - 1;
  }
  if (dtype == DType::BF16) {
    for (std::vector<float>* values : {&a, &b}) {
      auto* halves = reinterpret_cast<BFloat16*>(values->data());
      for (size_t i = 0; i < values->size(); ++i) halves[i] = to_bfloat16((*values)[i]);
    }
  }
  GemmArgs args;
  args.m = m, args.n = n, args.k = k;
  args.a = {a.data(), dtype, trans_a ? 1 : k, trans_a ? m : 1};
  args.b = {b.data(), dtype, trans_b ? 1 : n, trans_b ? k : 1};
  args.c = c.data(), args.c_dtype = trans_a ? DType::F32 : dtype, args.ldc = n;
  GemmArgs plain = args;
  plain.isa = Isa::Avx512;
  const bool split = dtype == DType::F32 && args.isa == Isa::Amx;
  ThreadPool one(1), two(2);
  const size_t needed = gemm_workspace({m, n, k, dtype, dtype, args.c_dtype}, 2);
  const size_t plain_needed = gemm_workspace({m, n, k, dtype, dtype, args.c_dtype, plain.isa}, 1);
  std::vector<std::byte> workspace(std::max(needed, plain_needed) + 64);
  void* base = workspace.data();
  size_t space = workspace.size();
  std::align(64, space - 64, base, space);
  const std::span<std::byte> aligned(static_cast<std::byte*>(base), space);

  // Interleaved, so that a slow moment of the machine touches all alike.
  std::vector<double> ours, ours2, blis, avx512;
  for (int round = 0; round < 9; ++round) {
    ours.push_back(seconds(CLOCK_THREAD_CPUTIME_ID, [&] { gemm(args, aligned, one); }));
    ours2.push_back(seconds(CLOCK_MONOTONIC, [&] { gemm(args, aligned, two); }));
    if (split) avx512.push_back(seconds(CLOCK_THREAD_CPUTIME_ID, [&] { gemm(plain, aligned, one); }));
#ifdef TANDEM_BENCH_BLIS
    if (dtype == DType::F32) {
      blis.push_back(
          seconds(CLOCK_THREAD_CPUTIME_ID, [&] { blis_gemm(shape, a.data(), b.data(), c.data()); }));
    }
#endif
  }
  const double flops = 2e-9 * static_cast<double>(m * n * k);
  const auto gflops = [&](const std::vector<double>& times) {
    return times.empty() ? 0 : flops / median(times);
  };
  fmt::print("{:<17}{:>5} x{:>5} x{:>5} {}{} {:>8.1f} {:>6.3f} {:>9.1f} {:>6.3f} {:>7.2f} {:>9.1f} {:>6.3f}",
             name, m, n, k, trans_a ? 'T' : 'N', trans_b ? 'T' : 'N', gflops(ours), gflops(ours) / peak,
             gflops(blis), gflops(blis) / peak, blis.empty() ? 0 : gflops(ours) / gflops(blis), gflops(ours2),
             gflops(ours2) / gflops(ours));
  if (split) fmt::print(" {:>8.1f} {:>6.2f}", gflops(avx512), gflops(ours) / gflops(avx512));
  fmt::print("\n");
}

}  // namespace

int main(int argc, char** argv) try {
  const bool bf16 = argc > 1 && std::string_view(argv[1]) == "--bf16";
  const DType dtype = bf16 ? DType::BF16 : DType::F32;
  const double peak = measure_peak(selected_isa(), dtype, 1);
  fmt::print("{} on {}: peak of one core {:.1f} GFLOP/s\n", dtype_name(dtype), isa_name(selected_isa()),
             peak);
  fmt::print("{:<17}{:<23} {:>7} {:>6} {:>9} {:>6} {:>7} {:>9} {:>6}", "product", "    m      n      k op",
             "ours", "/peak", "BLIS", "/peak", "ratio", "2 threads", "scale");
  fmt::print("{}\n", !bf16 && selected_isa() == Isa::Amx ? "   avx512  ratio" : "");
  if (argc - bf16 == 6) {
    char** at = argv + 1 + bf16;
    bench({"", std::atoll(at[0]), std::atoll(at[1]), std::atoll(at[2]), std::atoi(at[3]) != 0,
           std::atoi(at[4]) != 0},
          dtype, peak);
    return 0;
  }
  for (const Case& shape : kCases) bench(shape, dtype, peak);
  return 0;
} catch (const tandem::Error& error) {
  fmt::print(stderr, "gemm_bench: {}\n", error.what());
  return static_cast<int>(error.exit_code());
}
