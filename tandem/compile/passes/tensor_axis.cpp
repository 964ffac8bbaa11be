#include "tandem/compile/passes/tensor_axis.h"

#include <algorithm>

#include "tandem/base/box.h"
#include "tandem/base/error.h"
#include "tandem/compile/passes/column_sections.h"
#include "tandem/compile/passes/tensor_refusal.h"
#include "tandem/compile/rewrite.h"
#include "tandem/ir/infer.h"
#include "tandem/ir/op_table.h"

namespace tandem {
namespace {

// How a value is spread over the axis: not at all (inputs), by rows, all leading dims taken together, or by
// the last dim, each of whose sections is cut into equal parts.
enum class Spread : uint8_t { Whole, Rows, Columns };
struct Layout {
  Spread spread = Spread::Whole;
  Sections sections;  // of Columns
  bool operator==(const Layout&) const = default;
};

enum class LinearSplit : uint8_t { None, Output, Input };

LinearSplit split_by_dims(std::string_view dims) {
  if (dims == "heads,width" || dims == "ffn,width" || dims == "vocab,width") return LinearSplit::Output;
  if (dims == "width,heads" || dims == "width,ffn") return LinearSplit::Input;
  return LinearSplit::None;
}

std::string print_boxes(const std::vector<Box>& boxes) {
  std::string text;
  for (const Box& box : boxes) {
    text += fmt::format("{}{}:{},{}:{}", text.empty() ? "" : ";", box.row_begin, box.row_end, box.col_begin,
                        box.col_end);
  }
  return text;
}

Shape local_shape(const Shape& logical, const std::vector<Box>& boxes, int64_t padded) {
  std::vector<int64_t> dims = logical.dims();
  dims[0] = 0;
  for (const Box& box : boxes) dims[0] += box.rows();
  dims[0] = std::max(dims[0], padded);
  if (dims.size() == 2) dims[1] = boxes.front().cols();
  return Shape(dims);
}

class TensorAxisSplit {
 public:
  TensorAxisSplit(const Graph& old, const MeshPosition& at)
      : old_(old),
        rewrite_(old),
        refusal_(old, at.size(Axis::Tensor)),
        rank_(at.tensor),
        size_(at.size(Axis::Tensor)),
        asked_(column_sections(old, refusal_)),
        readers_(readers(old)) {}

  Graph run() {
    for (int32_t id = 0; id < old_.num_nodes(); ++id) place(id);
    return rewrite_.finish();
  }

 private:
  void place(int32_t id) {
    const Node& node = old_.node(id);
    switch (op_info(node.op).split) {
      case Split::Input: rewrite_.copy(id); return;
      case Split::Param:  // placed by its first reader, which knows how
        if (!readers_.contains({id, 0})) rewrite_.copy(id);
        return;
      case Split::Linear: linear(id); return;
      case Split::Embedding: embedding(id); return;
      case Split::Rows: norm(id); return;
      case Split::Heads: attention(id); return;
      case Split::GateUp: gate_up(id); return;
      case Split::Pointwise: pointwise(id); return;
      case Split::Sampled: sampled(id); return;
      case Split::Mean: mean(id); return;
      case Split::Reshape: reshape(id); return;
      case Split::Concat: concat(id); return;
      case Split::Loss: loss(id); return;
      case Split::Never:
        refusal_.refuse(
            id, "{} is not split; transformers of embedding, norms, linears, attention, gelu and swiglu are",
            op_name(node.op));
    }
  }

  void pointwise(int32_t id) {
    const std::vector<Value>& inputs = old_.node(id).inputs;
    if (inputs.size() > 1 && layout(inputs[0]) != layout(inputs[1]))
      refusal_.refuse(id, "a sum of a value split by rows and one split by columns");
    keep_layout(id);
  }

  void mean(int32_t id) {
    if (layout(old_.node(id).inputs[0]).spread == Spread::Columns)
      refusal_.refuse(id,
                      "a metric of a value that is split by columns; take one between the blocks' linears");
    rewrite_.copy(id);
  }

  // Dropout goes by the number of a row in the micro-batch.
  void sampled(int32_t id) {
    const Node& node = old_.node(id);
    const Layout in = layout(node.inputs[0]);
    if (in.spread == Spread::Columns)
      refusal_.refuse(id, "{} needs whole rows, and its input is split by columns", op_name(node.op));
    const Value x = rewrite_.at(node.inputs[0]);
    Attrs attrs = node.attrs;
    if (in.spread == Spread::Rows) attrs.set("first", rank_ * rewrite_.graph().type(x).shape.rows());
    set({id, 0}, emit(node.op, {x, rewrite_.at(node.inputs[1])}, attrs, node.block), in);
  }

