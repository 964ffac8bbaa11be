// What an update does with parameters whose mean squares are kept by rows and columns
// (optimizers/adafactor.h). Gradients come in pieces; `parts` says what of which parameter each is
// (factored_parts.h).
#include "tandem/ir/factored_parts.h"
#include "tandem/ir/ops/entry.h"

namespace tandem::ops {
namespace {

// Of pieces that stand among the inputs from `first` on, every `step` of them.
void check_pieces(const Operands& in, size_t first, size_t step) {
  const std::vector<FactoredPart> parts = parse_factored(in.attr_text("parts"));
  in.require(in.size() == first + step * parts.size(), "{} parts for {} inputs", parts.size(), in.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    for (const auto& [offset, box] : parts[i].boxes) {
      in.require(offset >= 0 && offset + box.elems() <= in.shape(first + step * i).elems(),
                 "[{}, +{}) is outside {}", offset, box.elems(), in.show(first + step * i));
      in.require(
          box.row_end <= parts[i].factors.rows && box.col_end <= std::max<int64_t>(1, parts[i].factors.cols),
          "a part lies outside {} x {}", parts[i].factors.rows, parts[i].factors.cols);
    }
  }
}

Types sums_types(const Operands& in) {
  check_pieces(in, 2, 1);
  return {{DType::F64, Shape({in.attr("size")})}};
}

Types moments_types(const Operands& in) {
  const std::vector<Factors> list = parse_factors(in.attr_text("factors"));
  in.require(in.size() == 3 + list.size(), "{} factors for {} inputs", list.size(), in.size());
  int64_t size = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    in.require(in.shape(3 + i) == Shape({list[i].size()}), "a state {} of {} numbers", in.show(3 + i),
               list[i].size());
    size += list[i].size();
  }
  in.require(in[2] == TensorType{DType::F64, Shape({size})}, "expected sums f64[{}], found {}", size,
             in.show(2));
  return {in.all().begin() + 3, in.all().end()};
}

Types directions_types(const Operands& in) {
  check_pieces(in, 2, 2);
  return {in.all().begin() + 2, in.all().end()};
}

OpInfo factored_op(Op op, std::string_view name, std::string_view meaning, StatedList<InputInfo> inputs,
                   StatedList<OutputInfo> outputs, StatedList<AttrInfo> attrs, InferRule infer) {
  return unsplit(op, name, meaning, std::move(inputs), std::move(outputs), std::move(attrs), infer,
                 Remake::Never, kNoGradient);
}

}  // namespace

std::vector<OpInfo> factored_update_ops() {
  return {
      factored_op(Op::FactorSums, "factor_sums",
                  "sums f64[size] of squares over rows and columns, of what is here of each parameter",
                  {"hyper", "norm", each("g")}, {"sums"}, {text("parts"), integer("size")}, sums_types),
      factored_op(Op::FactorMoments, "factor_moments",
                  "each state = state + share (mean square - state), as it was where norm[1] is 0",
                  {"hyper", "norm", "sums", each("state")}, {in_place("state")},
                  {text("factors")},  // of each state: "rows,cols;.."
                  moments_types),
      factored_op(Op::FactorDirections, "factor_directions",
                  "each g over the root of its mean square, as it was where norm[1] is 0",
                  {"hyper", "norm", each("g"), each("state")}, {in_place("g"), in_place("state")},
                  {text("parts")}, directions_types),
  };
}

}  // namespace tandem::ops
