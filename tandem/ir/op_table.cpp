#include "tandem/ir/op_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "tandem/base/error.h"
#include "tandem/ir/ops/entry.h"

namespace tandem {
namespace {

// By op. An op without an entry is found by the table's test, and by whoever asks for it.
using Table = std::vector<std::optional<OpInfo>>;

int place_of(const OpInfo& info, std::string_view input) {
  if (input.empty()) return -1;
  const std::vector<InputInfo>& inputs = *info.inputs;
  const auto it =
      std::find_if(inputs.begin(), inputs.end(), [&](const InputInfo& i) { return i.name == input; });
  TANDEM_CHECK(it != inputs.end(), "op table: {} has no input '{}'", info.name.get(), input);
  return static_cast<int>(it - inputs.begin());
}

Table make_table() {
  Table table(static_cast<size_t>(kNumOps));
  for (auto* group : {ops::leaf_ops, ops::linear_ops, ops::fp8_ops, ops::norm_ops, ops::image_norm_ops,
                      ops::attention_ops, ops::cached_attention_ops, ops::qk_norm_ops, ops::pointwise_ops,
                      ops::shape_ops, ops::image_ops, ops::embedding_ops, ops::loss_ops, ops::optimizer_ops,
                      ops::matrix_update_ops, ops::factored_update_ops, ops::collective_ops}) {
    for (OpInfo& info : group()) {
      for (OutputInfo& output : *info.outputs) {
        output.shared_input = place_of(info, output.shares);
        output.reused_input = place_of(info, output.reuses);
      }
      std::optional<OpInfo>& entry = table[static_cast<size_t>(info.op.get())];
      TANDEM_CHECK(!entry, "op table: {} has two entries", info.name.get());
      entry = std::move(info);
    }
  }
  return table;
}

const Table& op_table() {
  static const Table table = make_table();
  return table;
}

bool is_set(const Attrs& attrs, std::string_view name) { return attrs.integer_or(name, 0) != 0; }

std::string_view type_name(const AttrValue& value) {
  if (std::holds_alternative<int64_t>(value)) return "an integer";
  return std::holds_alternative<double>(value) ? "a real" : "text";
}

bool fits(AttrType type, const AttrValue& value) {
  switch (type) {
    case AttrType::Integer: return std::holds_alternative<int64_t>(value);
    case AttrType::Real: return !std::holds_alternative<std::string>(value);
    case AttrType::Text: return std::holds_alternative<std::string>(value);
  }
  return false;
}

std::string_view expected_type(AttrType type) {
  switch (type) {
    case AttrType::Integer: return "an integer";
    case AttrType::Real: return "a number";
    case AttrType::Text: return "text";
  }
  return "";
}

std::string attr_names(const OpInfo& info) {
  std::string names;
  for (const AttrInfo& attr : *info.attrs) names += fmt::format("{}{}", names.empty() ? "" : ", ", attr.name);
  return names.empty() ? "none" : names;
}

std::string complaint_of_attrs(const OpInfo& info, const Attrs& attrs) {
  for (const AttrInfo& attr : *info.attrs) {
    if (attr.required && !attrs.has(attr.name))
      return fmt::format("expected the attribute {} ({}), found none", attr.name, expected_type(attr.type));
  }
  for (const auto& [name, value] : attrs.items()) {
    const auto& known = *info.attrs;
    const auto it =
        std::find_if(known.begin(), known.end(), [&](const AttrInfo& a) { return a.name == name; });
    if (it == known.end()) return fmt::format("expected attributes {}, found {}", attr_names(info), name);
    if (!fits(it->type, value))
      return fmt::format("attribute {}: expected {}, found {}", name, expected_type(it->type),
                         type_name(value));
  }
  return "";
}

// Which of an entry's inputs a node has.
class Presence {
 public:
  Presence(const OpInfo& info, size_t num_inputs, const Attrs& attrs)
      : inputs_(*info.inputs), attrs_(attrs), left_over_(static_cast<int64_t>(num_inputs)) {
    for (const InputInfo& input : inputs_) {
      if (input.repeated) {
        repeated_ += is_there(input) ? 1 : 0;
      } else if (input.optional) {
        ++optional_;
      } else {
        left_over_ -= is_there(input) ? 1 : 0;
      }
    }
  }

  // Inputs left out that must be there, or beyond what may be there.
  bool fits() const {
    if (repeated_ > 0) return left_over_ >= 0 && left_over_ % repeated_ == 0;
    return left_over_ >= 0 && left_over_ <= optional_;
  }

