// Calls of the ops that generation is made of, for the tests of every device. Inputs are standard normals.
#pragma once

#include "tandem/kernels/cpu/pointwise/pointwise_test.h"

namespace tandem::cpu {

inline HostTensor position_of(int64_t first, int64_t real) {
  HostTensor position(DType::I32, {2});
  ref::set(position.arg(), 0, static_cast<double>(first));
  ref::set(position.arg(), 1, static_cast<double>(real));
  return position;
}

struct CachedCase {
  int64_t batch, rows, heads, kv_heads, head_dim, slots, first, real;
  DType dtype = DType::F32;
  int64_t window = 0;
  double softcap = 0, scale = 0;

  std::string describe() const {
    return fmt::format(
        "B {} T {} heads {}/{} of {}, {} slots, {} rows from {} on, {}, window {}, cap {}, scale {}", batch,
        rows, heads, kv_heads, head_dim, slots, real, first, dtype_name(dtype), window, softcap, scale);
  }

  // The cache holds numbers everywhere, also where nobody may look.
  Call call() const {
    Attrs attrs{{"heads", heads}, {"kv_heads", kv_heads}};
    if (window != 0) attrs.set("window", window);
    if (softcap != 0) attrs.set("softcap", softcap);
    if (scale != 0) attrs.set("scale", scale);
    const Shape cache{batch, kv_heads, slots, head_dim};
    return {Op::CachedAttention,
            {random_tensor(dtype, {batch, rows, (heads + 2 * kv_heads) * head_dim}, 1),
             random_tensor(dtype, cache, 2), random_tensor(dtype, cache, 3), position_of(first, real)},
            {{dtype, {batch, rows, heads * head_dim}}, {dtype, cache}, {dtype, cache}},
            {-1, 1, 2},
            attrs};
  }
};

// One row and several, ragged heads and groups of every size, the first token, blocks that are just full,
// caches that are rings (slots >= window - 1 + rows), rows that are not real, several sequences.
inline std::vector<CachedCase> cached_cases() {
  std::vector<CachedCase> cases = {
      {1, 1, 1, 1, 4, 5, 0, 1},
      {1, 1, 9, 3, 64, 300, 0, 1, DType::BF16},
      {1, 1, 9, 3, 64, 300, 255, 1, DType::BF16},
      {1, 1, 9, 3, 64, 300, 256, 1, DType::F32},
      {1, 1, 9, 3, 64, 700, 699, 1, DType::F16},
      {1, 1, 32, 8, 64, 1030, 1029, 1, DType::BF16},
      {1, 1, 12, 1, 20, 600, 511, 1},
      {1, 1, 4, 4, 80, 600, 530, 1},
      {1, 1, 6, 2, 128, 520, 519, 1, DType::BF16},
      {1, 1, 2, 1, 192, 300, 280, 1},
      {1, 1, 5, 5, 256, 300, 280, 1},
      {2, 3, 4, 2, 6, 40, 17, 3},
      {2, 5, 4, 2, 6, 40, 17, 2},
      {1, 64, 9, 3, 64, 128, 0, 64, DType::BF16},
      {1, 64, 9, 3, 64, 600, 500, 37},
      {1, 33, 3, 1, 40, 600, 255, 33, DType::F16},
      {1, 1, 4, 2, 16, 20, 500, 1, DType::F32, 20},
      {1, 4, 4, 2, 16, 23, 501, 4, DType::F32, 20},
      {1, 4, 4, 2, 16, 23, 18, 3, DType::BF16, 20},
      {1, 64, 4, 1, 16, 363, 900, 64, DType::F32, 300},
      {1, 7, 4, 4, 16, 7, 30, 7, DType::F32, 1},
      {1, 5, 4, 2, 24, 50, 40, 5, DType::F32, 0, 1.5},
      {1, 5, 4, 2, 24, 50, 40, 5, DType::F32, 0, 0, 0.07},
      {1, 5, 4, 2, 24, 50, 40, 5, DType::F32, 11, 2.0, 0.3},
  };
  return cases;
}

// More slots than 64 blocks of 256 positions have.
inline CachedCase long_cached_case() { return {1, 2, 2, 1, 8, 20000, 19000, 2}; }

// A product with few rows, y = x w^T + bias, of elements of size about 1; y wider than its operands if asked.
inline Call few_rows_call(DType dtype, int64_t m, int64_t n, int64_t k, bool bias, bool wide) {
  Attrs attrs{{"trans_a", int64_t{0}}, {"trans_b", int64_t{1}}, {"few", int64_t{1}}};
  if (wide) attrs.set("wide", int64_t{1});
  Call call{Op::Matmul,
            {random_tensor(dtype, {1, m, k}, 1),
             random_tensor(dtype, {n, k}, 2, 1 / std::sqrt(static_cast<double>(k)))},
            {{wide ? DType::F32 : dtype, {1, m, n}}},
            {-1},
            attrs};
  if (bias) call.in.push_back(random_tensor(dtype, {n}, 3));
  return call;
}

// Rotary positions of rows that do not begin at 0; frequencies that depend on the whole context.
inline Call rope_at_call(DType dtype, int64_t rows, int64_t first) {
  const HostTensor qkv = random_tensor(dtype, {2, rows, (4 + 2 * 2) * 20}, 1);
  return {Op::Rope,
          {qkv, position_of(first, rows)},
          {qkv.type},
          {0},
          {{"heads", int64_t{4}},
           {"kv_heads", int64_t{2}},
           {"theta", 10000.0},
           {"dims", int64_t{8}},
           {"at", int64_t{1}},
           {"context", int64_t{64}},
           {"scaling",
            "longrope:short_factor=1 1.1 1.3 1.7,long_factor=1.5 2 3 4.5,"
            "original_max_position_embeddings=16,max_position_embeddings=64"}}};
}

// Learned positions from `first` on, of a table of 30.
inline Call embedding_at_call(DType dtype, int64_t rows, int64_t first) {
  return {Op::Embedding,
          {random_ids({2, rows}, 40, 1), random_tensor(dtype, {40, 31}, 2), random_tensor(dtype, {30, 31}, 3),
           position_of(first, rows)},
          {{dtype, {2, rows, 31}}},
          {-1},
          {{"at", int64_t{1}}}};
}

}  // namespace tandem::cpu
