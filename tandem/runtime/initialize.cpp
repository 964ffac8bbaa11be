#include "tandem/runtime/initialize.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <span>
#include <string_view>

#include "tandem/base/error.h"
#include "tandem/base/rng.h"
#include "tandem/base/split_float.h"

namespace tandem {
namespace {

constexpr int64_t kChunk = 1 << 16;  // elements a task

void store(std::byte* dst, DType dtype, int64_t i, float value) {
  switch (dtype) {
    case DType::F32: reinterpret_cast<float*>(dst)[i] = value; return;
    case DType::BF16: reinterpret_cast<BFloat16*>(dst)[i].bits = split_float(value).high; return;
    case DType::I16: reinterpret_cast<int16_t*>(dst)[i] = split_float(value).low; return;
    case DType::F16: reinterpret_cast<Half*>(dst)[i] = to_half(value); return;
    case DType::F64: reinterpret_cast<double*>(dst)[i] = value; return;
    default: TANDEM_CHECK(false, "cannot initialise {}", dtype_name(dtype));
  }
}

// Elements [begin, end) of a tensor, to dst from element `at` on.
void fill(std::byte* dst, DType dtype, int64_t at, int64_t begin, int64_t end, const StartingValues& values) {
  constexpr int64_t kMade = 1024;  // at a time
  const Rng rng(values.seed, values.stream);
  float made[kMade];
  std::fill_n(made, kMade, 1.0f);
  for (int64_t i = begin; i < end;) {
    const int64_t skipped = i % 4;  // of the first block
    const int64_t count = std::min(kMade - skipped, end - i);
    if (values.normal) {
      rng.normals(static_cast<uint64_t>(i / 4),
                  std::span(made, static_cast<size_t>((skipped + count + 3) / 4 * 4)));
      for (float& x : made) x *= values.std;
    }
    for (int64_t j = 0; j < count; ++j, ++i) store(dst, dtype, at + i - begin, made[skipped + j]);
  }
}

}  // namespace

void fill_zeros(std::span<std::byte> dst, ThreadPool& pool) {
  constexpr size_t kBytes = size_t{4} << 20;
  pool.parallel_for(static_cast<int64_t>((dst.size() + kBytes - 1) / kBytes), [&](int64_t task, int) {
    const auto first = static_cast<size_t>(task) * kBytes;
    std::memset(dst.data() + first, 0, std::min(kBytes, dst.size() - first));
  });
}

StartingValues starting_values(const Piece& piece, uint64_t seed) {
  const Box& box = piece.box;
  const int64_t row_elems = whole_box(piece.shape).cols();
  // Whole rows lie one after the other in the tensor too: one run. Otherwise each row is a run.
  const bool whole_rows = box.cols() == row_elems;
  StartingValues values{.offset = piece.offset,
                        .num_runs = whole_rows ? 1 : box.rows(),
                        .run_elems = whole_rows ? box.elems() : box.cols(),
                        .first = box.row_begin * row_elems + box.col_begin,
                        .stride = row_elems,
                        .normal = piece.init != "ones",
                        .std = 1,
                        .seed = seed,
                        .stream = hash_name(piece.tensor)};
  if (values.normal) {
    constexpr std::string_view kNormal = "normal:";
    TANDEM_CHECK(piece.init.starts_with(kNormal), "init '{}'", piece.init);
    const std::string_view number = std::string_view(piece.init).substr(kNormal.size());
    std::from_chars(number.data(), number.data() + number.size(), values.std);
  }
  return values;
}

void fill_initial(std::byte* buffer, DType dtype, const Piece& piece, uint64_t seed, ThreadPool& pool) {
  const StartingValues values = starting_values(piece, seed);
  const int64_t chunks = (values.run_elems + kChunk - 1) / kChunk;
  pool.parallel_for(values.num_runs * chunks, [&](int64_t task, int) {
    const int64_t run = task / chunks, first = task % chunks * kChunk;
    const int64_t last = std::min(values.run_elems, first + kChunk);
    const int64_t start = values.first + run * values.stride;
    fill(buffer, dtype, values.offset + run * values.run_elems + first, start + first, start + last, values);
  });
}

void round_to(std::span<std::byte> dst, DType dtype, std::span<const std::byte> src_f32, ThreadPool& pool) {
  const auto elems = static_cast<int64_t>(src_f32.size() / sizeof(float));
  const auto* src = reinterpret_cast<const float*>(src_f32.data());
  pool.parallel_for((elems + kChunk - 1) / kChunk, [&](int64_t chunk, int) {
    const int64_t end = std::min(elems, (chunk + 1) * kChunk);
    for (int64_t i = chunk * kChunk; i < end; ++i) store(dst.data(), dtype, i, src[i]);
  });
}

}  // namespace tandem
