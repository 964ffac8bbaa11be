#include "tandem/compile/passes/stage.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tandem/base/error.h"
#include "tandem/compile/rewrite.h"
#include "tandem/compile/trained.h"
#include "tandem/ir/infer.h"

namespace tandem {
namespace {

// The chunk of every node, leaves included (by where they stand; their readers may be elsewhere).
std::vector<int> chunk_of_nodes(const Graph& graph, int num_chunks) {
  std::set<int32_t> ids;
  int32_t last_in_block = -1;
  for (int32_t id = 0; id < graph.num_nodes(); ++id) {
    if (graph.node(id).block == kNoBlock) continue;
    ids.insert(graph.node(id).block);
    last_in_block = id;
  }
  const std::vector<int32_t> blocks(ids.begin(), ids.end());
  const std::vector<int> of_block = chunk_of_blocks(static_cast<int>(blocks.size()), num_chunks);
  std::vector<int> chunks;
  int current = 0;
  for (int32_t id = 0; id < graph.num_nodes(); ++id) {
    const int32_t block = graph.node(id).block;
    if (block != kNoBlock) {
      const auto at = std::lower_bound(blocks.begin(), blocks.end(), block) - blocks.begin();
      current = of_block[static_cast<size_t>(at)];
    } else if (id > last_in_block) {
      current = num_chunks - 1;
    }
    chunks.push_back(current);
  }
  return chunks;
}

class Cut {
 public:
  Cut(const Graph& graph, int num_chunks)
      : graph_(graph), num_chunks_(num_chunks), chunks_(chunk_of_nodes(graph, num_chunks)) {
    for (int32_t id = 0; id < graph.num_nodes(); ++id) {
      if (is_leaf(graph.node(id).op)) continue;
      for (Value input : graph.node(id).inputs) readers_[input].insert(of(id));
    }
  }

  int of(int32_t id) const { return chunks_[static_cast<size_t>(id)]; }

  // The chunks that need a leaf; where nobody reads it, the one it stands in.
  std::set<int> users(int32_t leaf) const {
    const auto it = readers_.find({leaf, 0});
    return it == readers_.end() ? std::set<int>{of(leaf)} : it->second;
  }

  // The one value that goes from chunk `before` to the next.
  Value crossing(int before) const {
    std::vector<Value> values;
    for (const auto& [value, chunks] : readers_) {
      if (!is_leaf(graph_.node(value.node).op) && of(value.node) <= before && *chunks.rbegin() > before)
        values.push_back(value);
    }
    if (values.size() == 1 && of(values[0].node) == before) return values[0];
    std::vector<std::string> names;
    for (Value value : values) {
      names.push_back(fmt::format("{} in {}", op_name(graph_.node(value.node).op), where(value.node)));
    }
    throw ConfigError(
        "parallel.pipeline: the model cannot be cut into {} parts: one value, the residual stream, may go "
        "from "
        "part {} to part {}, found {} ({}); use fewer stages, or let blocks read only the block before",
        num_chunks_, before, before + 1, names.size(), fmt::join(names, ", "));
  }

 private:
  std::string where(int32_t id) const {
    const int32_t block = graph_.node(id).block;
    return block == kNoBlock ? fmt::format("part {}", of(id)) : fmt::format("block {}", block);
  }

  const Graph& graph_;
  int num_chunks_;
  std::vector<int> chunks_;
  std::map<Value, std::set<int>> readers_;  // value -> chunks that read it
};

// Which end of the model a leaf that several chunks use stands at here; empty for a leaf of one chunk.
std::string tied_end(const Node& leaf, const std::set<int>& users, int chunk, int num_chunks) {
  if (leaf.op == Op::Input || users.size() == 1) return {};
  if (leaf.op == Op::Param && users == std::set<int>{0, num_chunks - 1}) return chunk == 0 ? "first" : "last";
  throw ConfigError(
      "parallel.pipeline: '{}' is used by parts {} of {}; only a parameter of the first and the last part "
      "(a tied embedding) can be shared; use fewer stages",
      leaf.name, fmt::join(users, " and "), num_chunks);
}

}  // namespace

std::vector<int> chunk_of_blocks(int num_blocks, int num_chunks) {
  if (num_blocks < num_chunks) {
    throw ConfigError(
        "parallel.pipeline: {} parts (stages x chunks) need as many blocks; the model has {}; use at most {}",
        num_chunks, num_blocks, std::max(num_blocks, 1));
  }
  const int each = num_blocks / num_chunks, left_over = num_blocks % num_chunks;
  std::vector<int> chunks;
  for (int chunk = 0; chunk < num_chunks; ++chunk) {
    const bool takes_more = chunk < num_chunks - 1 && chunk >= num_chunks - 1 - left_over;
    chunks.insert(chunks.end(), static_cast<size_t>(each) + (takes_more ? 1 : 0), chunk);
  }
  return chunks;
}

Graph cut_stage(const Graph& forward, int chunk, int num_chunks, const MeshPosition& at) {
  if (num_chunks == 1) return forward;
  const int stages = at.size(Axis::Pipeline);
  TANDEM_CHECK(stages > 1 && num_chunks % stages == 0 && chunk % stages == at.pipeline,
               "cut_stage: chunk {} of {} on pipeline rank {} of {}", chunk, num_chunks, at.pipeline, stages);
  const Cut cut(forward, num_chunks);
  const std::set<Value> trained = trained_values(forward);
  const auto link = [&](int peer_chunk, Value crossing) {
    Attrs attrs{{"axis", std::string(axis_name(Axis::Pipeline))}, {"peer", int64_t{peer_chunk % stages}}};
    if (!trained.contains(crossing)) attrs.set("untrained", int64_t{1});
    return attrs;
  };

  Rewrite rewrite(forward);
  if (chunk > 0) {
    const Value value = cut.crossing(chunk - 1);
    const TensorType& type = forward.type(value);
    Attrs attrs = link(chunk - 1, value);
    attrs.set("dtype", std::string(dtype_name(type.dtype)));
    attrs.set("shape", shape_attr(type.shape));
    rewrite.set(value, append(rewrite.graph(), Op::Recv, {}, attrs));
  }
  for (int32_t id = 0; id < forward.num_nodes(); ++id) {
    const Node& node = forward.node(id);
    if (!is_leaf(node.op)) {
      if (cut.of(id) == chunk) rewrite.copy(id);
      continue;
    }
    const std::set<int> users = cut.users(id);
    if (!users.contains(chunk)) continue;
    const int32_t copy = rewrite.copy(id);
    if (const std::string end = tied_end(node, users, chunk, num_chunks); !end.empty())
      rewrite.graph().node(copy).attrs.set("tied", end);
  }
  if (chunk < num_chunks - 1)
    append(rewrite.graph(), Op::Send, {rewrite.at(cut.crossing(chunk))},
           link(chunk + 1, cut.crossing(chunk)));

  Graph graph = std::move(rewrite.graph());
  for (const GraphOutput& output : forward.outputs()) {
    if (cut.of(output.value.node) == chunk) graph.add_output(output.name, rewrite.at(output.value));
  }
  return graph;
}

}  // namespace tandem
