#include "tandem/kernels/cpu/cpu_features.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <cstdlib>
#include <ctime>
#include <numeric>
#include <thread>
#include <vector>

#include "hwy/targets.h"
#include "tandem/base/error.h"
#include "tandem/kernels/cpu/gemm/gemm_engine.h"

namespace tandem::cpu {
namespace {

constexpr Isa kLevels[] = {Isa::Portable, Isa::Avx2, Isa::Avx512, Isa::Avx512Bf16, Isa::Amx};

// Tile registers are 8 KiB a thread, so Linux saves them only for processes that ask.
bool request_amx() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return false;
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;
  if ((edx & kAmxBf16) == 0 || (edx & kAmxTile) == 0) return false;
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

Isa detect() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("f16c")) {
    return Isa::Portable;
  }
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl");
  if (!avx512) return Isa::Avx2;
  if (!__builtin_cpu_supports("avx512bf16")) return Isa::Avx512;
  return request_amx() ? Isa::Amx : Isa::Avx512Bf16;
}

Isa select() {
  const Isa detected = detected_isa();
  const char* name = std::getenv("TANDEM_ISA");
  if (name == nullptr || *name == '\0') return detected;
  const auto* level =
      std::find_if(std::begin(kLevels), std::end(kLevels), [&](Isa isa) { return isa_name(isa) == name; });
  if (level == std::end(kLevels)) {
    throw ConfigError("TANDEM_ISA: expected portable, avx2, avx512, avx512_bf16 or amx, found '{}'", name);
  }
  if (*level > detected) {
    throw DeviceError(
        "TANDEM_ISA: '{}' asked for, but this CPU supports no more than {}; unset it or lower it", name,
        isa_name(detected));
  }
  // The other kernels dispatch through Highway, whose levels end at AVX-512.
  if (*level < Isa::Avx512) hwy::DisableTargets(HWY_AVX3 | HWY_AVX3_DL);
  if (*level < Isa::Avx2) hwy::DisableTargets(HWY_AVX3 | HWY_AVX3_DL | HWY_AVX2 | HWY_SSE4 | HWY_SSSE3);
  return *level;
}

// The best of several short runs, by a clock that stops while another process has the core: whatever else
// disturbs a run only ever slows it down.
double best_gflops(const GemmEngine& engine) {
  const auto now = [] {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const auto seconds = [&](int64_t rounds) {
    const double start = now();
    engine.burn(rounds);
    return now() - start;
  };
  int64_t rounds = 1000;
  while (seconds(rounds) < 2e-3) rounds *= 2;
  double best = seconds(rounds);
  for (int run = 0; run < 11; ++run) best = std::min(best, seconds(rounds));
  return static_cast<double>(rounds) * engine.burn_flops / best * 1e-9;
}

}  // namespace

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::Portable: return "portable";
    case Isa::Avx2: return "avx2";
    case Isa::Avx512: return "avx512";
    case Isa::Avx512Bf16: return "avx512_bf16";
    case Isa::Amx: return "amx";
  }
  return "?";
}

Isa detected_isa() {
  static const Isa isa = detect();
  return isa;
}

Isa selected_isa() {
  static const Isa isa = select();
  return isa;
}

double measure_peak(Isa isa, DType storage, int num_threads) {
  const GemmEngine& engine = gemm_engine(isa, storage);
  std::vector<double> each(static_cast<size_t>(num_threads));
  std::barrier start(num_threads);
  const auto run = [&](size_t thread) {
    start.arrive_and_wait();
    each[thread] = best_gflops(engine);
  };
  {
    std::vector<std::jthread> others;
    for (size_t thread = 1; thread < each.size(); ++thread) others.emplace_back(run, thread);
    run(0);
  }
  return std::accumulate(each.begin(), each.end(), 0.0);
}

}  // namespace tandem::cpu
