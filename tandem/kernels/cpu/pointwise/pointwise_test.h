// Runs one call of an op through a fast kernel and through its reference, for every instruction set of this
// machine and for 1, 2 and 4 threads, and compares: near the reference, and bit for bit among threads.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "hwy/targets.h"
#include "tandem/base/rng.h"
#include "tandem/kernels/cpu/ref/ref_tensor.h"
#include "tandem/kernels/cpu/register.h"

namespace tandem::cpu {

struct HostTensor {
  TensorType type;
  std::vector<std::byte> bytes;

  HostTensor(DType dtype, Shape shape)
      : type{dtype, std::move(shape)}, bytes(static_cast<size_t>(type.bytes())) {}
  TensorArg arg() { return {bytes.data(), type}; }
  double at(int64_t i) const { return ref::get({const_cast<std::byte*>(bytes.data()), type}, i); }
  bool operator==(const HostTensor&) const = default;
};

inline HostTensor random_tensor(DType dtype, Shape shape, uint64_t stream, double scale = 1,
                                double offset = 0) {
  HostTensor tensor(dtype, std::move(shape));
  const Rng rng(7, stream);
  for (int64_t i = 0; i < tensor.type.shape.elems(); ++i) {
    float normals[4];
    rng.normals(static_cast<uint64_t>(i), normals);
    ref::set(tensor.arg(), i, offset + scale * static_cast<double>(normals[0]));
  }
  return tensor;
}

inline HostTensor random_ids(Shape shape, int64_t vocab, uint64_t stream) {
  HostTensor tensor(DType::I32, std::move(shape));
  const Rng rng(11, stream);
  for (int64_t i = 0; i < tensor.type.shape.elems(); ++i) {
    ref::set(tensor.arg(), i,
             static_cast<double>(rng.below(static_cast<uint64_t>(i), static_cast<uint64_t>(vocab))));
  }
  return tensor;
}

// A call; shares[k] is the input whose bytes output k takes over, or -1.
struct Call {
  Op op;
  std::vector<HostTensor> in;
  std::vector<TensorType> out;
  std::vector<int> shares;
  Attrs attrs;

  CallSignature signature() const {  // as long as the call is there
    CallSignature made{op, {}, out, &attrs};
    for (const HostTensor& tensor : in) made.in.push_back(tensor.type);
    return made;
  }
};

inline KernelRegistry fast_kernels() {
  KernelRegistry registry;
  add_norm_kernels(registry);
  add_pointwise_kernels(registry);
  add_embedding_kernels(registry);
  return registry;
}

inline std::vector<HostTensor> run(const Kernel& kernel, Call call, ThreadPool& pool) {
  std::vector<TensorArg> in, out;
  std::vector<HostTensor> fresh;
  fresh.reserve(call.out.size());
  for (HostTensor& tensor : call.in) in.push_back(tensor.arg());
  const CallSignature signature = call.signature();
  for (size_t k = 0; k < call.out.size(); ++k) {
    const int shared = call.shares[k];
    fresh.emplace_back(call.out[k].dtype, call.out[k].shape);
    out.push_back(
        {shared < 0 ? fresh.back().bytes.data() : in[static_cast<size_t>(shared)].data, call.out[k]});
  }
  EXPECT_TRUE(kernel.supports(signature)) << kernel.name;
  const size_t bytes = kernel.workspace == nullptr ? 0 : kernel.workspace(signature, pool.num_threads());
  // Garbage in the workspace, which begins at a cache line as in an arena, and a guard behind it.
  constexpr size_t kLine = 64;
  std::vector<std::byte> memory(bytes + 2 * kLine, std::byte{0xa5});
  const size_t before = (kLine - reinterpret_cast<uintptr_t>(memory.data()) % kLine) % kLine;
  const std::span<std::byte> workspace = std::span(memory).subspan(before);
  Stream stream(pool);
  kernel.run({in, out, call.attrs, workspace.first(bytes)}, stream);
  for (size_t i = bytes; i < workspace.size(); ++i) EXPECT_EQ(workspace[i], std::byte{0xa5}) << kernel.name;
  for (size_t k = 0; k < out.size(); ++k)
    std::copy_n(out[k].as<std::byte>(), fresh[k].bytes.size(), fresh[k].bytes.data());
  return fresh;
}

inline const Kernel& fast_kernel(Op op) {
  static const KernelRegistry registry = fast_kernels();
  return registry.by_name("cpu." + std::string(op_name(op)));
}

inline const Kernel& reference_kernel(Op op) {
  static const KernelRegistry registry = reference_kernels();
  return registry.by_name("ref." + std::string(op_name(op)));
}

inline ThreadPool& pool_of(int num_threads) {
  static ThreadPool one(1), two(2), four(4);
  return num_threads == 1 ? one : num_threads == 2 ? two : four;
}

inline std::vector<HostTensor> run_fast(const Call& call, int num_threads = 1) {
  return run(fast_kernel(call.op), call, pool_of(num_threads));
}

// One unit in the last place of the storage type, and what fp32 sums may lose.
inline double relative_tolerance(DType dtype) {
  return dtype == DType::BF16 ? 1.0 / 127 : dtype == DType::F16 ? 1.0 / 1023 : 4e-6;
}

inline void expect_near(const HostTensor& got, const HostTensor& want, double slack,
                        const std::string& what) {
  ASSERT_EQ(got.type, want.type) << what;
  for (int64_t i = 0; i < got.type.shape.elems(); ++i) {
    const double bound = relative_tolerance(got.type.dtype) * std::abs(want.at(i)) + slack;
    ASSERT_NEAR(got.at(i), want.at(i), bound)
        << what << " element " << i << " of " << to_string(got.type.shape);
  }
}

// Runs fn once for each instruction set that was compiled and that this machine has.
template <typename Fn>
void for_each_target(const Fn& fn) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    SCOPED_TRACE(hwy::TargetName(target));
    fn();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

inline void expect_matches_reference(const Call& call, double slack = 4e-6) {
  const std::string name(op_name(call.op));
  const auto want = run(reference_kernel(call.op), call, pool_of(1));
  for_each_target([&] {
    const auto got = run_fast(call);
    for (size_t k = 0; k < got.size(); ++k)
      expect_near(got[k], want[k], slack, fmt::format("{} output {}", name, k));
    for (const int num_threads : {2, 4}) {
      EXPECT_EQ(run_fast(call, num_threads), got) << name << " with " << num_threads << " threads";
    }
  });
}

inline constexpr std::array kStorage = {DType::F32, DType::BF16, DType::F16};
inline constexpr std::array<int64_t, 4> kRaggedRows = {1, 3, 17, 100};
inline constexpr std::array<int64_t, 8> kRaggedWidths = {1, 5, 8, 31, 64, 100, 384, 1000};

template <typename Fn>
void for_ragged_shapes(const Fn& fn) {
  for (const DType storage : kStorage) {
    for (const int64_t rows : kRaggedRows) {
      for (const int64_t width : kRaggedWidths) {
        SCOPED_TRACE(fmt::format("{} [{}, {}]", dtype_name(storage), rows, width));
        fn(storage, rows, width);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

}  // namespace tandem::cpu
