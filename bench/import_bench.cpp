// How fast a Hugging Face directory becomes weights in memory, in bytes of its files, which lie in the page
// cache: by reading into small buffers, as HubWeights does, and through a map of the files, as it did before.
//   import_bench DIR [THREADS] [ROUNDS]        python3 bench/make_directory.py DIR --shape 1b writes one
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "tandem/base/split_float.h"
#include "tandem/base/thread_pool.h"
#include "tandem/hub/hub_dtype.h"
#include "tandem/hub/hub_weights.h"

namespace {

using namespace tandem;

// Rows of a parameter and their place in memory.
struct Part {
  const hub::ParamSources* param;
  Box box;
  size_t first;  // element of the memory
};

std::vector<Part> parts_of(const hub::HubWeights& weights, size_t* total) {
  constexpr int64_t kElems = 1 << 20;
  std::vector<Part> parts;
  for (const hub::ParamSources& param : weights.params()) {
    const Box all = whole_box(param.shape);
    const int64_t step = std::max<int64_t>(1, kElems / all.cols());
    for (int64_t row = 0; row < all.row_end; row += step) {
      const Box box{row, std::min(all.row_end, row + step), 0, all.col_end};
      parts.push_back({&param, box, *total});
      *total += static_cast<size_t>(box.elems());
    }
  }
  return parts;
}

std::span<std::byte> allocate(size_t bytes) {
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) std::abort();
  ::madvise(data, bytes, MADV_HUGEPAGE);
  std::memset(data, 0, bytes);
  return {static_cast<std::byte*>(data), bytes};
}

// Of bf16 files, as it was: pages are brought in, converted, and given back.
void read_mapped(const hub::HubWeights& weights, const Part& part, std::span<std::byte> memory, bool halves,
                 size_t total) {
  const int64_t cols = part.box.cols();
  int64_t row = 0;
  for (const hub::Source& source : part.param->parts) {
    const int64_t begin = std::max(row, part.box.row_begin),
                  end = std::min(row + source.rows, part.box.row_end);
    if (begin < end) {
      const auto from = static_cast<size_t>((begin - row) * cols),
                 count = static_cast<size_t>((end - begin) * cols);
      const size_t to = part.first + static_cast<size_t>((begin - part.box.row_begin) * cols);
      const auto pages = weights.tensors().find(source.tensor)->bytes.subspan(from * 2, count * 2);
      expect_pages(pages);
      if (halves) {
        std::memcpy(memory.data() + to * 2, pages.data(), count * 2);
        std::memset(memory.data() + (total + to) * 2, 0, count * 2);
      } else {
        constexpr size_t kChunk = 1 << 16;
        std::vector<float> floats(kChunk);
        for (size_t at = 0; at < count; at += kChunk) {
          const size_t some = std::min(kChunk, count - at);
          const std::byte* src = pages.data() + at * 2;
          const volatile size_t stride = 2;  // was not known when it was compiled
          const size_t apart = stride;
          for (size_t i = 0; i < some; ++i) {
            BFloat16 value;
            std::memcpy(&value, src + i * apart, 2);
            floats[i] = to_float(value);
          }
          std::memcpy(memory.data() + (to + at) * 4, floats.data(), some * 4);
        }
      }
      release_pages(pages);
    }
    row += source.rows;
  }
}

void read_now(const hub::HubWeights& weights, const Part& part, std::span<std::byte> memory, bool halves,
              size_t total) {
  const auto count = static_cast<size_t>(part.box.elems());
  TensorTarget target{part.param->name, DType::F32, part.param->shape, part.box, {}};
  if (halves) {
    target.bytes = memory.subspan(part.first * 2, count * 2);
    target.low = memory.subspan((total + part.first) * 2, count * 2);
  } else {
    target.bytes = memory.subspan(part.first * 4, count * 4);
  }
  weights.read(target);
}

double now_of(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// By the clock, and of one core's own time, which others on the machine take nothing of.
struct Seconds {
  std::vector<double> wall, core;

  static double median(std::vector<double> list) {
    std::sort(list.begin(), list.end());
    return list[list.size() / 2];
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "import_bench DIR [THREADS] [ROUNDS]\n"), 2;
  const int threads = argc > 2 ? std::stoi(argv[2]) : 2, rounds = argc > 3 ? std::stoi(argv[3]) : 5;
  const hub::HubConfig config = hub::read_config_json(argv[1]);
  const hub::HubWeights weights(argv[1], *config.family, config.model);
  if (weights.dtype() != DType::BF16) return std::fprintf(stderr, "expected weights of BF16\n"), 2;
  size_t total = 0;
  const std::vector<Part> parts = parts_of(weights, &total);
  const std::span<std::byte> memory = allocate(total * 4);
  ThreadPool pool(threads);
  for (bool halves : {false, true}) {
    Seconds seconds[2];
    for (int round = 0; round < rounds; ++round) {
      for (int now : {0, 1}) {
        const double wall = now_of(CLOCK_MONOTONIC), core = now_of(CLOCK_PROCESS_CPUTIME_ID);
        pool.parallel_for(static_cast<int64_t>(parts.size()), [&](int64_t i, int) {
          (now ? read_now : read_mapped)(weights, parts[static_cast<size_t>(i)], memory, halves, total);
        });
        seconds[now].wall.push_back(now_of(CLOCK_MONOTONIC) - wall);
        seconds[now].core.push_back(now_of(CLOCK_PROCESS_CPUTIME_ID) - core);
      }
    }
    const double bytes = static_cast<double>(total) * 2e-9;
    std::printf("%s\n", halves ? "bf16 with low halves" : "fp32");
    for (int now : {0, 1})
      std::printf("  %-6s  %5.2f GB/s, %5.2f GB a second of a core\n", now ? "read" : "mapped",
                  bytes / Seconds::median(seconds[now].wall), bytes / Seconds::median(seconds[now].core));
    std::printf("  ratio   %5.2f, %5.2f\n",
                Seconds::median(seconds[0].wall) / Seconds::median(seconds[1].wall),
                Seconds::median(seconds[0].core) / Seconds::median(seconds[1].core));
  }
}
