#include "tandem/compile/update_builder.h"

#include <fmt/format.h>

#include <algorithm>

#include "tandem/base/exact/exact_squares.h"
#include "tandem/compile/passes/fp8.h"
#include "tandem/compile/passes/loss/loss_scaler.h"
#include "tandem/compile/passes/loss/loss_stats.h"
#include "tandem/compile/passes/metrics.h"
#include "tandem/ir/infer.h"

namespace tandem {
namespace {

// The factors of learning rate and decay and the sizes, where not all are 1, and which each group has. A
// float's shortest digits give it back when they are read.
void set_rates(const std::vector<UpdateBuilder::Group>& groups, Attrs& attrs) {
  std::vector<GroupFactors> rates = {{}};
  std::string which, text = "1,1";
  for (const UpdateBuilder::Group& group : groups) {
    const auto found = std::find(rates.begin(), rates.end(), group.factors);
    which += fmt::format("{}{}", which.empty() ? "" : ",", found - rates.begin());
    if (found != rates.end()) continue;
    rates.push_back(group.factors);
    text += fmt::format(";{},{}", group.factors.lr, group.factors.decay);
    if (group.factors.elems != 1) text += fmt::format(",{}", group.factors.elems);
  }
  if (rates.size() == 1) return;
  attrs.set("rate", which);
  attrs.set("rates", text);
}

}  // namespace

UpdateBuilder::UpdateBuilder(const UpdateOptions& options) : options_(options) {
  hyper_ = input("hyper", {DType::F32, Shape({num_hyper_slots(options.optimizer)})});
  stats_ = input("stats", {DType::F64, Shape({kNumStats + static_cast<int64_t>(options.num_metrics)})});
  if (options.sums_stats) {
    const Value sum = graph_.add(loss_stats_state(Phase::Update));
    stats_ = emit(Op::AddStats, {stats_, sum});
    clear(sum);
  }
  if (options.sums_metrics) {
    const Value sums = graph_.add(metric_sums_state(options.num_metrics, Phase::Update));
    stats_ = emit(Op::AddStats, {stats_, sums}, {{"at", kNumStats}});
    clear(sums);
  }
  if (options.precision.scales_loss()) {
    scaler_ = graph_.add(loss_scaler_state(Phase::Update));
    hyper_ = emit(Op::UnscaleHyper, {hyper_, scaler_});
  }
  for (size_t i = 0; i < options.slots.size(); ++i) slots_[options.slots[i]] = static_cast<int64_t>(i);
}

Value UpdateBuilder::emit(Op op, std::vector<Value> inputs, Attrs attrs, int32_t block) {
  return append(graph_, op, std::move(inputs), std::move(attrs), block, Phase::Update);
}

Value UpdateBuilder::state(const std::string& name, TensorType type, std::string_view category,
                           std::string init) {
  const Attrs attrs{{"category", std::string(category)}, {"init", std::move(init)}};
  return graph_.add({Op::State, {}, attrs, {std::move(type)}, kNoBlock, Phase::Update, name});
}

void UpdateBuilder::count(const std::string& param, Value gradient) {
  counted_.push_back(gradient);
  const bool in_one = options_.fixed_order && !options_.norms_apart;
  counted_slots_ += fmt::format("{}{}", counted_slots_.empty() ? "" : ",", in_one ? 0 : slots_.at(param));
}

void UpdateBuilder::finish_norm(int world) {
  std::vector<Value> inputs = {hyper_, stats_};
  inputs.insert(inputs.end(), counted_.begin(), counted_.end());
  const bool exact = options_.fixed_order;
  const auto params = static_cast<int64_t>(options_.slots.size());
  const int64_t num_slots = exact ? ExactSquares::kLimbs * (options_.norms_apart ? params : 1) : params;
  Attrs attrs{{"num_slots", num_slots}};
  if (exact) attrs.set("exact", int64_t{1});
  Attrs sum_attrs = attrs;
  sum_attrs.set("slots", counted_slots_);
  Value sums = emit(Op::SquareSums, inputs, sum_attrs);
  if (world > 1) sums = emit(Op::AllReduce, {sums}, {{"axis", "world"}, {"size", int64_t{world}}});
  norm_ = emit(Op::GlobalNorm, exact ? std::vector{sums, hyper_} : std::vector{sums}, attrs);
  graph_.add_output("norm", norm_);
  graph_.add_output("sums", sums);
}

std::vector<Value> UpdateBuilder::scalars(bool on_host) {
  std::vector<Value> values = {hyper_, norm_};
  for (size_t i = 0; on_host && i < values.size(); ++i) {
    if (!scalars_on_host_[i].valid()) scalars_on_host_[i] = emit(Op::Copy, {values[i]}, {{"to", "host"}});
    values[i] = scalars_on_host_[i];
  }
  return values;
}

Value UpdateBuilder::optimize(OptimizerKind rule, const std::vector<Group>& groups, int32_t block,
                              bool on_host) {
  std::vector<Value> inputs = scalars(on_host);
  const bool measured = optimizer_entry(rule).granularity == Granularity::Tensor;
  if (measured) inputs.push_back(sums_);
  std::string decay, keys;
  for (const Group& group : groups) {
    keys += fmt::format("{}{},{}", keys.empty() ? "" : ";", slots_.at(group.param), group.begin);
    inputs.insert(inputs.end(), group.tensors.begin(), group.tensors.end());
    decay += fmt::format("{}{}", decay.empty() ? "" : ",", group.decay ? 1 : 0);
  }
  Attrs attrs{{"masters", int64_t{has_masters(options_.precision, options_.optimizer)}}, {"decay", decay}};
  if (measured) attrs.set("slots", slots_of(groups));
  set_rates(groups, attrs);
  if (options_.state_type != StateType::Fp32) attrs.set("keys", keys);
  if (options_.state_type == StateType::Int8) attrs.set("scaled", int64_t{1});
  // Directions are gone after this, and need not be zeroed.
  const bool directions = optimizer_entry(rule).granularity == Granularity::Matrix;
  if (options_.keep_gradients || directions) attrs.set("keep", int64_t{1});
  const Value updated = emit(optimizer_op(rule), inputs, std::move(attrs), block);
  keep_averages(groups, updated, group_size(rule), block, on_host);
  return updated;
}

std::string UpdateBuilder::slots_of(const std::vector<Group>& groups) const {
  std::string text;
  for (const Group& group : groups)
    text += fmt::format("{}{}", text.empty() ? "" : ",", slots_.at(group.param));
  return text;
}

void UpdateBuilder::finish_sums(int world) {
  std::vector<Value> inputs = scalars(false);
  std::string decay;
  for (const Group& group : measured_) {
    inputs.insert(inputs.end(), group.tensors.begin(), group.tensors.end());
    decay += fmt::format("{}{}", decay.empty() ? "" : ",", group.decay ? 1 : 0);
  }
  Attrs attrs{{"masters", int64_t{has_masters(options_.precision, options_.optimizer)}},
              {"decay", decay},
              {"slots", slots_of(measured_)},
              {"num_slots", static_cast<int64_t>(options_.slots.size())}};
  set_rates(measured_, attrs);
  if (options_.state_type == StateType::Int8) attrs.set("scaled", int64_t{1});
  sums_ = emit(sums_op(options_.optimizer), inputs, std::move(attrs));
  if (world > 1) sums_ = emit(Op::AllReduce, {sums_}, {{"axis", "world"}, {"size", int64_t{world}}});
}

void UpdateBuilder::keep_averages(const std::vector<Group>& groups, Value updated, size_t size, int32_t block,
                                  bool on_host) {
  const bool masters = has_masters(options_.precision, options_.optimizer);
  for (size_t i = 0; i < groups.size(); ++i) {
    if (!groups[i].average.valid()) continue;
    std::vector<Value> inputs = scalars(on_host);
    inputs.insert(inputs.end(), {groups[i].average, {updated.node, static_cast<int32_t>(i * size)}});
    if (masters) inputs.push_back({updated.node, static_cast<int32_t>((i + 1) * size) - 1});
    emit(Op::Ema, inputs, {{"decay", options_.ema}, {"masters", int64_t{masters}}}, block);
  }
}

Value UpdateBuilder::direction(Value gradient, Value momentum, int32_t block, bool on_host) {
  std::vector<Value> inputs = scalars(on_host);
  inputs.insert(inputs.end(), {gradient, momentum});
  Attrs attrs{{"dtype", std::string(dtype_name(options_.precision.storage))}};
  if (options_.keep_gradients) attrs.set("keep", int64_t{1});
  if (on_host) attrs.set("to", "host");
  return emit(Op::MuonDirection, inputs, std::move(attrs), block);
}

void UpdateBuilder::average(const Node& running, int ranks) {
  if (ranks == 1) return;
  Node leaf = running;
  leaf.phase = Phase::Update;
  const Value sum = emit(Op::AllReduce, {graph_.add(std::move(leaf))},
                         {{"axis", "data"}, {"size", int64_t{ranks}}}, running.block);
  const Value mean = emit(Op::Scale, {sum}, {{"factor", 1.0 / ranks}}, running.block);
  emit(Op::Copy, {mean, sum}, {{"to", "device"}}, running.block);
}

DType UpdateBuilder::state_dtype() const {
  switch (options_.state_type) {
    case StateType::Fp32: return options_.precision.storage == DType::F64 ? DType::F64 : DType::F32;
    case StateType::Bf16: return DType::BF16;
    case StateType::Int8: return DType::U8;
  }
  return DType::F32;
}

void UpdateBuilder::update_ranges(int world) {
  for (std::string_view name : {kFp8Activations, kFp8Gradients}) {
    if (options_.fp8_slots == 0) break;
    const Value range = graph_.add(fp8_state(name, options_.fp8_slots, Phase::Update));
    const Value need = graph_.add(fp8_need(name, options_.fp8_slots, Phase::Update));
    std::vector<Value> inputs = {range, need};
    if (world > 1)
      inputs.push_back(emit(Op::AllGather, {need}, {{"axis", "world"}, {"size", int64_t{world}}}));
    emit(Op::Fp8Ranges, inputs);
  }
}

void UpdateBuilder::finish_scaler() {
  if (!scaler_.valid()) return;
  const int64_t window = options_.precision.loss_scale_window;
  const Value next = emit(Op::NextLossScale, {scaler_, norm_}, {{"window", window}});
  graph_.add_output(std::string(kLossScaler), next);
}

void UpdateBuilder::clear(Value value, int32_t block) {
  const TensorType type = graph_.type(value);
  emit(Op::Zeros, {value},
       {{"dtype", std::string(dtype_name(type.dtype))}, {"shape", shape_attr(type.shape)}}, block);
}

size_t UpdateBuilder::group_size(OptimizerKind rule) const {
  const size_t tensors = options_.state_type == StateType::Int8 ? 2 : 1;  // a state, and its scales
  return 2 + tensors * optimizer_entry(rule).rule_states() +
         (has_masters(options_.precision, options_.optimizer) ? 1 : 0);
}

Value UpdateBuilder::input(const std::string& name, TensorType type) {
  return graph_.add({Op::Input, {}, {}, {std::move(type)}, kNoBlock, Phase::Update, name});
}

}  // namespace tandem
