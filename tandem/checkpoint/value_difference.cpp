#include "tandem/checkpoint/value_difference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/checkpoint/bands.h"
#include "tandem/checkpoint/read_boxes.h"

namespace tandem {
namespace {

template <typename Stored>
Stored stored_at(const std::byte* bytes) {
  Stored value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

double value_at(const std::byte* bytes, DType dtype) {
  switch (dtype) {
    case DType::F64: return stored_at<double>(bytes);
    case DType::F32: return stored_at<float>(bytes);
    case DType::BF16: return to_float(stored_at<BFloat16>(bytes));
    case DType::F16: return to_float(stored_at<Half>(bytes));
    case DType::I32: return stored_at<int32_t>(bytes);
    case DType::I16: return stored_at<int16_t>(bytes);
    case DType::U8: return stored_at<uint8_t>(bytes);
    case DType::F8E4M3:
    case DType::F8E5M2: return fp8_to_float(stored_at<uint8_t>(bytes), dtype);
  }
  return 0;
}

void add_element(ValueDifference& result, const std::byte* a, const std::byte* b, DType dtype) {
  const double x = value_at(a, dtype), y = value_at(b, dtype);
  for (double value : {std::abs(x), std::abs(y)})
    if (value > result.largest_abs) result.largest_abs = value;
  ++result.elems;
  if (std::memcmp(a, b, static_cast<size_t>(dtype_bytes(dtype))) == 0) return;
  ++result.unequal;
  const double distance = x == y ? 0 : std::abs(x - y);  // equal infinities are not NaN apart
  if (std::isnan(distance)) result.largest = std::numeric_limits<double>::quiet_NaN();
  if (distance > result.largest) result.largest = distance;
}

}  // namespace

ValueDifference measure_difference(const Manifest& a, const Manifest& b, std::string_view name,
                                   ThreadPool* pool) {
  const TensorEntry* mine = a.find(name);
  const TensorEntry* theirs = b.find(name);
  TANDEM_CHECK(
      mine != nullptr && theirs != nullptr && mine->shape == theirs->shape && mine->dtype == theirs->dtype,
      "{} is not in both", name);
  const auto elem = static_cast<size_t>(dtype_bytes(mine->dtype));
  ValueDifference result;
  std::vector<std::byte> left, right;
  for (const Box& box : bands_of(*mine, a.digest_block > 0 && b.digest_block > 0)) {
    const size_t bytes = static_cast<size_t>(box.elems()) * elem;
    left.resize(bytes);
    right.resize(bytes);
    const BoxRead read_left{mine, box, left}, read_right{theirs, box, right};
    read_boxes(a, {&read_left, 1}, pool);
    read_boxes(b, {&read_right, 1}, pool);
    for (size_t i = 0; i < bytes; i += elem) add_element(result, &left[i], &right[i], mine->dtype);
  }
  return result;
}

}  // namespace tandem
