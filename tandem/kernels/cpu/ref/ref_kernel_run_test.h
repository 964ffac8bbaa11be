// One kernel call in a test: tensors given and read back as doubles, whatever their storage type. Outputs
// that must share an input's bytes do; all other outputs and the workspace start as NaN patterns, so that
// a kernel that leaves or reads unwritten memory is seen.
#pragma once

#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/runtime/kernel.h"

namespace tandem::cpu {

class KernelRun {
 public:
  explicit KernelRun(Op op, Attrs attrs = {}) {
    node_.op = op;
    node_.attrs = std::move(attrs);
  }

  KernelRun& in(DType dtype, Shape shape, const std::vector<double>& values);
  KernelRun& in(Shape shape, const std::vector<double>& values) { return in(DType::F64, shape, values); }
  KernelRun& random_in(DType dtype, Shape shape, uint64_t seed, double deviation = 1);
  KernelRun& out(DType dtype, Shape shape);
  KernelRun& out(Shape shape) { return out(DType::F64, std::move(shape)); }
  KernelRun& in_place_out() { return out(DType::F64, {}); }  // takes its input's type

  // May be called again: every call starts from the same inputs.
  KernelRun& run(const KernelRegistry& registry, const std::string& kernel, int num_threads = 1);
  KernelRun& run_reference();
  bool supported_by(const KernelRegistry& registry, const std::string& kernel) const;

  std::vector<double> result(int index) const;
  const std::vector<std::byte>& result_bytes(int index) const { return results_[static_cast<size_t>(index)]; }
  int num_results() const { return static_cast<int>(results_.size()); }

 private:
  CallSignature signature() const;

  Node node_;
  std::vector<TensorType> input_types_;
  std::vector<std::vector<std::byte>> inputs_;
  std::vector<std::vector<std::byte>> results_;
};

// Fails the test at the first element where |actual - expected| > tolerance * (1 + |expected|).
void expect_near(const std::vector<double>& actual, const std::vector<double>& expected, double tolerance);

}  // namespace tandem::cpu
