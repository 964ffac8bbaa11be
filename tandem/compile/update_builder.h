// The parts that every update has: inputs, the norm over all pieces, optimizer nodes, what follows them.
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "tandem/compile/update_graph.h"

namespace tandem {

class UpdateBuilder {
 public:
  explicit UpdateBuilder(const UpdateOptions& options);

  Graph& graph() { return graph_; }
  Value emit(Op op, std::vector<Value> inputs, Attrs attrs = {}, int32_t block = kNoBlock);
  Value state(const std::string& name, TensorType type, std::string_view category, std::string init);

  // A gradient, or a piece of one, counts for the norm.
  void count(const std::string& param, Value gradient);
  // Once all gradients are counted. `world` ranks add up their sums.
  void finish_norm(int world);

  struct Group {
    std::vector<Value> tensors;  // w, g, states... [, their scales...] [, master]
    bool decay;
    std::string param;  // of which this is a part, from element `begin` on
    int64_t begin;
    GroupFactors factors;  // of its learning rate and weight decay
    Value average;         // the moving average of w, where there is one
  };
  // Returns the node; output i is tensor i of the groups in order. `on_host`: they are in the host's memory.
  Value optimize(OptimizerKind rule, const std::vector<Group>& groups, int32_t block, bool on_host = false);

  // Where the optimizer reads norms of whole parameters: a part of one counts for them. Then, once all of
  // them do: `world` ranks add up their sums.
  void measure(Group group) { measured_.push_back(std::move(group)); }
  void finish_sums(int world);

  // Muon's direction in the storage type, of a gradient and the momentum; both are updated in place.
  Value direction(Value gradient, Value momentum, int32_t block, bool on_host);

  // Running statistics, of which each of the data axis's `ranks` has made its own: their mean.
  void average(const Node& running, int ranks);

  // The ranges that the next step's 8-bit scales are made of: the largest need of all `world` ranks.
  void update_ranges(int world);
  // At the end: the loss scale of the next step.
  void finish_scaler();
  void clear(Value value, int32_t block = kNoBlock);

  std::vector<Value> scalars(bool on_host = false);  // hyper and norm
  DType state_dtype() const;                         // in which states are kept

  // Tensors of a group, and how many of them are outputs of the optimizer's node: all.
  size_t group_size(OptimizerKind rule) const;

 private:
  Value input(const std::string& name, TensorType type);
  // The moving averages, in place, of what was just updated: w, or the masters that w is rounded from.
  void keep_averages(const std::vector<Group>& groups, Value updated, size_t size, int32_t block,
                     bool on_host);
  std::string slots_of(const std::vector<Group>& groups) const;

  const UpdateOptions& options_;
  Graph graph_;
  Value hyper_, stats_, norm_;
  Value sums_;  // of squares of whole parameters, where the optimizer reads such
  std::vector<Group> measured_;
  Value scaler_;                          // where the loss is scaled
  std::array<Value, 2> scalars_on_host_;  // hyper and norm, where an optimizer was offloaded
  std::map<std::string, int64_t> slots_;
  std::vector<Value> counted_;
  std::string counted_slots_;
};

}  // namespace tandem
