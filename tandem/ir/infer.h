// Output types from input types, by the op table's rules: nobody else works shapes out.
#pragma once

#include <span>
#include <vector>

#include "tandem/ir/graph.h"

namespace tandem {

// Throws ConfigError starting with the op's name when the number of inputs, their types or the attributes do
// not fit it.
std::vector<TensorType> infer_outputs(Op op, std::span<const TensorType> in, const Attrs& attrs);

// Appends a node, inferring its output types from the graph.
Value append(Graph& graph, Op op, std::vector<Value> inputs, Attrs attrs = {}, int32_t block = kNoBlock,
             Phase phase = Phase::Forward);

std::vector<TensorType> input_types(const Graph& graph, const Node& node);

// Whole numbers with one character between them: "0,2,1", "0:64,128:192".
std::vector<int64_t> parse_numbers(std::string_view text);
Shape parse_shape(std::string_view text);    // "2,3" -> [2,3]
std::string shape_attr(const Shape& shape);  // [2,3] -> "2,3"
std::string shape_attr(const std::vector<int64_t>& dims);

}  // namespace tandem