  void linear(int32_t id) {
    const Node& node = old_.node(id);
    const Value x = node.inputs[0], weight = node.inputs[1];
    if (old_.node(weight.node).op != Op::Param || node.attrs.integer("trans_b") != 1)
      refusal_.refuse(id, "only linears, whose weight is a parameter [out, in], are split");
    const Attrs& attrs = old_.node(weight.node).attrs;
    const std::string dims = attrs.has("dims") ? attrs.text("dims") : "";
    switch (split_by_dims(dims)) {
      case LinearSplit::Output: return split_output(id, x, weight);
      case LinearSplit::Input: return split_input(id, x, weight);
      case LinearSplit::None:
        refusal_.refuse(
            id,
            "its dims '{}' do not say how; use 'ffn,width' or 'heads,width' on the way out of the residual "
            "stream, 'width,ffn' or 'width,heads' on the way back, 'vocab,width' for the head",
            dims);
    }
  }

  void split_output(int32_t id, Value x, Value weight) {
    const Node& node = old_.node(id);
    if (layout(x).spread != Spread::Rows)
      refusal_.refuse(id, "dims '{}' need an input in the residual stream", dims_of(weight));
    const auto it = asked_.find({id, 0});
    const Sections sections = it != asked_.end() ? it->second : Sections{old_.type(weight).shape[0]};
    const auto own_rows = [&](Value param) {
      return dims_of(weight) == "vocab,width" ? vocab_rows(param) : rows_of(param, sections);
    };
    std::vector<Value> inputs = {Value{}, own_rows(weight)};
    if (node.inputs.size() > 2) inputs.push_back(own_rows(node.inputs[2]));
    inputs[0] = gathered(x, node.block);
    set({id, 0}, emit(Op::Matmul, inputs, node.attrs, node.block), {Spread::Columns, sections});
  }

  // Every rank sums over its columns of the input. The bias joins one of the partial sums.
  void split_input(int32_t id, Value x, Value weight) {
    const Node& node = old_.node(id);
    const Shape shape = old_.type(weight).shape;
    if (layout(x) != Layout{Spread::Columns, {shape[1]}})
      refusal_.refuse(
          id,
          "dims '{}' need the output of one linear of dims '{},width', or of attention or swiglu after it",
          dims_of(weight), dims_of(weight).substr(6));
    const Part columns = part(shape[1]);
    std::vector<Value> inputs = {rewrite_.at(x), placed(weight, {{0, shape[0], columns.begin, columns.end}})};
    if (node.inputs.size() > 2 && rank_ == 0) inputs.push_back(placed(node.inputs[2], {}));
    scatter({id, 0}, emit(Op::Matmul, inputs, node.attrs, node.block));
  }

  void embedding(int32_t id) {
    const Node& node = old_.node(id);
    const int64_t vocab = old_.type(node.inputs[1]).shape[0];
    std::vector<Value> inputs = {rewrite_.at(node.inputs[0]), vocab_rows(node.inputs[1])};
    Attrs attrs;
    set_ids(attrs, vocab);
    if (node.inputs.size() > 2 && rank_ == 0) {
      inputs.push_back(placed(node.inputs[2], {}));
      if (node.inputs.size() > 3) {
        inputs.push_back(rewrite_.at(node.inputs[3]));
        attrs.set("positions", int64_t{1});
      }
    }
    scatter({id, 0}, emit(Op::Embedding, inputs, attrs, node.block));
  }

  void norm(int32_t id) {
    const Node& node = old_.node(id);
    if (layout(node.inputs[0]).spread != Spread::Rows)
      refusal_.refuse(id, "a norm needs whole rows, and its input is split by columns");
    for (size_t i = 1; i < node.inputs.size(); ++i) summed(node.inputs[i]);
    keep_layout(id);
  }

  void attention(int32_t id) {
    const Node& node = old_.node(id);
    const Value qkv = node.inputs[0];
    if (layout(qkv) != Layout{Spread::Columns, qkv_sections(old_, id)})
      refusal_.refuse(id, "{} needs packed queries, keys and values from linears of dims 'heads,width'",
                      op_name(node.op));
    if (node.attrs.integer_or("all", 0) != 0)
      refusal_.refuse(id, "{} of all heads together (model.qk_norm = all) needs them on one rank",
                      op_name(node.op));
    Attrs attrs = node.attrs;
    for (const char* count : {"heads", "kv_heads"}) attrs.set(count, attrs.integer(count) / size_);
    std::vector<Value> inputs = {rewrite_.at(qkv)};
    for (size_t i = 1; i < node.inputs.size(); ++i) {
      const bool whole = old_.node(node.inputs[i].node).op == Op::Input;
      inputs.push_back(whole ? rewrite_.at(node.inputs[i]) : summed(node.inputs[i]));
    }
    const bool packed = node.op != Op::Attention;
    const Sections heads = packed ? layout(qkv).sections : Sections{layout(qkv).sections[0]};
    set({id, 0}, emit(node.op, inputs, attrs, node.block), {Spread::Columns, heads});
  }

