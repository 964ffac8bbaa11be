// A call of an optimizer whose states are kept in fewer bits than fp32, for the tests of all backends.
#pragma once

#include <cstring>

#include "tandem/base/split_float.h"
#include "tandem/kernels/cpu/optimizer/optimizer_setting_test.h"
#include "tandem/kernels/cpu/pointwise/pointwise_test.h"
#include "tandem/optimizers/packed_state.h"

namespace tandem::cpu {

// Parameters of these sizes, each from some element of its own on; `packed` is bf16 or u8, or f32.
inline Call packed_call(const OptimizerSetting& setting, DType packed, const std::vector<int64_t>& sizes,
                        bool finite) {
  const bool scaled = packed == DType::U8;
  Call call{setting.op, {}, {}, {}, {{"masters", int64_t{setting.masters}}}};
  if (scaled) call.attrs.set("scaled", int64_t{1});
  const std::vector<double> values = hyper_values(setting.op);
  HostTensor hyper(DType::F32, {static_cast<int64_t>(values.size())}), norm(DType::F64, {2});
  for (size_t i = 0; i < values.size(); ++i) ref::set(hyper.arg(), static_cast<int64_t>(i), values[i]);
  ref::set(norm.arg(), 0, 2.5);
  ref::set(norm.arg(), 1, finite ? 1 : 0);
  call.in = {hyper, norm};
  if (setting.reads_sums()) {
    const std::vector<double> measured = sums_values(sizes.size());
    HostTensor sums(DType::F64, {static_cast<int64_t>(measured.size())});
    for (size_t i = 0; i < measured.size(); ++i) ref::set(sums.arg(), static_cast<int64_t>(i), measured[i]);
    call.in.push_back(sums);
    call.attrs.set("slots", slots_text(sizes.size()));
  }
  std::string decay, keys;
  for (size_t p = 0; p < sizes.size(); ++p) {
    const int64_t elems = sizes[p];
    std::vector<HostTensor> tensors = {random_tensor(setting.weight, {elems}, 10 * p),
                                       random_tensor(setting.gradient, {elems}, 10 * p + 1)};
    std::vector<HostTensor> scales;
    std::vector<std::vector<float>> starts;
    for (size_t s = 0; s < setting.num_states(); ++s) {
      const bool square = setting.entry().states[s].kept == Kept::Root;
      const HostTensor start = random_tensor(DType::F32, {elems}, 10 * p + 2 + s, 0.1);
      std::vector<float> state(static_cast<size_t>(elems));
      for (int64_t i = 0; i < elems; ++i)
        state[static_cast<size_t>(i)] = static_cast<float>(square ? start.at(i) * start.at(i) : start.at(i));
      tensors.emplace_back(packed, Shape({elems}));
      scales.emplace_back(DType::F32, Shape({num_state_blocks(elems)}));
      if (packed == DType::F32) {
        std::memcpy(tensors.back().bytes.data(), state.data(), state.size() * sizeof(float));
        continue;
      }
      starts.push_back(std::move(state));
    }
    PackedStates states{.type = packed, .names = setting.entry().states.first(starts.size())};
    std::vector<const float*> numbers;
    for (size_t s = 0; s < starts.size(); ++s) {
      states.codes[s] = tensors[2 + s].bytes.data();
      if (scaled) states.scales[s] = scales[s].arg().as<float>();
      numbers.push_back(starts[s].data());
    }
    states.pack(numbers, starts.empty() ? 0 : elems, 1, 0);
    if (scaled) tensors.insert(tensors.end(), scales.begin(), scales.end());
    if (setting.halves()) tensors.push_back(random_tensor(DType::I16, {elems}, 10 * p + 5, 4000));
    if (setting.masters && !setting.halves()) tensors.push_back(random_tensor(DType::F32, {elems}, 10 * p));
    for (HostTensor& tensor : tensors) {
      call.out.push_back(tensor.type);
      call.shares.push_back(static_cast<int>(call.in.size()));
      call.in.push_back(std::move(tensor));
    }
    decay += p == 0 ? "1" : p % 2 == 0 ? ",1" : ",0";
    keys += fmt::format("{}{},{}", p == 0 ? "" : ";", p, 512 * p);
  }
  call.attrs.set("decay", decay);
  call.attrs.set("keys", keys);
  return call;
}

// Every optimizer that has such states.
inline std::vector<OptimizerSetting> packed_settings() {
  std::vector<OptimizerSetting> settings;
  for (const OptimizerSetting& setting : optimizer_settings()) {
    if (setting.num_states() > 0 && !setting.averages()) settings.push_back(setting);
  }
  return settings;
}

}  // namespace tandem::cpu
