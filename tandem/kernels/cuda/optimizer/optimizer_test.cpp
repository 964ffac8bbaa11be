#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

#include "tandem/base/split_float.h"
#include "tandem/kernels/cpu/optimizer/optimizer_setting_test.h"
#include "tandem/kernels/cuda/device/cuda_check.h"
#include "tandem/kernels/cuda/kernel_test.h"
#include "tandem/kernels/cuda/register.h"

namespace tandem::cuda {
namespace {

constexpr int64_t kChunk = 8192;  // elements that a block updates

HostTensor tensor_of(DType dtype, const std::vector<double>& values) {
  HostTensor tensor(dtype, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) cpu::ref::set(tensor.arg(), static_cast<int64_t>(i), values[i]);
  return tensor;
}

HostTensor hyper(Op op = Op::AdamW, int step = 3) { return tensor_of(DType::F32, hyper_values(op, step)); }
// With which clipping happens.
HostTensor norm(bool finite) { return tensor_of(DType::F64, {2.5, finite ? 1.0 : 0.0}); }

// The tensors of one parameter: w, g, states..., [master].
std::vector<HostTensor> parameter(const OptimizerSetting& setting, int64_t elems, uint64_t seed) {
  std::vector<HostTensor> tensors = {random_tensor(setting.weight, {elems}, seed),
                                     random_tensor(setting.gradient, {elems}, seed + 1)};
  if (setting.num_states() > 0) tensors.push_back(random_tensor(DType::F32, {elems}, seed + 2, 0.1));
  for (size_t s = 1; s < setting.num_states(); ++s) {
    tensors.push_back(random_tensor(DType::F32, {elems}, seed + 2 + s, 0.25));
    for (int64_t i = 0; i < elems; ++i)
      cpu::ref::set(tensors.back().arg(), i, std::abs(tensors.back().at(i)));
  }
  if (setting.halves()) {
    tensors.push_back(random_tensor(DType::I16, {elems}, seed + 4, 4000));
  } else if (setting.masters) {
    tensors.push_back(random_tensor(DType::F32, {elems}, seed));
  }
  return tensors;
}

Call update(const OptimizerSetting& setting, const std::vector<int64_t>& sizes, bool finite = true,
            bool keep = false) {
  Call call{setting.op, {hyper(setting.op), norm(finite)}, {}, {}, {{"masters", int64_t{setting.masters}}}};
  if (setting.reads_sums()) {
    call.in.push_back(tensor_of(DType::F64, sums_values(sizes.size())));
    call.attrs.set("slots", slots_text(sizes.size()));
  }
  std::string decay;
  for (size_t i = 0; i < sizes.size(); ++i) {
    for (HostTensor& tensor : parameter(setting, sizes[i], 8 * i)) {
      call.out.push_back(tensor.type);
      call.shares.push_back(static_cast<int>(call.in.size()));
      call.in.push_back(std::move(tensor));
    }
    decay += i == 0 ? "1" : i % 2 == 0 ? ",1" : ",0";
  }
  call.attrs.set("decay", decay);
  if (keep) call.attrs.set("keep", int64_t{1});
  return call;
}

// Sizes around a group and around a chunk.
const std::vector<int64_t> kSizes = {1, 15, 16, 0, 1000, kChunk, kChunk + 5, 3 * kChunk + 4};

// As expect_as_reference, with masters that lie in halves compared as the numbers they are.
void expect_update_as_reference(const OptimizerSetting& setting, const Call& call) {
  if (!setting.halves()) return expect_as_reference(call, 1e-6);
  const auto with_masters = [&](std::vector<HostTensor> results) {
    for (size_t k = setting.group_size() - 1; k < results.size(); k += setting.group_size()) {
      const HostTensor& w = results[k + 1 - setting.group_size()];
      HostTensor master(DType::F32, w.type.shape);
      join_floats(w.bytes, results[k].bytes, master.bytes);
      results[k] = std::move(master);
    }
    return results;
  };
  const auto want = with_masters(cpu::run(cpu::reference_kernel(call.op), call, cpu::pool_of(1)));
  const auto got = with_masters(run_on_gpu(call));
  for (size_t k = 0; k < got.size(); ++k) {
    expect_near(got[k], want[k], 1e-6, fmt::format("output {}", k));
    if (testing::Test::HasFatalFailure()) return;
  }
  EXPECT_EQ(with_masters(run_on_gpu(call)), got) << "run again";
}

TEST(CudaOptimizer, MatchesTheReferenceForEveryStorageType) {
  TANDEM_NEEDS_GPU();
  for (const OptimizerSetting& setting : optimizer_settings()) {
    for (const bool keep : {false, true}) {
      SCOPED_TRACE(fmt::format("{} keep {}", setting.name(), keep));
      expect_update_as_reference(setting, update(setting, kSizes, true, keep));
    }
  }
}

TEST(CudaOptimizer, ChangesNothingButTheGradientsWhenTheNormIsNotFinite) {
  TANDEM_NEEDS_GPU();
  for (const OptimizerSetting& setting : optimizer_settings()) {
    for (const bool keep : {false, true}) {
      SCOPED_TRACE(fmt::format("{} keep {}", setting.name(), keep));
      const Call call = update(setting, kSizes, false, keep);
      EXPECT_EQ(run_on_gpu(call), cpu::run(cpu::reference_kernel(call.op), call, cpu::pool_of(1)));
    }
  }
}

TEST(CudaOptimizer, TakesMoreParametersThanALaunchHas) {
  TANDEM_NEEDS_GPU();
  std::vector<int64_t> sizes;
  for (int64_t i = 0; i < 600; ++i) sizes.push_back(1 + i % 37);
  for (const Op op : optimizer_ops()) {
    const OptimizerSetting setting{op, DType::BF16, DType::F32, true};
    expect_update_as_reference(setting, update(setting, sizes));
  }
}

// The CPU's kernel, which takes over where the optimizer is offloaded.
const Kernel& cpu_kernel(Op op) {
  static const KernelRegistry registry = cpu::all_kernels();
  return registry.by_name(fmt::format("cpu.{}", op_name(op)));
}

// Runs the call on the GPU and with every instruction set of the CPU; gives the outputs.
std::vector<HostTensor> expect_bits_of_cpu(const Call& call) {
  const std::vector<HostTensor> got = run_on_gpu(call);
  cpu::for_each_target([&] {
    const std::vector<HostTensor> want = cpu::run(cpu_kernel(call.op), call, cpu::pool_of(1));
    for (size_t k = 0; k < got.size(); ++k) {
      const int64_t width = dtype_bytes(got[k].type.dtype);
      for (int64_t i = 0; i < got[k].type.shape.elems(); ++i) {
        const auto begin = static_cast<size_t>(i * width);
        if (std::memcmp(&got[k].bytes[begin], &want[k].bytes[begin], static_cast<size_t>(width)) == 0)
          continue;
        if (std::isnan(got[k].at(i)) && std::isnan(want[k].at(i))) continue;  // their signs differ
        ADD_FAILURE() << fmt::format("output {}, element {}: {:a}, on the CPU {:a}", k, i, got[k].at(i),
                                     want[k].at(i));
        break;
      }
    }
  });
  return got;
}

TEST(CudaOptimizer, HasTheBitsOfTheCpuStepAfterStep) {
  TANDEM_NEEDS_GPU();
  for (const OptimizerSetting& setting : optimizer_settings()) {
    Call call = update(setting, kSizes);
    for (const int step : {1, 2, 3, 54321}) {
      SCOPED_TRACE(fmt::format("{} step {}", setting.name(), step));
      call.in[0] = hyper(setting.op, step);
      call.in[1] = tensor_of(DType::F64, {0.1 + 1.3 * step, 1});  // clipped after the first
      std::vector<HostTensor> results = expect_bits_of_cpu(call);
      const size_t first = call.in.size() - results.size();
      for (size_t i = 0; i < results.size(); ++i) {
        const bool is_gradient = i % setting.group_size() == 1;
        call.in[i + first] = is_gradient ? random_tensor(setting.gradient, results[i].type.shape, 100 + i)
                                         : std::move(results[i]);
      }
    }
  }
}

// Multiplies each value by some power of two, so that all magnitudes occur, subnormal ones too. Low halves
// have the magnitude of what they complete.
void spread(HostTensor& tensor, uint64_t seed) {
  if (tensor.type.dtype == DType::I16) return;
  const Rng rng(13, seed);
  const bool is_f16 = tensor.type.dtype == DType::F16;
  for (int64_t i = 0; i < tensor.type.shape.elems(); ++i) {
    const uint64_t power = rng.below(static_cast<uint64_t>(i), is_f16 ? 36 : 250);
    cpu::ref::set(tensor.arg(), i, std::ldexp(tensor.at(i), static_cast<int>(power) - (is_f16 ? 24 : 148)));
  }
}

TEST(CudaOptimizer, HasTheBitsOfTheCpuForAllMagnitudes) {
  TANDEM_NEEDS_GPU();
  for (const OptimizerSetting& setting : optimizer_settings()) {
    for (const bool finite : {true, false}) {
      for (const bool keep : {true, false}) {
        SCOPED_TRACE(fmt::format("{} finite {} keep {}", setting.name(), finite, keep));
        Call call = update(setting, {5 * kChunk + 3, 4 * kChunk + 1}, finite, keep);
        for (size_t i = setting.reads_sums() ? 3 : 2; i < call.in.size(); ++i) spread(call.in[i], i);
        expect_bits_of_cpu(call);
      }
    }
  }
}

TEST(CudaOptimizer, MayHaveNoParametersAtAll) {
  TANDEM_NEEDS_GPU();
  for (const Op op : optimizer_ops()) run_on_gpu(update({op, DType::F32, DType::F32, true}, {}));
}

// A device copy of a host tensor.
class OnDevice {
 public:
  explicit OnDevice(const HostTensor& tensor) : type_(tensor.type) {
    check(cudaMalloc(&data_, tensor.bytes.size()), "cudaMalloc");
    check(cudaMemcpy(data_, tensor.bytes.data(), tensor.bytes.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  ~OnDevice() { cudaFree(data_); }
  OnDevice(OnDevice&& other) noexcept : type_(other.type_), data_(std::exchange(other.data_, nullptr)) {}

  TensorArg piece(int64_t begin, int64_t end) const {
    return {static_cast<std::byte*>(data_) + begin * dtype_bytes(type_.dtype), {type_.dtype, {end - begin}}};
  }
  TensorArg whole() const { return piece(0, type_.shape.elems()); }
  HostTensor download() const {
    HostTensor host(type_.dtype, type_.shape);
    check(cudaMemcpy(host.bytes.data(), data_, host.bytes.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return host;
  }

 private:
  TensorType type_;
  void* data_ = nullptr;
};

// The same interface to memory of the host.
class OnHost {
 public:
  explicit OnHost(const HostTensor& tensor) : tensor_(tensor) {}
  TensorArg piece(int64_t begin, int64_t end) {
    const DType dtype = tensor_.type.dtype;
    return {tensor_.bytes.data() + begin * dtype_bytes(dtype), {dtype, {end - begin}}};
  }
  TensorArg whole() { return piece(0, tensor_.type.shape.elems()); }
  HostTensor download() const { return tensor_; }

 private:
  HostTensor tensor_;
};

void run_kernel(const std::string& name, std::span<const TensorArg> in, std::span<const TensorArg> out,
                const Attrs& attrs) {
  static const KernelRegistry registry = all_kernels();
  static ThreadPool pool(1);
  const Kernel& kernel = registry.by_name(name);
  CallSignature signature{kernel.op, {}, {}, &attrs};
  for (const TensorArg& tensor : in) signature.in.push_back(tensor.type);
  for (const TensorArg& tensor : out) signature.out.push_back(tensor.type);
  const OnDevice workspace(HostTensor(DType::U8, {static_cast<int64_t>(kernel.workspace(signature, 1)) + 1}));
  Stream stream(pool, nullptr);
  const TensorArg bytes = workspace.whole();
  kernel.run({in, out, attrs, {bytes.as<std::byte>(), static_cast<size_t>(bytes.elems())}}, stream);
  check(cudaDeviceSynchronize(), name.c_str());
}

// Cuts after which pieces begin at all places of a group; some are empty.
const std::vector<int64_t> kCuts = {3, 4, 4, 11, 12, 16, 33, 2000, 2003, kChunk + 77, 2 * kChunk + 100};

// The parameter's whole buffers after an update of its pieces between cuts, on the GPU or (OnHost) on the
// CPU.
template <typename Memory = OnDevice>
std::vector<HostTensor> updated_pieces(const OptimizerSetting& setting, const std::vector<int64_t>& cuts) {
  std::vector<Memory> buffers;
  for (const HostTensor& tensor : parameter(setting, kCuts.back() + 3, 1)) buffers.emplace_back(tensor);
  Memory scalars(hyper(setting.op)), verdict(norm(true)), sums(tensor_of(DType::F64, sums_values(1)));
  std::vector<TensorArg> in = {scalars.whole(), verdict.whole()};
  if (setting.reads_sums()) in.push_back(sums.whole());
  const size_t first = in.size();
  std::string decay;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    for (Memory& buffer : buffers) in.push_back(buffer.piece(cuts[i], cuts[i + 1]));
    decay += i == 0 ? "1" : ",1";
  }
  Attrs attrs{{"masters", int64_t{setting.masters}}, {"decay", decay}};
  if (setting.reads_sums()) attrs.set("slots", slots_text(cuts.size() - 1, true));
  const std::span<const TensorArg> out = std::span(in).subspan(first);
  if constexpr (std::is_same_v<Memory, OnHost>) {
    Stream stream(cpu::pool_of(2));
    cpu_kernel(setting.op).run({in, out, attrs, {}}, stream);
  } else {
    run_kernel(fmt::format("cuda.{}", op_name(setting.op)), in, out, attrs);
  }
  std::vector<HostTensor> results;
  for (const Memory& buffer : buffers) results.push_back(buffer.download());
  return results;
}

TEST(CudaOptimizer, GivesPiecesTheBitsOfTheWhole) {
  TANDEM_NEEDS_GPU();
  for (const OptimizerSetting& setting : optimizer_settings()) {
    // Everything: also the elements before and after the parameter, which nobody may touch.
    const std::vector<HostTensor> pieces = updated_pieces(setting, kCuts);
    EXPECT_EQ(pieces, updated_pieces(setting, {kCuts.front(), kCuts.back()})) << setting.name();
    EXPECT_EQ(pieces, updated_pieces(setting, {kCuts.front(), 4, kCuts.back()})) << setting.name();
    cpu::for_each_target(
        [&] { EXPECT_EQ(pieces, updated_pieces<OnHost>(setting, kCuts)) << setting.name(); });
  }
}

Call square_sums(std::vector<HostTensor> pieces, const std::string& slots, int64_t num_slots) {
  Call call{Op::SquareSums,
            {hyper(), tensor_of(DType::F64, {7, 8, 9})},
            {{DType::F64, {num_slots + 4}}},
            {-1},
            {{"slots", slots}, {"num_slots", num_slots}}};
  for (HostTensor& piece : pieces) call.in.push_back(std::move(piece));
  return call;
}

TEST(CudaSquareSums, MatchesTheReferenceAndDoesNotOverflow) {
  TANDEM_NEEDS_GPU();
  for (const DType dtype : kStorage) {
    for (const double deviation : {1e-3, 1.0, dtype == DType::F16 ? 100.0 : 1e30}) {
      SCOPED_TRACE(fmt::format("{} {}", dtype_name(dtype), deviation));
      std::vector<HostTensor> pieces;
      for (size_t i = 0; i < kSizes.size(); ++i)
        pieces.push_back(random_tensor(dtype, {kSizes[i]}, i, deviation));
      const Call call = square_sums(std::move(pieces), "0,3,0,1,5,1,0,3", 7);
      const HostTensor want = cpu::run(cpu::reference_kernel(call.op), call, cpu::pool_of(1))[0];
      const HostTensor got = run_on_gpu(call)[0];
      for (int64_t i = 0; i < got.type.shape.elems(); ++i)
        EXPECT_NEAR(got.at(i), want.at(i), 1e-12 * want.at(i)) << i;
      EXPECT_EQ(run_on_gpu(call)[0], got) << "run again";
    }
  }
}

TEST(CudaSquareSums, TakesMorePiecesThanALaunchHasAndMixedTypes) {
  TANDEM_NEEDS_GPU();
  std::vector<HostTensor> pieces;
  std::string slots;
  for (int64_t i = 0; i < 2500; ++i) {
    pieces.push_back(random_tensor(kStorage[static_cast<size_t>(i % 3)], {i % 11}, static_cast<uint64_t>(i)));
    slots += fmt::format("{}{}", i == 0 ? "" : ",", i * 7 % 600);
  }
  expect_as_reference(square_sums(std::move(pieces), slots, 601), 1e-9);
}

TEST(CudaSquareSums, NoticesOneBadElementAnywhere) {
  TANDEM_NEEDS_GPU();
  for (const double bad : {HUGE_VAL, -HUGE_VAL, std::nan("")}) {
    for (const int64_t at : {int64_t{0}, kChunk, 2 * kChunk + 6}) {
      HostTensor gradient(DType::F32, {2 * kChunk + 7});
      cpu::ref::set(gradient.arg(), at, bad);
      const Call call = square_sums({gradient, HostTensor(DType::F32, {5}), gradient}, "0,1,0", 2);
      EXPECT_EQ(run_on_gpu(call)[0].at(2), 2) << bad << " at " << at;
    }
  }
}

TEST(CudaSquareSums, ReadsNothingAroundAPiece) {
  TANDEM_NEEDS_GPU();
  for (const DType dtype : kStorage) {
    const int64_t elems = kChunk + 77;
    HostTensor host = random_tensor(dtype, {elems + 6}, 1);
    double expected = 0;
    for (int64_t i = 3; i < elems + 3; ++i) expected += std::pow(0.5 * host.at(i), 2);
    for (const int64_t i : {int64_t{0}, int64_t{1}, int64_t{2}, elems + 3, elems + 4, elems + 5})
      cpu::ref::set(host.arg(), i, NAN);
    const OnDevice buffer(host), scalars(hyper()), stats(tensor_of(DType::F64, {1})),
        sums(tensor_of(DType::F64, {0, 0, 0}));
    const std::vector<TensorArg> in = {scalars.whole(), stats.whole(), buffer.piece(3, elems + 3)};
    const std::vector<TensorArg> out = {sums.whole()};
    run_kernel("cuda.square_sums", in, out, {{"slots", "0"}, {"num_slots", int64_t{1}}});
    const HostTensor got = sums.download();
    EXPECT_NEAR(got.at(0) / expected, 1, 1e-12);
    EXPECT_EQ(got.at(1), 0);
    EXPECT_EQ(got.at(2), 1);
  }
}

TEST(CudaSquareSums, OfNoPiecesIsZero) {
  TANDEM_NEEDS_GPU();
  expect_as_reference(square_sums({}, "", 3));
}

TEST(CudaGlobalNorm, MatchesTheReference) {
  TANDEM_NEEDS_GPU();
  for (const auto& sums : std::vector<std::vector<double>>{{1, 2, 3, 0, 9}, {1, 2, 3, 1, 9}}) {
    expect_as_reference({Op::GlobalNorm,
                         {tensor_of(DType::F64, sums)},
                         {{DType::F64, {2}}},
                         {-1},
                         {{"num_slots", int64_t{3}}}},
                        1e-12);
  }
  for (const double bad : {HUGE_VAL, std::nan("")}) {
    const Call call{Op::GlobalNorm,
                    {tensor_of(DType::F64, {1, bad, 3, 0, 9})},
                    {{DType::F64, {2}}},
                    {-1},
                    {{"num_slots", int64_t{3}}}};
    EXPECT_EQ(run_on_gpu(call)[0].at(1), 0);
  }
}

}  // namespace
}  // namespace tandem::cuda
