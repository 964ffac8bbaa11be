// The op table: everything the compiler knows of an op, in one entry. Entries stand in ops/*.cpp, a file for
// each group; every part must be stated, and an entry that leaves one out does not compile.
//
// Conventions of the entries: tensors are dense, row-major; `N` is the number of rows (all dims but the
// last); images are NHWC; a linear weight is [out, in], a convolution weight [out, kh, kw, in]. Activations
// and weights have one storage type S (f32, bf16, f16, or f64 in gradient checks); arithmetic is fp32 or
// wider, and statistics are f32. Gradients accumulate: an op adds to its inputs named acc..., in place; with
// {fresh: 1} it overwrites all of them instead.
#pragma once

#include <concepts>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/ir/graph.h"

namespace tandem {

class GradientContext;
class Operands;

// A part that has no default.
template <typename T>
class Stated {
 public:
  template <std::convertible_to<T> U>
  constexpr Stated(U value) : value_(value) {}
  constexpr operator T() const { return value_; }
  constexpr T get() const { return value_; }

 private:
  T value_;
};

// A list that has no default, not even an empty one: that is written as `kNone`.
struct None {};
inline constexpr None kNone;
template <typename T>
class StatedList {
 public:
  StatedList() = delete;
  StatedList(None) {}
  StatedList(std::initializer_list<T> items) : items_(items) {}
  explicit StatedList(std::vector<T> items) : items_(std::move(items)) {}
  const std::vector<T>& operator*() const { return items_; }
  std::vector<T>& operator*() { return items_; }

 private:
  std::vector<T> items_;
};

// What runs it: leaves and views are no work, collectives are the communicator's, all else has kernels.
enum class OpKind : uint8_t { Leaf, View, Collective, Kernel };

struct InputInfo {
  InputInfo(const char* its_name) : name(its_name) {}
  explicit InputInfo(std::string_view its_name) : name(its_name) {}

  std::string_view name;
  std::string_view attr;  // if there is one: the input is there where this attribute is not 0
  bool optional = false;  // may be left out
  bool repeated = false;  // one of a group of inputs that comes any number of times, after all others
};

struct OutputInfo {
  OutputInfo(const char* its_name) : name(its_name) {}
  explicit OutputInfo(std::string_view its_name) : name(its_name) {}
  OutputInfo into(std::string_view input) const;  // written into that input's bytes, where that is given
  OutputInfo over(std::string_view input) const;  // may take over that input's bytes, if it dies here

  std::string_view name;
  std::string_view attr;    // as of an input
  std::string_view shares;  // the input whose bytes it has
  std::string_view reuses;  // the input whose bytes it may take
  bool in_place = false;    // it is that input, updated, and there where the input is
  int shared_input = -1;    // their places among the inputs of the entry; the table fills them in
  int reused_input = -1;
};

enum class AttrType : uint8_t { Integer, Real, Text };
struct AttrInfo {
  std::string_view name;
  AttrType type;
  bool required;
};

// Output types from input types; throws ConfigError starting with the op's name where they do not fit.
using InferRule = std::vector<TensorType> (*)(const Operands& in);

// Work of a node, given the types of its inputs.
using CountRule = int64_t (*)(const Node& node, std::span<const TensorType> in);
struct CostRules {
  Stated<CountRule> flops;  // of products; what is done to each element once does not count
  Stated<CountRule> bytes;  // the fewest that it must read and write
  Stated<CountRule> sent;   // to other ranks
};

// When a forward node is made again in backward instead of being kept.
enum class Remake : uint8_t {
  Never,      // it happens once, or is no part of forward
  WithBlock,  // where all of its block is
  Cheap,      // where recompute is selective too: little work, from an input that backward keeps anyway
};

// How the tensor axis splits it (compile/passes: the tensor pass has one rule for each of these).
enum class Split : uint8_t {
  Never,      // a model that uses it cannot be split
  Input,      // every rank has all of it
  Param,      // its readers say which part a rank has
  Pointwise,  // as its operands are, by rows or by columns
  Mean,       // of rows, all or a rank's own; not by columns
  Sampled,    // by rows, each of which knows which sample it is of
  Rows,       // needs whole rows
  Linear,     // by its weight's dims
  Heads,      // by heads of packed queries, keys and values
  GateUp,     // by columns of both halves
  Reshape,    // leading dims fold
  Concat,     // the sections of its operands side by side
  Embedding,  // by the vocabulary, the result by rows
  Loss,       // by the vocabulary
};

// Appends the backward nodes of one forward node; null for an op that cannot be trained through.
using GradientRule = void (*)(GradientContext& context, int32_t node);

struct OpInfo {
  Stated<Op> op;
  Stated<std::string_view> name;     // in graph text
  Stated<std::string_view> meaning;  // its outputs, and what no other part says
  Stated<OpKind> kind;
  StatedList<InputInfo> inputs;
  StatedList<OutputInfo> outputs;
  StatedList<AttrInfo> attrs;
  Stated<InferRule> infer;
  CostRules cost;
  Stated<Remake> remake;
  Stated<Split> split;
  Stated<GradientRule> gradient;

  bool has_attr(std::string_view attr) const;
};

const OpInfo& op_info(Op op);
bool has_entry(Op op);

std::string signature(const OpInfo& info);  // "a, b [, bias]"

// What is wrong with a node of this op that has so many inputs and these attributes: "expected ..., found
// ..."; empty if nothing is.
std::string complaint(const OpInfo& info, size_t num_inputs, const Attrs& attrs);

}  // namespace tandem
