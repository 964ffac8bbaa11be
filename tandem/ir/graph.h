// The IR. A Graph is an ordered list of Nodes in static single assignment form; a Node applies an Op to
// earlier values and yields typed values. Every pass maps Graph to Graph; text.h prints and parses one.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/dtype.h"
#include "tandem/base/shape.h"
#include "tandem/ir/attrs.h"
#include "tandem/ir/op.h"

namespace tandem {

struct TensorType {
  DType dtype = DType::F32;
  Shape shape;
  int64_t bytes() const { return shape.elems() * dtype_bytes(dtype); }
  bool operator==(const TensorType&) const = default;
};

// Output `index` of node `node`.
struct Value {
  int32_t node = -1;
  int32_t index = 0;
  bool valid() const { return node >= 0; }
  auto operator<=>(const Value&) const = default;
};

// Which part of the step a node belongs to. Recomputed nodes are copies of forward nodes run in backward.
enum class Phase : uint8_t { Forward, Recompute, Backward, Update };

inline constexpr int32_t kNoBlock = -1;

// The input that dropout reads: the number of the micro-batch's first sample in the run, i32[2], low half
// first.
inline constexpr std::string_view kSampleInput = "sample";
// The inputs of a loss that is asked for two labels a row: the other one, i32[N], and the share of the
// target, f32[N].
inline constexpr std::string_view kPartnerInput = "partners";
inline constexpr std::string_view kShareInput = "shares";
// A model's own metric is the output "metric:NAME" of its forward, f64[1].
inline constexpr std::string_view kMetricPrefix = "metric:";

struct Node {
  Op op;
  std::vector<Value> inputs;
  Attrs attrs;
  std::vector<TensorType> outputs;
  int32_t block = kNoBlock;  // the transformer or residual block it belongs to
  Phase phase = Phase::Forward;
  std::string name;  // of an input, parameter or state buffer; empty otherwise
};

struct GraphOutput {
  std::string name;
  Value value;
};

class Graph {
 public:
  Value add(Node node);  // returns output 0
  const Node& node(int32_t id) const { return nodes_[static_cast<size_t>(id)]; }
  Node& node(int32_t id) { return nodes_[static_cast<size_t>(id)]; }  // a leaf keeps its name
  int32_t num_nodes() const { return static_cast<int32_t>(nodes_.size()); }
  const std::vector<Node>& nodes() const { return nodes_; }

  const TensorType& type(Value value) const;
  Value find(std::string_view leaf_name) const;  // invalid if there is no such leaf

  void add_output(std::string name, Value value) { outputs_.push_back({std::move(name), value}); }
  const std::vector<GraphOutput>& outputs() const { return outputs_; }
  std::vector<GraphOutput>& outputs() { return outputs_; }

 private:
  std::vector<Node> nodes_;
  std::map<std::string, int32_t, std::less<>> leaves_;  // by name
  std::vector<GraphOutput> outputs_;
};

// For output `index` of a node with this op and attributes: the input whose bytes it must share, or -1.
int aliased_input(const Node& node, int index);

// Where in that input's bytes the output begins: 0 for all but View.
int64_t aliased_offset(const Node& node);

// For output `index`: an input whose bytes it may take over if that input dies here, or -1.
int reusable_input(const Node& node, int index);

bool is_leaf(Op op);                  // Input, Param or State
bool is_transient(const Node& node);  // a State that need not outlive its step
bool is_view(Op op);                  // another look at the same bytes: no command
bool is_collective(Op op);            // talks to other ranks

// A leaf: state that starts as zeros, in the arena of its category.
Node zero_state(std::string name, TensorType type, std::string_view category, Phase phase,
                int32_t block = kNoBlock);

}  // namespace tandem
