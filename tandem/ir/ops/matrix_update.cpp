// What an update does with whole matrices (optimizers/muon.h). They lie in flat buffers, each in one part or,
// gathered from the ranks of the tensor axis, in several ({parts}, placed_boxes.h).
#include "tandem/ir/ops/entry.h"
#include "tandem/ir/placed_boxes.h"

namespace tandem::ops {
namespace {

void check_parts(const Operands& in, const Shape& buffer, const Shape& matrix) {
  const Box whole = whole_box(matrix);
  int64_t elems = 0;
  for (const auto& [offset, box] : parse_placed(in.attr_text("parts"))) {
    in.require(offset >= 0 && offset + box.elems() <= buffer.elems(), "[{}, +{}) is outside {}", offset,
               box.elems(), to_string(buffer));
    in.require(box.row_end <= whole.row_end && box.col_end <= whole.col_end, "a part lies outside {}",
               to_string(matrix));
    elems += box.elems();
  }
  in.require(elems == matrix.elems(), "parts of {} elements for {}", elems, to_string(matrix));
}

Types direction_types(const Operands& in) {
  in.require(in.shape(2) == in.shape(3), "gradient {} and state {} differ", in.show(2), in.show(3));
  return {{in.dtype_attr(), in.shape(2)}, in[2], in[3]};
}

Types normalize_types(const Operands& in) {
  check_parts(in, in.shape(0), in.shape_attr());
  return {{in[0].dtype, in.shape_attr()}};
}

Types place_types(const Operands& in) {
  in.require(in[0].dtype == in[1].dtype, "{} into {}", in.show(1), in.show(0));
  check_parts(in, in.shape(0), in.shape(1));
  return {in[0]};
}

OpInfo matrix_op(Op op, std::string_view name, std::string_view meaning, StatedList<InputInfo> inputs,
                 StatedList<OutputInfo> outputs, StatedList<AttrInfo> attrs, InferRule infer) {
  return unsplit(op, name, meaning, std::move(inputs), std::move(outputs), std::move(attrs), infer,
                 Remake::Never, kNoGradient);
}

}  // namespace

std::vector<OpInfo> matrix_update_ops() {
  return {
      matrix_op(Op::MuonDirection, "muon_direction",
                "u = Nesterov's momentum of g in {dtype}, zero where norm[1] is 0, in the host's memory with "
                "{to: \"host\"}; g is left zeroed, unless {keep: 1}",
                {"hyper", "norm", "g", "m"}, {"u", in_place("g"), in_place("m")},
                {text("dtype"), optional(integer("keep")), optional(text("to"))}, direction_types),
      matrix_op(Op::NormalizeMatrix, "normalize_matrix", "y = the matrix of flat x, over max(its norm, eps)",
                {"x"}, {"y"}, {text("parts"), text("shape"), real("eps")}, normalize_types),
      matrix_op(Op::WeightedSum, "weighted_sum", "y = p a + q b", {"a", "b"}, {OutputInfo("y").over("a")},
                {real("p"), real("q")}, [](const Operands& in) { return Types{in.same(0, 1)}; }),
      matrix_op(Op::PlaceMatrix, "place_matrix", "dst, with the matrix x in its place", {"dst", "x"},
                {in_place("dst")}, {text("parts")}, place_types),
  };
}

}  // namespace tandem::ops
