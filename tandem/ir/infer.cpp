#include "tandem/ir/infer.h"

#include <fmt/format.h>

#include <charconv>

#include "tandem/base/error.h"
#include "tandem/ir/op_table.h"
#include "tandem/ir/ops/operands.h"

namespace tandem {

std::vector<TensorType> infer_outputs(Op op, std::span<const TensorType> in, const Attrs& attrs) {
  const OpInfo& info = op_info(op);
  const std::string wrong = complaint(info, in.size(), attrs);
  if (!wrong.empty()) throw ConfigError("{}: {}", info.name.get(), wrong);
  return info.infer.get()(Operands(op, in, attrs));
}

std::vector<TensorType> input_types(const Graph& graph, const Node& node) {
  std::vector<TensorType> types;
  types.reserve(node.inputs.size());
  for (Value value : node.inputs) types.push_back(graph.type(value));
  return types;
}

Value append(Graph& graph, Op op, std::vector<Value> inputs, Attrs attrs, int32_t block, Phase phase) {
  Node node{op, std::move(inputs), std::move(attrs), {}, block, phase, {}};
  node.outputs = infer_outputs(op, input_types(graph, node), node.attrs);
  return graph.add(std::move(node));
}

std::vector<int64_t> parse_numbers(std::string_view text) {
  std::vector<int64_t> numbers;
  const char* at = text.data();
  const char* end = text.data() + text.size();
  while (at < end) {
    int64_t value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    TANDEM_CHECK(error == std::errc(), "numbers '{}'", text);
    numbers.push_back(value);
    at = next + (next < end ? 1 : 0);
  }
  return numbers;
}

Shape parse_shape(std::string_view text) {
  std::vector<int64_t> dims;
  while (!text.empty()) {
    int64_t dim = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), dim);
    if (error != std::errc() || dim < 0) throw ConfigError("shape '{}': expected numbers such as 2,3", text);
    dims.push_back(dim);
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    if (!text.empty() && text[0] == ',') text.remove_prefix(1);
  }
  return Shape(dims);
}

std::string shape_attr(const std::vector<int64_t>& dims) { return fmt::format("{}", fmt::join(dims, ",")); }
std::string shape_attr(const Shape& shape) { return shape_attr(shape.dims()); }

}  // namespace tandem
