#include "tandem/kernels/cuda/pointwise/initialize.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "tandem/kernels/cuda/device/cuda_device.h"
#include "tandem/kernels/cuda/kernel_test.h"

namespace tandem::cuda {
namespace {

constexpr std::byte kUntouched{0x5a};
constexpr std::array kStored = {DType::F32, DType::BF16, DType::F16, DType::I16};

// Buffers in the memory of a GPU or of the host, which the GPU fills as well.
class InitializeTest : public testing::Test {
 protected:
  void SetUp() override {
    TANDEM_NEEDS_GPU();
    gpu_ = std::make_unique<CudaDevice>(0, pool_, nullptr);
    on_gpu_ = gpu_->allocate(Arena::Weights, kArenaBytes);
    on_host_ = gpu_->allocate(Arena::Host, kArenaBytes);
  }

  void put(std::byte* to, std::span<const std::byte> from) {
    const bool to_host = to >= on_host_.data.get() && to < on_host_.data.get() + on_host_.bytes;
    if (to_host) {
      std::copy(from.begin(), from.end(), to);
    } else {
      gpu_->write(to, from);
    }
  }

  // Of a piece in a buffer, by the GPU and by the CPU; what is around the piece stays.
  void expect_same_start(DType dtype, const Piece& piece, uint64_t seed, const DeviceMemory& arena) {
    const int64_t elems = piece.offset + piece.box.elems() + 9;
    std::vector<std::byte> want(static_cast<size_t>(elems * dtype_bytes(dtype)), kUntouched);
    std::vector<std::byte> got = want;
    put(arena.data.get(), want);
    gpu_->initialize(arena.data.get(), dtype, piece, seed);
    gpu_->read(got, arena.data.get());
    tandem::fill_initial(want.data(), dtype, piece, seed, pool_);
    ASSERT_EQ(got, want) << fmt::format("{} {} of {}, rows {} to {}, columns {} to {}, at {}, seed {}",
                                        dtype_name(dtype), piece.init, to_string(piece.shape),
                                        piece.box.row_begin, piece.box.row_end, piece.box.col_begin,
                                        piece.box.col_end, piece.offset, seed);
  }

  // Of all values but the first few: neither memory need begin at a multiple of a group.
  void expect_same_rounding(DType dtype, std::span<const float> values, int64_t skipped,
                            const DeviceMemory& from, const DeviceMemory& to) {
    const std::span<const std::byte> bytes = std::as_bytes(values);
    put(from.data.get(), bytes);
    const auto elems = static_cast<int64_t>(values.size()) - skipped;
    std::vector<std::byte> want(static_cast<size_t>((elems + 9) * dtype_bytes(dtype)), kUntouched);
    std::vector<std::byte> got = want;
    std::byte* const dst = to.data.get() + kHalf + skipped * dtype_bytes(dtype);
    put(dst, want);
    gpu_->round(dst, dtype, from.data.get() + skipped * 4, elems);
    gpu_->read(got, dst);
    tandem::round_to(std::span(want).first(static_cast<size_t>(elems * dtype_bytes(dtype))), dtype,
                     bytes.subspan(static_cast<size_t>(skipped) * 4), pool_);
    ASSERT_EQ(got, want) << fmt::format("{} values as {} after {}", elems, dtype_name(dtype), skipped);
  }