  void gate_up(int32_t id) {
    const Layout in = layout(old_.node(id).inputs[0]);
    if (in.spread == Spread::Columns && in.sections.size() != 2)
      refusal_.refuse(id, "{} needs gate and up side by side from one linear", op_name(old_.node(id).op));
    keep_layout(id);
    if (in.spread == Spread::Columns) layouts_[{id, 0}].sections.pop_back();
  }

  // Leading dims may be folded together or apart: rows are rows.
  void reshape(int32_t id) {
    const Node& node = old_.node(id);
    const Shape& to = node.outputs[0].shape;
    const Layout in = layout(node.inputs[0]);
    if (in.spread == Spread::Whole) return keep_layout(id);
    if (to.last() != old_.type(node.inputs[0]).shape.last())
      refusal_.refuse(id, "reshape may fold leading dims only");
    Value local = rewrite_.at(node.inputs[0]);
    if (in.spread == Spread::Columns) {
      std::vector<int64_t> dims = to.dims();
      dims.back() = rewrite_.graph().type(local).shape.last();
      local = emit(Op::Reshape, {local}, {{"shape", shape_attr(dims)}}, node.block);
    }
    set({id, 0}, local, in);
  }

  void concat(int32_t id) {
    Layout joined = layout(old_.node(id).inputs[0]);
    joined.sections.clear();
    for (Value input : old_.node(id).inputs) {
      const Layout in = layout(input);
      if (in.spread != joined.spread) refusal_.refuse(id, "concat of values that are split differently");
      joined.sections.insert(joined.sections.end(), in.sections.begin(), in.sections.end());
    }
    keep_layout(id);
    layouts_[{id, 0}] = joined;
  }

  void loss(int32_t id) {
    const Node& node = old_.node(id);
    const int64_t vocab = old_.type(node.inputs[0]).shape.last();
    if (layout(node.inputs[0]) != Layout{Spread::Columns, {vocab}})
      refusal_.refuse(id, "the loss needs logits from a linear of dims 'vocab,width'");
    const Value logits = rewrite_.at(node.inputs[0]), targets = rewrite_.at(node.inputs[1]);
    Attrs attrs;
    set_ids(attrs, vocab);
    const Value own = emit(Op::VocabParts, {logits, targets}, attrs, node.block);
    const Value all = emit(Op::AllGather, {own}, axis_attrs(), node.block);
    set({id, 0}, emit(Op::VocabLoss, {all, targets}, {{"size", size_}}, node.block), {});
  }

  // The whole of a value that is split by rows, in its logical shape; made once however many read it.
  Value gathered(Value x, int32_t block) {
    const auto [it, fresh] = gathered_.try_emplace(x);
    if (!fresh) return it->second;
    const Value rows = emit(Op::AllGather, {rewrite_.at(x)}, axis_attrs(), block);
    return it->second = reshaped(rows, old_.type(x).shape, block);
  }

  // Partial sums of a whole value become the sums of this rank's rows.
  void scatter(Value old_value, Value partial) {
    const Shape shape = old_.type(old_value).shape;
    refusal_.check_divides(old_value.node, shape.rows(), "rows (train.micro_batch * model.context)");
    const int32_t block = old_.node(old_value.node).block;
    Attrs attrs = axis_attrs();
    attrs.set("accumulate", int64_t{0});
    const Value rows = reshaped(partial, Shape({shape.rows(), shape.last()}), block);
    set(old_value, emit(Op::ReduceScatter, {rows}, attrs, block), {Spread::Rows, {}});
  }

  struct Part {
    int64_t begin, end;
  };
  // Rows of a parameter: this rank's part of every section.
  Value rows_of(Value param, const Sections& sections) {
    const Shape& shape = old_.type(param).shape;
    std::vector<Box> boxes;
    int64_t begin = 0;
    for (int64_t section : sections) {
      if (section % size_ != 0) refusal_.refuse_size(param.node, section, "rows");
      const Part own = part(section);
      boxes.push_back({begin + own.begin, begin + own.end, 0, shape.elems() / shape[0]});
      begin += section;
    }
    TANDEM_CHECK(begin == shape[0], "tensor: {} rows of {}", begin, old_.node(param.node).name);
    return placed(param, boxes);
  }

