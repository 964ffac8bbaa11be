#include "tandem/checkpoint/value_difference.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "tandem/checkpoint/example_ranks_test.h"
#include "tandem/checkpoint/example_state_test.h"

namespace tandem {
namespace {

class ValueDifferences : public CheckpointTest {
 protected:
  // Tensors of which a and b differ as each test likes, saved as one rank and as several.
  ValueDifference measure(DType dtype, int64_t width, const std::function<void(float*, float*)>& set) {
    ExampleState first(1), second(1);
    for (ExampleState* state : {&first, &second}) state->add("x", dtype, {3, width});
    std::vector<float> a(static_cast<size_t>(3 * width), 1.0f), b = a;
    set(a.data(), b.data());
    write(first.tensors.back(), a);
    write(second.tensors.back(), b);
    save_as_ranks(folder, at_step(1), first, {ExampleLayout::Kind::Columns, 3, 1});
    save_as_ranks(folder, at_step(2), second, {ExampleLayout::Kind::Flat, 2, 2});
    return measure_difference(read_manifest(folder / "step-00000001"),
                              read_manifest(folder / "step-00000002"), "x");
  }

 private:
  static void write(ExampleTensor& tensor, const std::vector<float>& values) {
    for (size_t i = 0; i < values.size(); ++i) {
      if (tensor.dtype == DType::F32) std::memcpy(&tensor.bytes[i * 4], &values[i], 4);
      const BFloat16 rounded = to_bfloat16(values[i]);
      if (tensor.dtype == DType::BF16) std::memcpy(&tensor.bytes[i * 2], &rounded, 2);
      if (tensor.dtype == DType::U8) tensor.bytes[i] = static_cast<std::byte>(values[i]);
    }
  }
};

TEST_F(ValueDifferences, AreTheLargestAndItsShareOfTheLargestValue) {
  for (DType dtype : {DType::F32, DType::BF16}) {
    const ValueDifference found = measure(dtype, 50, [](float* a, float* b) {
      a[7] = -8;
      b[149] = 1.5f;
      b[3] = 0.75f;
    });
    EXPECT_EQ(found.elems, 150);
    EXPECT_EQ(found.unequal, 3);
    EXPECT_EQ(found.largest, 9.0);
    EXPECT_EQ(found.largest_abs, 8.0);
    EXPECT_EQ(found.relative(), 9.0 / 8.0);
  }
  EXPECT_EQ(measure(DType::U8, 5, [](float* a, float*) { a[2] = 200; }).largest, 199.0);
}

TEST_F(ValueDifferences, ReachToTheEndOfATensorLongerThanOneRead) {
  const ValueDifference found =
      measure(DType::F32, 1'500'000, [](float*, float* b) { b[4'499'999] = 1.25f; });
  EXPECT_EQ(found.elems, 4'500'000);
  EXPECT_EQ(found.unequal, 1);
  EXPECT_EQ(found.largest, 0.25);
}

TEST_F(ValueDifferences, AreNotANumberWhereOneSideIsNot) {
  const ValueDifference found = measure(DType::F32, 4, [](float* a, float* b) {
    a[1] = std::numeric_limits<float>::quiet_NaN();
    b[5] = 3;
  });
  EXPECT_TRUE(std::isnan(found.largest));
  EXPECT_EQ(found.unequal, 2);
  EXPECT_EQ(found.largest_abs, 3.0);
}

TEST_F(ValueDifferences, AreZeroBetweenTheTwoZeros) {
  const ValueDifference found = measure(DType::F32, 4, [](float* a, float* b) {
    a[1] = 0.0f;
    b[1] = -0.0f;
  });
  EXPECT_EQ(found.unequal, 1);
  EXPECT_EQ(found.relative(), 0.0);
}

}  // namespace
}  // namespace tandem
