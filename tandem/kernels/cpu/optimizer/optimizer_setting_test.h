// What the tests of optimizer kernels go through: every optimizer with all types of weights and gradients.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "tandem/base/dtype.h"
#include "tandem/ir/op.h"

namespace tandem {

struct OptimizerSetting {
  Op op;
  DType weight, gradient;
  bool masters;

  const OptimizerEntry& entry() const { return optimizer_entry(*optimizer_of(op)); }
  size_t num_states() const { return entry().rule_states(); }
  bool reads_sums() const { return entry().granularity == Granularity::Tensor; }
  bool averages() const { return entry().averages; }
  bool halves() const { return masters && weight == DType::BF16 && !averages(); }
  size_t group_size() const { return 2 + num_states() + (masters ? 1 : 0); }
  std::string name() const {
    return fmt::format("{} w {} g {} masters {}", op_name(op), dtype_name(weight), dtype_name(gradient),
                       masters);
  }
  std::string kernel() const { return "cpu." + std::string(op_name(op)); }
};

inline std::vector<Op> optimizer_ops() {
  std::vector<Op> ops;
  for (size_t i = 0; i < kNumOptimizers; ++i) ops.push_back(optimizer_op(static_cast<OptimizerKind>(i)));
  return ops;
}

inline std::vector<OptimizerSetting> optimizer_settings() {
  std::vector<OptimizerSetting> settings;
  for (const Op op : optimizer_ops()) {
    for (const DType weight : {DType::F32, DType::BF16, DType::F16}) {
      for (const bool masters : {false, true}) {
        if (!masters && optimizer_entry(*optimizer_of(op)).averages) continue;
        settings.push_back({op, weight, DType::F32, masters});
        if (weight != DType::F32) settings.push_back({op, weight, weight, masters});
      }
    }
  }
  return settings;
}

// lr 0.01, decay 0.1, loss scale 2, clipping at 2 and each element at 0.75; the optimizer's own as its entry
// says.
inline std::vector<double> hyper_values(Op op, int step = 3) {
  std::vector<double> values = {0.01, 0.1, static_cast<double>(step), 0.5, 2, 0.75, 0.25};
  for (const HyperParam& param : optimizer_entry(*optimizer_of(op)).hyper) values.push_back(param.value);
  return values;
}

// Where the optimizer reads norms of whole parameters: sums of squares for `slots` of them, and which of
// them each of `pieces` is a part of.
inline std::vector<double> sums_values(size_t slots) {
  std::vector<double> values;
  for (size_t i = 0; i < 2 * slots; ++i) values.push_back(1.5 + static_cast<double>(i));
  return values;
}
inline std::string slots_text(size_t pieces, bool one_parameter = false) {
  std::string text;
  for (size_t i = 0; i < pieces; ++i) text += fmt::format("{}{}", i == 0 ? "" : ",", one_parameter ? 0 : i);
  return text;
}

}  // namespace tandem
