#include "tandem/runtime/initialize.h"

#include <charconv>
#include <cstring>

#include "tandem/base/error.h"
#include "tandem/base/rng.h"

namespace tandem {
namespace {

constexpr int64_t kChunk = 1 << 16;  // elements a task

void store(std::byte* dst, DType dtype, int64_t i, float value) {
  switch (dtype) {
    case DType::F32: reinterpret_cast<float*>(dst)[i] = value; return;
    case DType::BF16: reinterpret_cast<BFloat16*>(dst)[i] = to_bfloat16(value); return;
    case DType::F16: reinterpret_cast<Half*>(dst)[i] = to_half(value); return;
    case DType::F64: reinterpret_cast<double*>(dst)[i] = value; return;
    default: TANDEM_CHECK(false, "cannot initialise {}", dtype_name(dtype));
  }
}

// Elements [begin, end) of a tensor of normal numbers, to dst from element `at` on.
void fill_normal(std::byte* dst, DType dtype, int64_t at, int64_t begin, int64_t end, const Rng& rng,
                 float std) {
  for (int64_t i = begin; i < end;) {
    float normals[4];
    rng.normals(static_cast<uint64_t>(i / 4), normals);
    for (int64_t j = i % 4; j < 4 && i < end; ++j, ++i) store(dst, dtype, at + i - begin, std * normals[j]);
  }
}

}  // namespace

void fill_initial(std::span<std::byte> buffer, DType dtype, const Piece& piece, uint64_t seed,
                  ThreadPool& pool) {
  const std::string_view init = piece.init;
  const Box& box = piece.box;
  const int64_t elems = box.elems();
  if (init == "zeros") {
    const auto size = static_cast<size_t>(dtype_bytes(dtype));
    std::memset(buffer.data() + static_cast<size_t>(piece.offset) * size, 0,
                static_cast<size_t>(elems) * size);
    return;
  }
  if (init == "ones") {
    for (int64_t i = 0; i < elems; ++i) store(buffer.data(), dtype, piece.offset + i, 1.0f);
    return;
  }
  constexpr std::string_view kNormal = "normal:";
  TANDEM_CHECK(init.starts_with(kNormal), "init '{}'", init);
  const std::string_view number = init.substr(kNormal.size());
  float std = 0;
  std::from_chars(number.data(), number.data() + number.size(), std);
  const Rng rng(seed, hash_name(piece.tensor));
  const int64_t row_elems = piece.shape.elems() / std::max<int64_t>(1, piece.shape[0]);
  // Whole rows lie one after the other in the tensor too: one run. Otherwise each row is a run.
  const bool whole_rows = box.cols() == row_elems;
  const int64_t runs = whole_rows ? 1 : box.rows(), run_elems = whole_rows ? elems : box.cols();
  const int64_t chunks = (run_elems + kChunk - 1) / kChunk;
  pool.parallel_for(runs * chunks, [&](int64_t task, int) {
    const int64_t run = task / chunks, first = task % chunks * kChunk;
    const int64_t last = std::min(run_elems, first + kChunk);
    const int64_t start = (box.row_begin + run) * row_elems + box.col_begin;
    fill_normal(buffer.data(), dtype, piece.offset + run * run_elems + first, start + first, start + last,
                rng, std);
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
