#include "tandem/kernels/cpu/ref/ref_kernel_run_test.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tandem/base/rng.h"
#include "tandem/kernels/cpu/ref/ref_tensor.h"
#include "tandem/kernels/cpu/register.h"

namespace tandem::cpu {
namespace {

constexpr size_t kAlignment = 64;

// Bytes at a 64-byte boundary, as the runtime's arenas give.
class AlignedBytes {
 public:
  explicit AlignedBytes(size_t size) : storage_(size + kAlignment, std::byte{0xff}) {}
  std::byte* data() {
    const auto address = reinterpret_cast<uintptr_t>(storage_.data());
    return storage_.data() + (kAlignment - address % kAlignment) % kAlignment;
  }

 private:
  std::vector<std::byte> storage_;
};

}  // namespace

KernelRun& KernelRun::in(DType dtype, Shape shape, const std::vector<double>& values) {
  const TensorType type{dtype, std::move(shape)};
  TANDEM_CHECK(type.shape.elems() == static_cast<int64_t>(values.size()), "{} values for {}", values.size(),
               to_string(type.shape));
  std::vector<std::byte> bytes(static_cast<size_t>(type.bytes()));
  for (size_t i = 0; i < values.size(); ++i)
    ref::set({bytes.data(), type}, static_cast<int64_t>(i), values[i]);
  node_.inputs.emplace_back();  // some outputs share an input only where it is given
  input_types_.push_back(type);
  inputs_.push_back(std::move(bytes));
  return *this;
}

KernelRun& KernelRun::random_in(DType dtype, Shape shape, uint64_t seed, double deviation) {
  std::vector<double> values;
  const Rng rng(seed, 0);
  for (uint64_t block = 0; static_cast<int64_t>(values.size()) < shape.elems(); ++block) {
    float normals[4];
    rng.normals(block, normals);
    for (float x : normals) values.push_back(deviation * x);
  }
  values.resize(static_cast<size_t>(shape.elems()));
  return in(dtype, std::move(shape), values);
}

KernelRun& KernelRun::out(DType dtype, Shape shape) {
  const int alias = aliased_input(node_, static_cast<int>(node_.outputs.size()));
  node_.outputs.push_back(alias < 0 || shape.rank() > 0 ? TensorType{dtype, std::move(shape)}
                                                        : input_types_[static_cast<size_t>(alias)]);
  return *this;
}

CallSignature KernelRun::signature() const {
  return {.op = node_.op, .in = input_types_, .out = node_.outputs, .attrs = &node_.attrs};
}

bool KernelRun::supported_by(const KernelRegistry& registry, const std::string& kernel) const {
  return registry.by_name(kernel).supports(signature());
}

KernelRun& KernelRun::run(const KernelRegistry& registry, const std::string& kernel_name, int num_threads) {
  const Kernel& kernel = registry.by_name(kernel_name);
  TANDEM_CHECK(kernel.op == node_.op && kernel.supports(signature()), "{}", kernel_name);
  std::vector<AlignedBytes> buffers;
  std::vector<TensorArg> in, out;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    buffers.emplace_back(inputs_[i].size());
    std::copy(inputs_[i].begin(), inputs_[i].end(), buffers.back().data());
    in.push_back({buffers.back().data(), input_types_[i]});
  }
  for (size_t i = 0; i < node_.outputs.size(); ++i) {
    const int alias = aliased_input(node_, static_cast<int>(i));
    if (alias < 0) buffers.emplace_back(static_cast<size_t>(node_.outputs[i].bytes()));
    out.push_back(
        {alias < 0 ? buffers.back().data() : in[static_cast<size_t>(alias)].data, node_.outputs[i]});
  }
  const size_t scratch_bytes = kernel.workspace != nullptr ? kernel.workspace(signature(), num_threads) : 0;
  AlignedBytes scratch(scratch_bytes);
  ThreadPool pool(num_threads);
  Stream stream(pool);
  kernel.run({in, out, node_.attrs, {scratch.data(), scratch_bytes}}, stream);
  results_.clear();
  for (const TensorArg& tensor : out) {
    const std::byte* bytes = tensor.as<std::byte>();
    results_.emplace_back(bytes, bytes + tensor.type.bytes());
  }
  return *this;
}

KernelRun& KernelRun::run_reference() {
  return run(reference_kernels(), "ref." + std::string(op_name(node_.op)));
}

std::vector<double> KernelRun::result(int index) const {
  const TensorType& type = node_.outputs[static_cast<size_t>(index)];
  std::vector<std::byte> bytes = results_[static_cast<size_t>(index)];
  std::vector<double> values;
  for (int64_t i = 0; i < type.shape.elems(); ++i) values.push_back(ref::get({bytes.data(), type}, i));
  return values;
}

void expect_near(const std::vector<double>& actual, const std::vector<double>& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    if (actual[i] == expected[i]) continue;  // infinities
    ASSERT_NEAR(actual[i], expected[i], tolerance * (1 + std::abs(expected[i]))) << "element " << i;
  }
}

}  // namespace tandem::cpu