  // The input, of the first group if it is repeated; -1 where it is not there.
  int index_of(int place) const {
    int index = 0;
    int64_t optional_left = repeated_ > 0 ? 0 : left_over_;
    for (int i = 0; i <= place; ++i) {
      const InputInfo& input = inputs_[static_cast<size_t>(i)];
      const bool there = input.optional ? optional_left-- > 0 : is_there(input);
      if (i == place) return there ? index : -1;
      index += there ? 1 : 0;
    }
    return -1;
  }
  int group_size() const { return repeated_; }

 private:
  bool is_there(const InputInfo& input) const { return input.attr.empty() || is_set(attrs_, input.attr); }

  const std::vector<InputInfo>& inputs_;
  const Attrs& attrs_;
  int64_t left_over_;  // beyond those that are always there
  int64_t optional_ = 0;
  int repeated_ = 0;
};

// The entry's output that is a node's output `index`, and where the inputs that it names are.
struct Found {
  const OutputInfo* output = nullptr;
  int round = 0;  // of a repeated group
};
Found find_output(const OpInfo& info, const Presence& presence, const Attrs& attrs, int index) {
  int at = 0;
  for (const OutputInfo& output : *info.outputs) {
    const bool repeated =
        output.in_place && (*info.inputs)[static_cast<size_t>(output.shared_input)].repeated;
    if (output.in_place ? presence.index_of(output.shared_input) < 0
                        : !output.attr.empty() && !is_set(attrs, output.attr))
      continue;
    if (at == index) return {&output, 0};
    if (repeated && index > at && (index - at) % presence.group_size() == 0)
      return {&output, (index - at) / presence.group_size()};
    ++at;
  }
  return {};
}

}  // namespace

OutputInfo OutputInfo::into(std::string_view input) const {
  OutputInfo result = *this;
  result.shares = input;
  return result;
}

OutputInfo OutputInfo::over(std::string_view input) const {
  OutputInfo result = *this;
  result.reuses = input;
  return result;
}

bool OpInfo::has_attr(std::string_view attr) const {
  return std::any_of((*attrs).begin(), (*attrs).end(), [&](const AttrInfo& a) { return a.name == attr; });
}

bool has_entry(Op op) { return op_table()[static_cast<size_t>(op)].has_value(); }

const OpInfo& op_info(Op op) {
  const std::optional<OpInfo>& entry = op_table()[static_cast<size_t>(op)];
  TANDEM_CHECK(entry.has_value(), "op table: op {} has no entry", static_cast<int>(op));
  return *entry;
}

std::string_view op_name(Op op) { return op_info(op).name; }

Op parse_op(std::string_view name) {
  for (const std::optional<OpInfo>& entry : op_table()) {
    if (entry && entry->name.get() == name) return entry->op;
  }
  throw ConfigError("op '{}': no such op", name);
}

std::string signature(const OpInfo& info) {
  std::string text, group;
  for (const InputInfo& input : *info.inputs) {
    std::string& to = input.repeated ? group : text;
    const std::string_view comma = to.empty() ? "" : ", ";
    if (!input.attr.empty()) {
      to += fmt::format(" [{}{} with {{{}: 1}}]", comma, input.name, input.attr);
    } else if (input.optional) {
      to += fmt::format("{}[{}{}]", to.empty() ? "" : " ", comma, input.name);
    } else {
      to += fmt::format("{}{}", comma, input.name);
    }
  }
  if (!group.empty()) text += fmt::format("{}({})...", text.empty() ? "" : ", ", group);
  return text;
}

std::string complaint(const OpInfo& info, size_t num_inputs, const Attrs& attrs) {
  const std::string wrong = complaint_of_attrs(info, attrs);
  if (!wrong.empty()) return wrong;
  if (Presence(info, num_inputs, attrs).fits()) return "";
  return fmt::format("expected inputs ({}), found {} of them", signature(info), num_inputs);
}

int aliased_input(const Node& node, int index) {
  const OpInfo& info = op_info(node.op);
  const Presence presence(info, node.inputs.size(), node.attrs);
  const auto [output, round] = find_output(info, presence, node.attrs, index);
  if (output == nullptr || output->shared_input < 0) return -1;
  const int input = presence.index_of(output->shared_input);
  return input < 0 ? -1 : input + round * presence.group_size();
}

int reusable_input(const Node& node, int index) {
  const OpInfo& info = op_info(node.op);
  const Presence presence(info, node.inputs.size(), node.attrs);
  const auto [output, round] = find_output(info, presence, node.attrs, index);
  return output == nullptr || output->reused_input < 0 ? -1 : presence.index_of(output->reused_input);
}

}  // namespace tandem
