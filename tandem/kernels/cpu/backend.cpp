#include "tandem/kernels/cpu/backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <numeric>
#include <vector>

#include "tandem/kernels/cpu/cpu_features.h"
#include "tandem/kernels/cpu/register.h"
#include "tandem/runtime/host_device.h"

namespace tandem::cpu {
namespace {

// Bytes read plus written per second by plain copies of blocks far larger than the caches.
double measure_copy(int num_threads) {
  constexpr int64_t kBytes = 64 << 20, kChunk = 1 << 20;
  std::vector<std::byte> src(kBytes, std::byte{1}), dst(kBytes);
  ThreadPool pool(num_threads);
  double best = 0;
  for (int trial = 0; trial < 5; ++trial) {
    const auto start = std::chrono::steady_clock::now();
    pool.parallel_for(kBytes / kChunk, [&](int64_t i, int) {
      std::memcpy(&dst[static_cast<size_t>(i * kChunk)], &src[static_cast<size_t>(i * kChunk)], kChunk);
    });
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    best = std::max(best, 2.0 * kBytes / spent.count());
  }
  return best;
}

// Bytes read per second of a block far larger than the caches.
double measure_read(int num_threads) {
  constexpr int64_t kBytes = 256 << 20, kChunk = 1 << 20, kLanes = 32;
  const std::vector<uint32_t> src(kBytes / sizeof(uint32_t), 1);
  constexpr auto kChunkWords = static_cast<int64_t>(kChunk / sizeof(uint32_t));
  ThreadPool pool(num_threads);
  std::vector<uint32_t> sums(kBytes / kChunk);  // so that nothing is left out
  double best = 0;
  for (int trial = 0; trial < 5; ++trial) {
    const auto start = std::chrono::steady_clock::now();
    pool.parallel_for(kBytes / kChunk, [&](int64_t task, int) {
      const uint32_t* words = src.data() + task * kChunkWords;
      std::array<uint32_t, kLanes> lanes{};
      for (int64_t i = 0; i < kChunkWords; i += kLanes) {
        for (int64_t lane = 0; lane < kLanes; ++lane) lanes[static_cast<size_t>(lane)] ^= words[i + lane];
      }
      for (uint32_t lane : lanes) sums[static_cast<size_t>(task)] += lane;
    });
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    best = std::max(best, static_cast<double>(kBytes) / spent.count());
  }
  return std::accumulate(sums.begin(), sums.end(), uint32_t{0}) == 1 ? 0 : best;
}

}  // namespace

Backend make_backend() {
  const Isa isa = selected_isa();
  Backend backend;
  backend.name = "cpu";
  backend.description = fmt::format("cpu {}", isa_name(isa));
  backend.kernels = all_kernels();
  backend.make_device = [](ThreadPool& pool, const Communicators* comms) {
    return std::make_unique<HostDevice>(pool, comms);
  };
  backend.peak_flops = [isa](DType storage, int num_threads) {
    return 1e9 * measure_peak(isa, storage, num_threads);
  };
  backend.copy_bandwidth = measure_copy;
  backend.read_bandwidth = measure_read;
  return backend;
}

}  // namespace tandem::cpu
