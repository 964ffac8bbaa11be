#include "tandem/runtime/optimizer_args.h"

#include <charconv>

#include "tandem/base/error.h"
#include "tandem/base/split_float.h"
#include "tandem/ir/infer.h"
#include "tandem/runtime/storage.h"

namespace tandem {
namespace {

size_t num_states(Op op) { return optimizer_entry(optimizer_of(op).value()).rule_states(); }

bool is_scaled(const Attrs& attrs) { return attrs.integer_or("scaled", 0) != 0; }

// Where a group has its master, behind weight, gradient, states and their scales.
int64_t first_master(Op op, const Attrs& attrs) {
  return 2 + static_cast<int64_t>(num_states(op)) * (is_scaled(attrs) ? 2 : 1);
}

// Of the random numbers that round states, by the parameter and where in it a group begins.
std::vector<uint64_t> read_keys(const Attrs& attrs) {
  std::vector<uint64_t> keys;
  const std::vector<int64_t> numbers = parse_numbers(attrs.text_or("keys", ""));
  for (size_t i = 0; i + 1 < numbers.size(); i += 2)
    keys.push_back((static_cast<uint64_t>(numbers[i]) << 40) + static_cast<uint64_t>(numbers[i + 1]));
  return keys;
}

// Of states without scales: f32 or bf16.
DType state_dtype(Op op, const CallSignature& call, size_t first) {
  const bool narrow = num_states(op) > 0 && call.in[first].dtype == DType::BF16;
  return narrow ? DType::BF16 : DType::F32;
}

// The groups of a call from its input `first` on.
bool supports_groups(Op op, const CallSignature& call, size_t first) {
  const auto size = static_cast<size_t>(param_group_size(op, *call.attrs));
  const bool whole = optimizer_entry(*optimizer_of(op)).averages;  // masters
  if (call.in[0].dtype != DType::F32 || call.in[1].dtype != DType::F64) return false;
  for (size_t at = first; at < call.in.size(); at += size) {
    const DType w = call.in[at].dtype, g = call.in[at + 1].dtype;
    if (!is_storage(w) || (g != DType::F32 && g != w)) return false;
    const size_t master = at + static_cast<size_t>(first_master(op, *call.attrs));
    const size_t scales = at + 2 + num_states(op);
    const DType state = is_scaled(*call.attrs) ? DType::U8 : state_dtype(op, call, at + 2);
    for (size_t i = at + 2; i < at + size; ++i) {
      const DType wanted = i == master  ? whole ? DType::F32 : master_dtype(w)
                            : i < scales ? state
                                        : DType::F32;
      if (call.in[i].dtype != wanted) return false;
    }
  }
  return true;
}

std::vector<ParamGroup> groups_in(Op op, std::span<const TensorArg> all, const Attrs& attrs) {
  const auto size = static_cast<size_t>(param_group_size(op, attrs));
  const auto master = static_cast<size_t>(first_master(op, attrs));
  const size_t states = num_states(op), scales = is_scaled(attrs) ? states : 0;
  const std::vector<uint64_t> keys = read_keys(attrs);
  const std::vector<int64_t> slots = parse_numbers(attrs.text_or("slots", ""));
  const std::vector<int64_t> rates = parse_numbers(attrs.text_or("rate", ""));
  const std::string& flags = attrs.text("decay");  // "1,0,1"
  std::vector<ParamGroup> groups;
  const size_t num_groups = all.size() / size;
  TANDEM_CHECK(all.size() % size == 0 && flags.size() == 2 * num_groups - (num_groups > 0 ? 1 : 0),
               "{} tensors in groups of {}, decay \"{}\"", all.size(), size, flags);
  for (size_t at = 0; at < all.size(); at += size) {
    const TensorArg* tensors = &all[at];
    groups.push_back({.w = tensors,
                      .g = tensors + 1,
                      .states = {tensors + 2, states},
                      .master = size > master ? tensors + master : nullptr,
                      .decayed = flags[2 * groups.size()] == '1',
                      .scales = {tensors + 2 + states, scales},
                      .key = keys.empty() ? 0 : keys.at(groups.size()),
                      .slot = slots.empty() ? 0 : slots.at(groups.size()),
                      .rate = rates.empty() ? 0 : static_cast<size_t>(rates.at(groups.size()))});
  }
  return groups;
}

}  // namespace

int64_t param_group_size(Op op, const Attrs& attrs) {
  return first_master(op, attrs) + (attrs.integer_or("masters", 0) != 0 ? 1 : 0);
}

std::vector<ParamGroup> read_param_groups(Op op, const KernelArgs& args) {
  return groups_in(op, args.out, args.attrs);
}

std::vector<ParamGroup> read_measured_groups(Op op, const KernelArgs& args) {
  return groups_in(op, args.in.subspan(2), args.attrs);
}

std::vector<GroupFactors> read_rates(const Attrs& attrs) {
  const std::string text = attrs.text_or("rates", "1,1");
  std::vector<GroupFactors> rates;
  for (const char *at = text.data(), *end = at + text.size(); at < end; ++at) {
    GroupFactors& factors = rates.emplace_back();
    at = std::from_chars(at, end, factors.lr).ptr;
    TANDEM_CHECK(at < end && *at == ',', "rates \"{}\"", text);
    at = std::from_chars(at + 1, end, factors.decay).ptr;
    if (at < end && *at == ',') at = std::from_chars(at + 1, end, factors.elems).ptr;
    TANDEM_CHECK(at == end || *at == ';', "rates \"{}\"", text);
  }
  return rates;
}

std::vector<int64_t> read_slots(const KernelArgs& args) {
  const std::string& text = args.attrs.text("slots");  // "0,0,1"
  const int64_t num_slots = args.attrs.integer("num_slots");
  std::vector<int64_t> slots;
  for (const char *at = text.data(), *end = at + text.size(); at < end; ++at) {
    int64_t slot = -1;
    at = std::from_chars(at, end, slot).ptr;
    TANDEM_CHECK(slot >= 0 && slot < num_slots && (at == end || *at == ','), "slots \"{}\" of {}", text,
                 num_slots);
    slots.push_back(slot);
  }
  TANDEM_CHECK(slots.size() + 2 == args.in.size(), "slots \"{}\" for {} tensors", text, args.in.size() - 2);
  return slots;
}

bool supports_update(const CallSignature& call) {
  const size_t first = optimizer_entry(optimizer_of(call.op).value()).num_scalars();
  return (first < 3 || call.in[2].dtype == DType::F64) && supports_groups(call.op, call, first);
}

bool supports_parameter_sums(const CallSignature& call) {
  return call.out[0].dtype == DType::F64 && supports_groups(measured_op(call.op), call, 2);
}

}  // namespace tandem
