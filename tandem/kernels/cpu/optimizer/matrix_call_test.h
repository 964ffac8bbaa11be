// Calls of the ops that an update has for whole matrices, for the tests of all backends.
#pragma once

#include "tandem/ir/infer.h"
#include "tandem/ir/placed_boxes.h"
#include "tandem/kernels/cpu/pointwise/pointwise_test.h"

namespace tandem::cpu {

inline HostTensor doubles(DType dtype, const std::vector<double>& values) {
  HostTensor tensor(dtype, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) ref::set(tensor.arg(), static_cast<int64_t>(i), values[i]);
  return tensor;
}

// Loss scale 2, clipped by norm and by value, momentum 0.9.
inline Call direction_call(DType gradient, DType direction, int64_t elems, bool finite, bool keep) {
  Call call{Op::MuonDirection, {}, {}, {}, {{"dtype", std::string(dtype_name(direction))}}};
  if (keep) call.attrs.set("keep", int64_t{1});
  call.in = {doubles(DType::F32, {0.01, 0.1, 3, 0.5, 2, 0.25, 0, 0.9, 0.95, 1e-8, 0.9}),
             doubles(DType::F64, {2.5, finite ? 1.0 : 0.0}), random_tensor(gradient, {elems}, 1),
             random_tensor(DType::F32, {elems}, 2)};
  call.out = {{direction, {elems}}, call.in[2].type, call.in[3].type};
  call.shares = {-1, 2, 3};
  return call;
}

// A matrix that lies behind other elements in one part, in parts of rows, or in parts of columns.
struct PlacedMatrix {
  Shape shape;
  std::vector<PlacedBox> parts;
  int64_t flat;  // elements of the buffer
};
inline std::vector<PlacedMatrix> placed_matrices() {
  return {{Shape({1, 1}), {{0, {0, 1, 0, 1}}}, 1},
          {Shape({37, 53}), {{5, {0, 37, 0, 53}}}, 2000},
          {Shape({64, 96}), {{32, {0, 32, 0, 96}}, {4000, {32, 64, 0, 96}}}, 8000},
          {Shape({33, 80}), {{0, {0, 33, 0, 40}}, {1400, {0, 33, 40, 80}}}, 3000}};
}

inline Call normalize_call(const PlacedMatrix& matrix, DType dtype, double scale = 3) {
  Call call{Op::NormalizeMatrix, {random_tensor(dtype, {matrix.flat}, 3, scale)}, {}, {-1}, {}};
  call.attrs = {
      {"parts", print_placed(matrix.parts)}, {"shape", shape_attr(matrix.shape.dims())}, {"eps", 1e-7}};
  call.out = {{dtype, matrix.shape}};
  return call;
}

inline Call place_call(const PlacedMatrix& matrix, DType dtype) {
  Call call{Op::PlaceMatrix,
            {random_tensor(dtype, {matrix.flat}, 3), random_tensor(dtype, matrix.shape, 4)},
            {},
            {0},
            {{"parts", print_placed(matrix.parts)}}};
  call.out = {call.in[0].type};
  return call;
}

inline Call weighted_sum_call(DType dtype, int64_t elems, int shared) {
  Call call{Op::WeightedSum,
            {random_tensor(dtype, {elems}, 5), random_tensor(dtype, {elems}, 6)},
            {{dtype, {elems}}},
            {shared},
            {{"p", -4.775}, {"q", 2.0315}}};
  return call;
}

}  // namespace tandem::cpu