  static constexpr int64_t kHalf = 2 << 20, kArenaBytes = 2 * kHalf;
  ThreadPool pool_{2};
  DeviceMemory on_gpu_, on_host_;
  std::unique_ptr<CudaDevice> gpu_;  // first to go
};

TEST_F(InitializeTest, WholeTensorsHaveTheBitsOfTheCpu) {
  const Shape shapes[] = {{1}, {3}, {4}, {7}, {1, 1}, {5, 3}, {33, 129}, {64, 256}, {7, 3, 5}, {251, 997}};
  for (DType dtype : kStored) {
    for (const Shape& shape : shapes) {
      for (const char* init : {"normal:0.02", "normal:1", "ones"}) {
        for (int64_t offset : {0, 1, 4, 6}) {
          const Piece piece{"blocks.3.up.weight", shape, whole_box(shape), offset, init};
          expect_same_start(dtype, piece, 1234, on_gpu_);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_F(InitializeTest, BoxesHaveTheBitsOfTheirTensor) {
  const Box boxes[] = {{0, 37, 0, 23},   {5, 11, 0, 23},  {0, 37, 4, 12}, {3, 20, 1, 23},
                       {36, 37, 22, 23}, {0, 37, 0, 1},   {0, 37, 3, 8},  {7, 7, 0, 23},
                       {2, 9, 5, 5},     {10, 37, 0, 16}, {1, 2, 2, 21}};
  for (DType dtype : kStored) {
    for (const Box& box : boxes) {
      for (const char* init : {"normal:0.006", "ones"}) {
        for (int64_t offset : {0, 3, 8}) {
          expect_same_start(dtype, {"embed.weight", {37, 23}, box, offset, init}, 7, on_gpu_);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_F(InitializeTest, EverySeedAndNameHasItsOwnNumbers) {
  for (uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 40, ~uint64_t{0}}) {
    for (const char* name : {"", "embed.weight", "blocks.11.down.weight"}) {
      expect_same_start(DType::F32, {name, {300, 1000}, {0, 300, 0, 1000}, 0, "normal:1"}, seed, on_gpu_);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(InitializeTest, ElementsBeyondFourBillionHaveTheBitsOfTheCpu) {
  const int64_t rows = int64_t{1} << 34;
  const Piece piece{"embed.weight", {rows, 64}, {rows - 100, rows - 1, 2, 61}, 1, "normal:0.02"};
  expect_same_start(DType::BF16, piece, 5, on_gpu_);
}

TEST_F(InitializeTest, RoundingHasTheBitsOfTheCpu) {
  constexpr float kMax = std::numeric_limits<float>::max(), kTiny = std::numeric_limits<float>::denorm_min();
  std::vector<float> values = {0.0f,       -0.0f,      1.0f,       kMax,      -kMax,    kTiny,    INFINITY,
                               -INFINITY,  65504.0f,   65519.9f,   65520.0f,  1e-8f,    0x1p-24f, 0x1p-25f,
                               0x1.8p-25f, 0x1.004p0f, 0x1.00cp0f, 0x1.01p0f, 0x1.03p0f};
  for (uint32_t bits : {0x7f800001u, 0xff800001u, 0x7fc00000u, 0xffc01234u, 0x7fffffffu})
    values.push_back(std::bit_cast<float>(bits));
  // All exponents and signs, with mantissas of every kind.
  for (uint32_t i = 0; i < 100000; ++i) values.push_back(std::bit_cast<float>(i * 2654435761u));
  for (DType dtype : kStored) {
    for (int64_t skipped : {0, 1, 2, 3, 4, 7}) {
      expect_same_rounding(dtype, values, skipped, on_gpu_, on_gpu_);
      for (size_t count = static_cast<size_t>(skipped); count < 16; ++count)
        expect_same_rounding(dtype, std::span(values).first(count), skipped, on_gpu_, on_gpu_);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(InitializeTest, TheHostsMemoryIsFilledAndRoundedToo) {
  std::vector<float> values(10001);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i));
  for (DType dtype : kStored) {
    expect_same_start(dtype, {"a", {251, 97}, {1, 250, 3, 94}, 2, "normal:0.02"}, 3, on_host_);
    for (const DeviceMemory* from : {&on_gpu_, &on_host_}) {
      for (const DeviceMemory* to : {&on_gpu_, &on_host_}) expect_same_rounding(dtype, values, 1, *from, *to);
    }
  }
}

}  // namespace
}  // namespace tandem::cuda