  // The ids whose rows of a table are here: as many on every rank, or one more on the first ones.
  Part ids(int64_t vocab) const {
    const int64_t few = vocab / size_, more = vocab % size_;
    const int64_t begin = rank_ * few + std::min(rank_, more);
    return {begin, begin + few + (rank_ < more ? 1 : 0)};
  }
  // All ranks have as many rows, some of them padding where the vocabulary asks for it: products on GPUs are
  // slow where a row of logits does not begin at a multiple of 16 bytes.
  int64_t padded_ids(int64_t vocab) const {
    constexpr int64_t kAlignment = 8;
    const int64_t most = (vocab + size_ - 1) / size_;
    return (most + kAlignment - 1) / kAlignment * kAlignment;
  }
  void set_ids(Attrs& attrs, int64_t vocab) const {
    const Part own = ids(vocab);
    attrs.set("first", own.begin);
    if (own.end - own.begin < padded_ids(vocab)) attrs.set("valid", own.end - own.begin);
  }
  Value vocab_rows(Value param) {
    const Shape& shape = old_.type(param).shape;
    if (shape[0] < size_) refusal_.refuse(param.node, "its {} rows are fewer than the ranks", shape[0]);
    const Part own = ids(shape[0]);
    return placed(param, {{own.begin, own.end, 0, shape.elems() / shape[0]}}, padded_ids(shape[0]));
  }

  // The local parameter: the whole of it where there are no boxes. All readers must want the same part. Rows
  // up to `padded` follow those of the boxes: zeros, which nothing changes.
  Value placed(Value param, const std::vector<Box>& boxes, int64_t padded = 0) {
    const Node& node = old_.node(param.node);
    if (node.op != Op::Param) refusal_.refuse(param.node, "{} in the place of a parameter", op_name(node.op));
    const std::string text = print_boxes(boxes);
    if (rewrite_.has(param)) {
      const Attrs& attrs = rewrite_.graph().node(rewrite_.at(param).node).attrs;
      if ((attrs.has("boxes") ? attrs.text("boxes") : "") != text)
        refusal_.refuse(param.node, "two of its readers need different parts of it");
      return rewrite_.at(param);
    }
    const int32_t id = rewrite_.copy(param.node);
    if (boxes.empty()) return {id, 0};
    Node& local = rewrite_.graph().node(id);
    local.attrs.set("logical", shape_attr(node.outputs[0].shape));
    local.attrs.set("boxes", text);
    local.outputs[0].shape = local_shape(node.outputs[0].shape, boxes, padded);
    return {id, 0};
  }

  // The whole of a parameter, of whose gradient every rank has a part: their sum is the gradient.
  Value summed(Value param) {
    const Value local = placed(param, {});
    rewrite_.graph().node(local.node).attrs.set("tensor_sum", int64_t{1});
    return local;
  }

  Part part(int64_t total) const { return {rank_ * (total / size_), (rank_ + 1) * (total / size_)}; }

  Attrs axis_attrs() const { return {{"axis", std::string(axis_name(Axis::Tensor))}, {"size", size_}}; }
  Value emit(Op op, std::vector<Value> inputs, Attrs attrs, int32_t block) {
    return append(rewrite_.graph(), op, std::move(inputs), std::move(attrs), block);
  }
  Value reshaped(Value value, const Shape& shape, int32_t block) {
    if (rewrite_.graph().type(value).shape == shape) return value;
    return emit(Op::Reshape, {value}, {{"shape", shape_attr(shape)}}, block);
  }
  void set(Value old_value, Value local, Layout layout) {
    rewrite_.set(old_value, local);
    layouts_[old_value] = std::move(layout);
  }
  void keep_layout(int32_t id) {
    for (Value input : old_.node(id).inputs) {
      if (!rewrite_.has(input)) refusal_.refuse(id, "{} of a parameter", op_name(old_.node(id).op));
    }
    rewrite_.copy(id);
    layouts_[{id, 0}] = layout(old_.node(id).inputs[0]);
  }
  Layout layout(Value value) const {
    const auto it = layouts_.find(value);
    return it == layouts_.end() ? Layout{} : it->second;
  }
  std::string dims_of(Value param) const { return old_.node(param.node).attrs.text("dims"); }

  const Graph& old_;
  Rewrite rewrite_;
  Refusal refusal_;
  int64_t rank_, size_;
  std::map<Value, Sections> asked_;  // by the readers of a value that is split by columns
  std::map<Value, std::vector<int32_t>> readers_;
  std::map<Value, Layout> layouts_;
  std::map<Value, Value> gathered_;
};

}  // namespace

Graph shard_tensor(const Graph& forward, const MeshPosition& at) {
  if (at.size(Axis::Tensor) == 1) return forward;
  return TensorAxisSplit(forward, at).run();
}

}  // namespace tandem
