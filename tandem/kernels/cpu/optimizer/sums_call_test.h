// A call of an op that sums squares of whole parameters, for the tests of all backends.
#pragma once

#include "tandem/kernels/cpu/optimizer/packed_call_test.h"

namespace tandem::cpu {

// Of the same tensors as an update, in f32 states or `packed` ones; two pieces a parameter.
inline Call sums_call(const OptimizerSetting& setting, DType packed, const std::vector<int64_t>& sizes) {
  Call update = packed_call(setting, packed, sizes, true);
  Call call{sums_op(*optimizer_of(setting.op)), {update.in[0], update.in[1]}, {}, {-1}, update.attrs};
  call.in.insert(call.in.end(), update.in.begin() + 3, update.in.end());
  std::string slots;
  for (size_t i = 0; i < sizes.size(); ++i) slots += fmt::format("{}{}", i == 0 ? "" : ",", i / 2);
  const auto num_slots = static_cast<int64_t>(sizes.size());
  call.attrs = {{"masters", update.attrs.integer("masters")},
                {"decay", update.attrs.text("decay")},
                {"slots", slots},
                {"num_slots", num_slots}};
  if (update.attrs.integer_or("scaled", 0) != 0) call.attrs.set("scaled", int64_t{1});
  call.out = {{DType::F64, {2 * num_slots}}};
  return call;
}

inline std::vector<OptimizerSetting> measured_settings() {
  std::vector<OptimizerSetting> settings;
  for (const OptimizerSetting& setting : optimizer_settings()) {
    if (setting.reads_sums()) settings.push_back(setting);
  }
  return settings;
}

}  // namespace tandem::cpu
