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

}  // namespace

void fill_initial(std::span<std::byte> dst, const TensorType& type, std::string_view init, uint64_t seed,
                  std::string_view key, ThreadPool& pool) {
  if (init == "zeros") {
    std::memset(dst.data(), 0, dst.size());
    return;
  }
  const int64_t elems = type.shape.elems();
  if (init == "ones") {
    for (int64_t i = 0; i < elems; ++i) store(dst.data(), type.dtype, i, 1.0f);
    return;
  }
  constexpr std::string_view kNormal = "normal:";
  TANDEM_CHECK(init.starts_with(kNormal), "init '{}'", init);
  const std::string_view number = init.substr(kNormal.size());
  float std = 0;
  std::from_chars(number.data(), number.data() + number.size(), std);
  const Rng rng(seed, hash_name(key));
  pool.parallel_for((elems + kChunk - 1) / kChunk, [&](int64_t chunk, int) {
    const int64_t end = std::min(elems, (chunk + 1) * kChunk);
    for (int64_t i = chunk * kChunk; i < end; i += 4) {
      float normals[4];
      rng.normals(static_cast<uint64_t>(i / 4), normals);
      for (int64_t j = 0; j < 4 && i + j < end; ++j) store(dst.data(), type.dtype, i + j, std * normals[j]);
    }
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
