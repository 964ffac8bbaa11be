#include "tandem/compile/units.h"

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/compile/trained.h"
#include "tandem/ir/infer.h"

namespace tandem {
namespace {

int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

UnitParam unit_param(const Node& node) {
  UnitParam param;
  param.name = node.name;
  param.type = node.outputs[0];
  param.logical = node.attrs.has("logical") ? parse_shape(node.attrs.text("logical")) : param.type.shape;
  param.boxes = node.attrs.has("boxes") ? parse_boxes(node.attrs.text("boxes"))
                                        : std::vector<Box>{whole_box(param.logical)};
  param.init = node.attrs.text("init");
  if (node.attrs.has("tied")) param.tied = node.attrs.text("tied");
  param.tensor_sum = node.attrs.integer_or("tensor_sum", 0) != 0;
  param.factors = {.lr = static_cast<float>(node.attrs.real_or("lr", 1)),
                   .decay = static_cast<float>(node.attrs.real_or("decay", 1))};
  return param;
}

// Elements [begin, end) of a rectangle are at most three rectangles: the end of a row, rows, part of a row.
void cut_box(const Box& box, int64_t begin, int64_t end, std::vector<Box>& out) {
  const int64_t cols = box.cols();
  while (begin < end) {
    const int64_t row = begin / cols, col = begin % cols;
    if (col == 0 && end - begin >= cols) {
      const int64_t rows = (end - begin) / cols;
      out.push_back({box.row_begin + row, box.row_begin + row + rows, box.col_begin, box.col_end});
      begin += rows * cols;
      continue;
    }
    const int64_t stop = std::min(end, (row + 1) * cols);
    out.push_back({box.row_begin + row, box.row_begin + row + 1, box.col_begin + col,
                   box.col_begin + col + stop - begin});
    begin = stop;
  }
}

std::string unit_name(const Node& node, bool read_last, bool matrix_apart, const UnitKinds& kinds) {
  if (kinds.each_apart) return node.name;
  const std::string_view frozen = is_frozen(node) ? ".frozen" : "";
  if (node.block != kNoBlock)
    return fmt::format("blocks.{}{}{}", node.block, matrix_apart ? ".matrices" : "", frozen);
  // Both ends of a pipeline must cut a tied table at the same places: it is a unit of its own.
  if (node.attrs.has("tied")) return fmt::format("tied{}", frozen);
  return fmt::format("{}{}", read_last ? "last" : "first", frozen);
}

std::map<Value, int32_t> first_readers(const Graph& graph) {
  std::map<Value, int32_t> first;
  for (int32_t id = 0; id < graph.num_nodes(); ++id) {
    for (Value input : graph.node(id).inputs) first.try_emplace(input, id);
  }
  return first;
}

int32_t first_in_blocks(const Graph& graph) {
  for (int32_t id = 0; id < graph.num_nodes(); ++id) {
    const Node& node = graph.node(id);
    if (!is_leaf(node.op) && (node.block != kNoBlock || node.op == Op::Recv)) return id;
  }
  return graph.num_nodes();
}

}  // namespace

std::vector<Box> parse_boxes(std::string_view text) {
  const std::vector<int64_t> numbers = parse_numbers(text);
  TANDEM_CHECK(numbers.size() % 4 == 0, "boxes '{}'", text);
  std::vector<Box> boxes;
  for (size_t i = 0; i < numbers.size(); i += 4)
    boxes.push_back({numbers[i], numbers[i + 1], numbers[i + 2], numbers[i + 3]});
  return boxes;
}

UnitLayout::UnitLayout(std::span<const Graph> graphs, const MeshPosition& at, const UnitLayout* widest,
                       const UnitKinds& kinds)
    : at_(at) {
  std::map<std::string, size_t> by_name;
  const auto unit_named = [&](const std::string& name, const Node& node, DType gradients) -> Unit& {
    const auto [it, added] = by_name.try_emplace(name, units_.size());
    if (added) units_.push_back({name, node.block, is_frozen(node), gradients, {}, 0, 0});
    return units_[it->second];
  };
  for (const Graph& graph : graphs) {
    const std::map<Value, int32_t> first = first_readers(graph);
    const int32_t middle = first_in_blocks(graph);
    for (int32_t id = 0; id < graph.num_nodes(); ++id) {
      const Node& node = graph.node(id);
      if (node.op != Op::Param) continue;
      storage_ = node.outputs[0].dtype;
      const auto reader = first.find({id, 0});
      const bool last = reader != first.end() && reader->second > middle;
      const bool apart = kinds.matrices_apart && node.outputs[0].shape.rank() > 1;
      const DType wide = storage_ == DType::F64 ? DType::F64 : DType::F32;
      const DType gradients = node.block != kNoBlock && apart ? kinds.matrix_gradients : wide;
      unit_named(unit_name(node, last, apart, kinds), node, gradients).params.push_back(unit_param(node));
    }
  }
  const int64_t alignment = kinds.each_apart ? 1 : kinds.alignment;
  for (size_t u = 0; u < units_.size(); ++u) {
    Unit& unit = units_[u];
    std::stable_partition(unit.params.begin(), unit.params.end(),
                          [](const UnitParam& param) { return param.tensor_sum; });
    for (size_t p = 0; p < unit.params.size(); ++p) {
      UnitParam& param = unit.params[p];
      param.begin = unit.elems;
      unit.elems = round_up(param.end(), alignment);
      if (param.tensor_sum) unit.num_summed = unit.elems;
      TANDEM_CHECK(places_.emplace(param.name, Place{u, p}).second, "parameter '{}' twice", param.name);
    }
    unit.elems = round_up(unit.elems, alignment * ranks());
    if (widest == nullptr) continue;
    for (const Unit& other : widest->units_) {
      if (other.name == unit.name) unit.elems = std::max(unit.elems, other.elems);
    }
  }
}

bool holds_block_matrices(const Unit& unit) {
  return unit.block != kNoBlock && std::all_of(unit.params.begin(), unit.params.end(),
                                               [](const auto& param) { return param.logical.rank() > 1; });
}

const UnitLayout::Place* UnitLayout::find(const std::string& param) const {
  const auto it = places_.find(param);
  return it == places_.end() ? nullptr : &it->second;
}

std::vector<ParamPiece> pieces_in(const Unit& unit, Range range) {
  std::vector<ParamPiece> pieces;
  for (const UnitParam& param : unit.params) {
    const Range common{std::max(range.begin, param.begin), std::min(range.end, param.end())};
    if (common.begin < common.end) pieces.push_back({&param, common});
  }
  return pieces;
}

std::vector<Box> logical_boxes(const UnitParam& param, int64_t begin, int64_t end) {
  std::vector<Box> boxes;
  int64_t start = 0;
  for (const Box& box : param.boxes) {
    const int64_t from = std::max(begin, start) - start, to = std::min(end, start + box.elems()) - start;
    if (from < to) cut_box(box, from, to, boxes);
    start += box.elems();
  }
  return boxes;
}

std::vector<Piece> logical_pieces(const UnitLayout& layout, const Unit& unit, Range range,
                                  std::string_view prefix, bool starts) {
  const Range own = layout.own(unit);
  std::vector<Piece> pieces;
  // Cut at the borders of this rank's own part, so that each piece is owned wholly or not at all.
  for (const Range& part : {Range{range.begin, std::min(range.end, own.begin)},
                            Range{std::max(range.begin, own.begin), std::min(range.end, own.end)},
                            Range{std::max(range.begin, own.end), range.end}}) {
    if (part.begin >= part.end) continue;
    const bool mine = part.begin >= own.begin && part.end <= own.end;
    for (const ParamPiece& piece : pieces_in(unit, part)) {
      const UnitParam& param = *piece.param;
      const bool here = (!param.tensor_sum || layout.position().tensor == 0) && param.tied != "last";
      int64_t offset = piece.range.begin - range.begin;
      for (const Box& box :
           logical_boxes(param, piece.range.begin - param.begin, piece.range.end - param.begin)) {
        pieces.push_back({std::string(prefix) + param.name, param.logical, box, offset,
                          starts ? param.init : "zeros", mine && here});
        offset += box.elems();
      }
    }
  }
  return pieces;
}

}  // namespace tandem
