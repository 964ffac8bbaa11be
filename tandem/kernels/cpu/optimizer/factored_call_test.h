// Calls of the ops that an update has where mean squares are kept by rows and columns, for the tests of all
// backends.
#pragma once

#include "tandem/ir/factored_parts.h"
#include "tandem/kernels/cpu/optimizer/matrix_call_test.h"

namespace tandem::cpu {

// Loss scale 2, clipped by norm and by value, a share of 0.25; Adafactor's own.
inline std::vector<HostTensor> factored_scalars(bool finite) {
  return {doubles(DType::F32, {0.01, 0.1, 3, 0.5, 2, 0.25, 0.25, -0.8, 1e-3, 1}),
          doubles(DType::F64, {2.5, finite ? 1.0 : 0.0})};
}

// A whole matrix, a piece that begins and ends within rows, columns of one, a vector, part of a vector.
struct FactoredPieces {
  std::vector<FactoredPart> parts;
  std::vector<int64_t> elems;  // of each piece
  int64_t size;                // of all numbers
};
inline FactoredPieces factored_pieces() {
  return {{{0, {37, 300}, {{0, {0, 37, 0, 300}}}},
           {337, {20, 24}, {{0, {3, 4, 10, 24}}, {14, {4, 9, 0, 24}}, {134, {9, 10, 0, 5}}}},
           {381, {16, 40}, {{0, {0, 16, 20, 40}}}},
           {437, {300, 0}, {{0, {0, 300, 0, 1}}}},
           {737, {50, 0}, {{0, {7, 20, 0, 1}}}}},
          {37 * 300, 139, 16 * 20, 300, 13},
          787};
}

inline Call factor_sums_call(DType gradient) {
  const FactoredPieces pieces = factored_pieces();
  Call call{Op::FactorSums, factored_scalars(true), {{DType::F64, {pieces.size}}}, {-1}, {}};
  call.attrs = {{"parts", print_factored(pieces.parts)}, {"size", pieces.size}};
  for (size_t i = 0; i < pieces.elems.size(); ++i)
    call.in.push_back(random_tensor(gradient, {pieces.elems[i]}, i + 1));
  return call;
}

// Random numbers as mean squares: not negative.
inline HostTensor random_squares(int64_t elems, uint64_t seed) {
  HostTensor tensor = random_tensor(DType::F32, {elems}, seed);
  for (int64_t i = 0; i < elems; ++i) ref::set(tensor.arg(), i, tensor.at(i) * tensor.at(i));
  return tensor;
}

inline Call factor_moments_call(bool finite) {
  const std::vector<Factors> list = {{37, 300}, {20, 24}, {50, 0}};
  Call call{Op::FactorMoments, factored_scalars(finite), {}, {}, {{"factors", print_factors(list)}}};
  std::vector<double> sums;
  for (int i = 0; i < 337 + 44 + 50; ++i) sums.push_back(0.5 + i % 17);
  call.in.push_back(doubles(DType::F64, sums));
  for (size_t i = 0; i < list.size(); ++i) {
    call.in.push_back(random_squares(list[i].size(), i + 9));
    call.out.push_back(call.in.back().type);
    call.shares.push_back(static_cast<int>(3 + i));
  }
  return call;
}

inline Call factor_directions_call(DType gradient, bool finite) {
  const FactoredPieces pieces = factored_pieces();
  Call call{
      Op::FactorDirections, factored_scalars(finite), {}, {}, {{"parts", print_factored(pieces.parts)}}};
  for (size_t i = 0; i < pieces.parts.size(); ++i) {
    call.in.push_back(random_tensor(gradient, {pieces.elems[i]}, i + 1));
    call.in.push_back(random_squares(pieces.parts[i].factors.size(), i + 20));
  }
  for (size_t i = 2; i < call.in.size(); ++i) {
    call.out.push_back(call.in[i].type);
    call.shares.push_back(static_cast<int>(i));
  }
  return call;
}

}  // namespace tandem::cpu
