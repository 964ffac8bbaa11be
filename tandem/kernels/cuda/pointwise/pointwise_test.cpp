#include <cuda_runtime_api.h>

#include "tandem/kernels/cuda/device/cuda_check.h"
#include "tandem/kernels/cuda/kernel_test.h"
#include "tandem/kernels/cuda/register.h"

namespace tandem::cuda {
namespace {

constexpr DType kAllTypes[] = {DType::F32, DType::BF16, DType::F16, DType::F64, DType::I32, DType::U8};

Call unary(Op op, DType dtype, Shape shape, int shares = -1) {
  const TensorType type{dtype, std::move(shape)};
  return {op, {random_tensor(dtype, type.shape, 1, 3)}, {type}, {shares}, {{"factor", 0.3}, {"cap", 2.5}}};
}
Call binary(Op op, DType dtype, Shape shape, int shares = -1) {
  const TensorType type{dtype, std::move(shape)};
  return {op,
          {random_tensor(dtype, type.shape, 1, 3), random_tensor(dtype, type.shape, 2, 3)},
          {type},
          {shares},
          {{"cap", 2.5}}};
}

// Around the 16 bytes of a group, around a block, and several blocks with a ragged end.
constexpr int64_t kLengths[] = {1, 7, 8, 9, 31, 2047, 2048, 4101, 100003};

TEST(Pointwise, MatchesReferenceOverRaggedLengths) {
  TANDEM_NEEDS_GPU();
  for (const DType storage : kStorage) {
    for (const int64_t elems : kLengths) {
      SCOPED_TRACE(fmt::format("{} [{}]", dtype_name(storage), elems));
      for (const Op op : {Op::Add, Op::GeluGrad, Op::ReluGrad, Op::SoftcapGrad})
        expect_as_reference(binary(op, storage, {elems}));
      for (const Op op : {Op::Scale, Op::Gelu, Op::Relu, Op::Softcap})
        expect_as_reference(unary(op, storage, {elems}));
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Pointwise, AddsAndScalesDoublesAsDoubles) {
  TANDEM_NEEDS_GPU();
  const Call sum = binary(Op::Add, DType::F64, {1001}), scaled = unary(Op::Scale, DType::F64, {1001});
  for (const Call& call : {sum, scaled}) {
    EXPECT_EQ(run_on_gpu(call), cpu::run(cpu::reference_kernel(call.op), call, cpu::pool_of(1)));
  }
}

TEST(Pointwise, GivesTheSameBitsInPlace) {
  TANDEM_NEEDS_GPU();
  for (const DType storage : kStorage) {
    for (const Op op : {Op::Scale, Op::Gelu, Op::Relu, Op::Softcap}) {
      EXPECT_EQ(run_on_gpu(unary(op, storage, {30, 1001}, 0)), run_on_gpu(unary(op, storage, {30, 1001})));
    }
    for (const Op op : {Op::Add, Op::GeluGrad, Op::ReluGrad, Op::SoftcapGrad}) {
      EXPECT_EQ(run_on_gpu(binary(op, storage, {30, 1001}, 0)), run_on_gpu(binary(op, storage, {30, 1001})));
    }
  }
}

TEST(Pointwise, KeepsNanAndInfinity) {
  TANDEM_NEEDS_GPU();
  for (const DType storage : kStorage) {
    for (const Op op : {Op::Relu, Op::Gelu, Op::Scale}) {
      Call call = unary(op, storage, {1, 41});
      cpu::ref::set(call.in[0].arg(), 3, NAN);
      cpu::ref::set(call.in[0].arg(), 40, INFINITY);
      const auto y = run_on_gpu(call);
      EXPECT_TRUE(std::isnan(y[0].at(3))) << op_name(op) << " " << dtype_name(storage);
      EXPECT_EQ(y[0].at(40), INFINITY) << op_name(op) << " " << dtype_name(storage);
    }
    Call grad = binary(Op::GeluGrad, storage, {9});
    cpu::ref::set(grad.in[0].arg(), 0, 1);
    cpu::ref::set(grad.in[1].arg(), 0, 30000);
    cpu::ref::set(grad.in[1].arg(), 1, -30000);
    cpu::ref::set(grad.in[1].arg(), 2, NAN);
    const auto dx = run_on_gpu(grad);
    EXPECT_NEAR(dx[0].at(0), 1, 1e-6);
    EXPECT_NEAR(dx[0].at(1), 0, 1e-30);
    EXPECT_TRUE(std::isnan(dx[0].at(2)));
  }
}

TEST(Pointwise, TakesEmptyTensors) {
  TANDEM_NEEDS_GPU();
  EXPECT_TRUE(run_on_gpu(binary(Op::Add, DType::F32, {0}))[0].bytes.empty());
  EXPECT_TRUE(run_on_gpu(unary(Op::Gelu, DType::BF16, {0}))[0].bytes.empty());
}

// Runs a call whose tensors lie one element behind an aligned address, as a view of a flat buffer may.
std::vector<HostTensor> run_shifted(const Call& call) {
  constexpr size_t kSlack = 64;
  CallSignature signature{call.op, {}, call.out, &call.attrs};
  std::vector<std::byte*> buffers;
  const auto place = [&](const TensorType& type) -> TensorArg {
    void* data = nullptr;
    check(cudaMalloc(&data, static_cast<size_t>(type.bytes()) + kSlack), "cudaMalloc");
    buffers.push_back(static_cast<std::byte*>(data));
    return {buffers.back() + dtype_bytes(type.dtype), type};
  };
  std::vector<TensorArg> in, out;
  for (const HostTensor& tensor : call.in) {
    signature.in.push_back(tensor.type);
    in.push_back(place(tensor.type));
    check(cudaMemcpy(in.back().data, tensor.bytes.data(), tensor.bytes.size(), cudaMemcpyHostToDevice),
          "cudaMemcpy");
  }
  for (const TensorType& type : call.out) out.push_back(place(type));
  Stream stream(cpu::pool_of(1));
  const KernelRegistry registry = all_kernels();
  registry.choose(signature).run({in, out, call.attrs, {}}, stream);
  check(cudaDeviceSynchronize(), "shifted call");
  std::vector<HostTensor> results;
  for (const TensorArg& tensor : out) {
    HostTensor& host = results.emplace_back(tensor.type.dtype, tensor.type.shape);
    check(cudaMemcpy(host.bytes.data(), tensor.data, host.bytes.size(), cudaMemcpyDeviceToHost),
          "cudaMemcpy");
  }
  for (std::byte* buffer : buffers) cudaFree(buffer);
  return results;
}

TEST(Pointwise, TakesTensorsThatBeginAtAnyElement) {
  TANDEM_NEEDS_GPU();
  for (const DType storage : kStorage) {
    const HostTensor gate_up = random_tensor(storage, {9, 128}, 1), dy = random_tensor(storage, {9, 64}, 2);
    const Attrs cut{{"begin", int64_t{16}}, {"size", int64_t{64}}};
    for (const Call& call :
         {unary(Op::Scale, storage, {5003}), binary(Op::Add, storage, {5003}),
          Call{Op::Cast, {random_tensor(storage, {3001}, 1)}, {{DType::F64, {3001}}}, {-1}, {}},
          Call{Op::Swiglu, {gate_up}, {dy.type}, {-1}, {}},
          Call{Op::SwigluGrad, {dy, gate_up}, {gate_up.type}, {-1}, {}},
          Call{Op::Slice, {gate_up}, {dy.type}, {-1}, cut}}) {
      expect_near(run_shifted(call)[0], run_on_gpu(call)[0], 1e-6, std::string(op_name(call.op)));
    }
  }
}

TEST(Cast, MatchesReferenceBetweenAllTypes) {
  TANDEM_NEEDS_GPU();
  for (const DType from : kAllTypes) {
    for (const DType to : {DType::F32, DType::BF16, DType::F16, DType::F64}) {
      for (const int64_t elems : {1, 9, 4096, 5003}) {
        const Call call{Op::Cast, {random_tensor(from, {elems}, 1, 30, 120)}, {{to, {elems}}}, {-1}, {}};
        const auto want = cpu::run(cpu::reference_kernel(Op::Cast), call, cpu::pool_of(1));
        EXPECT_EQ(run_on_gpu(call), want) << dtype_name(from) << " to " << dtype_name(to) << " " << elems;
      }
    }
  }
}

TEST(Cast, RoundsLargeIntegersOnce) {
  TANDEM_NEEDS_GPU();
  HostTensor x(DType::I32, {4});
  const int32_t values[] = {16777217, 16777219, 2147483647, -2147483647};
  std::memcpy(x.bytes.data(), values, sizeof(values));
  for (const DType to : {DType::F32, DType::F64}) {
    const Call call{Op::Cast, {x}, {{to, {4}}}, {-1}, {}};
    EXPECT_EQ(run_on_gpu(call), cpu::run(cpu::reference_kernel(Op::Cast), call, cpu::pool_of(1)));
  }
}

constexpr std::pair<Op, Op> kGated[] = {{Op::Swiglu, Op::SwigluGrad}, {Op::Geglu, Op::GegluGrad}};

TEST(Gated, MatchesReferenceOverRaggedShapes) {
  TANDEM_NEEDS_GPU();
  for (const DType storage : kStorage) {
    for (const auto& [rows, width] : {std::pair<int64_t, int64_t>{1, 1},
                                      {3, 5},
                                      {17, 8},
                                      {100, 31},
                                      {33, 64},
                                      {5, 1000},
                                      {40, 3000},
                                      {7, 4096}}) {
      SCOPED_TRACE(fmt::format("{} [{}, {}]", dtype_name(storage), rows, width));
      const HostTensor gate_up = random_tensor(storage, {rows, 2 * width}, 1, 3);
      const HostTensor dy = random_tensor(storage, {rows, width}, 2);
      for (const auto& [op, gradient] : kGated) {
        expect_as_reference({op, {gate_up}, {dy.type}, {-1}, {}});
        expect_as_reference({gradient, {dy, gate_up}, {gate_up.type}, {-1}, {}}, 1e-5);
      }
      if (HasFatalFailure()) return;
    }
  }
}

// Apart, and where the memory plan puts them: dgate_up over gate_up, y over dy.
TEST(Gated, ItsGradientGivesTheForwardsBitsAgain) {
  TANDEM_NEEDS_GPU();
  for (const DType storage : kStorage) {
    for (const auto& [rows, width] : {std::pair<int64_t, int64_t>{3, 5}, {100, 31}, {33, 64}, {40, 3000}}) {
      SCOPED_TRACE(fmt::format("{} [{}, {}]", dtype_name(storage), rows, width));
      const HostTensor gate_up = random_tensor(storage, {rows, 2 * width}, 1, 3);
      const HostTensor dy = random_tensor(storage, {rows, width}, 2);
      for (int i = 0; i < 4; ++i) {
        const auto& [op, gradient] = kGated[i / 2];
        const bool in_place = i % 2 != 0;
        const auto y = run_on_gpu({op, {gate_up}, {dy.type}, {-1}, {}});
        const auto plain = run_on_gpu({gradient, {dy, gate_up}, {gate_up.type}, {-1}, {}});
        const std::vector<int> shares = in_place ? std::vector<int>{1, 0} : std::vector<int>{-1, -1};
        const Call call{gradient, {dy, gate_up}, {gate_up.type, dy.type}, shares, {{"again", 1}}};
        const auto both = run_on_gpu(call);
        EXPECT_EQ(both[0], plain[0]);
        EXPECT_EQ(both[1], y[0]);
        expect_as_reference(call, 1e-5);
      }
    }
  }
}

TEST(Swiglu, SaturatesWithoutNan) {
  TANDEM_NEEDS_GPU();
  HostTensor gate_up(DType::F32, {1, 4}), dy(DType::F32, {1, 2});
  const float values[] = {-200, 200, 1, 1}, ones[] = {1, 1};
  std::memcpy(gate_up.bytes.data(), values, sizeof(values));
  std::memcpy(dy.bytes.data(), ones, sizeof(ones));
  const auto y = run_on_gpu({Op::Swiglu, {gate_up}, {dy.type}, {-1}, {}});
  EXPECT_NEAR(y[0].at(0), 0, 1e-30);
  EXPECT_NEAR(y[0].at(1), 200, 1e-4);
  const auto dx = run_on_gpu({Op::SwigluGrad, {dy, gate_up}, {gate_up.type}, {-1}, {}});
  EXPECT_NEAR(dx[0].at(0), 0, 1e-30);
  EXPECT_NEAR(dx[0].at(1), 1, 1e-6);
  EXPECT_NEAR(dx[0].at(3), 200, 1e-4);
}

TEST(ShapeOps, MoveColumnsAsTheReferenceDoes) {
  TANDEM_NEEDS_GPU();
  for (const DType dtype : kAllTypes) {
    for (const int64_t rows : {1, 3, 17, 1000}) {
      SCOPED_TRACE(fmt::format("{} {} rows", dtype_name(dtype), rows));
      const auto part = [&](int64_t width, uint64_t stream) {
        return random_tensor(dtype, {rows, width}, stream, 9, 50);
      };
      expect_as_reference(
          {Op::Concat, {part(5, 1), part(100, 2), part(1, 3)}, {{dtype, {rows, 106}}}, {-1}, {}}, 0);
      expect_as_reference({Op::Concat, {part(64, 1), part(32, 2)}, {{dtype, {rows, 96}}}, {-1}, {}}, 0);
      for (const auto& [begin, size] : {std::pair<int64_t, int64_t>{7, 61}, {16, 64}, {4, 12}, {0, 100}}) {
        const Attrs attrs{{"begin", begin}, {"size", size}};
        expect_as_reference({Op::Slice, {part(112, 4)}, {{dtype, {rows, size}}}, {-1}, attrs}, 0);
      }
      if (HasFatalFailure()) return;
    }
  }
}

TEST(ShapeOps, ZeroAndCopyEveryByte) {
  TANDEM_NEEDS_GPU();
  for (const DType dtype : kAllTypes) {
    for (const int64_t elems : {0, 1, 7, 30007}) {
      SCOPED_TRACE(fmt::format("{} [{}]", dtype_name(dtype), elems));
      const HostTensor x = random_tensor(dtype, {elems}, 1, 9, 50),
                       dst = random_tensor(dtype, {elems}, 2, 9, 50);
      const Attrs to{{"to", std::string("device")}};
      EXPECT_EQ(run_on_gpu({Op::Copy, {x}, {x.type}, {-1}, to})[0], x);
      EXPECT_EQ(run_on_gpu({Op::Copy, {x, dst}, {x.type}, {1}, to})[0], x);
      EXPECT_EQ(run_on_gpu({Op::Zeros, {x}, {x.type}, {0}, {}})[0], HostTensor(dtype, {elems}));
      EXPECT_EQ(run_on_gpu({Op::Zeros, {}, {x.type}, {-1}, {}})[0], HostTensor(dtype, {elems}));
    }
  }
}

}  // namespace
}  // namespace tandem::cuda
