// Leaves: values that the graph begins with. They carry their own types.
#include "tandem/ir/ops/entry.h"

namespace tandem::ops {
namespace {

Types own_type(const Operands& in) {
  in.require(false, "a leaf carries its own type");
  return {};
}

OpInfo leaf(Op op, std::string_view name, std::string_view meaning, Split split, StatedList<AttrInfo> attrs) {
  return {.op = op,
          .name = name,
          .meaning = meaning,
          .kind = OpKind::Leaf,
          .inputs = kNone,
          .outputs = {"value"},
          .attrs = std::move(attrs),
          .infer = own_type,
          .cost = kCostsNothing,
          .remake = Remake::Never,
          .split = split,
          .gradient = kNoGradient};
}

}  // namespace

std::vector<OpInfo> leaf_ops() {
  return {
      leaf(Op::Input, "input", "bound by name before each run", Split::Input, kNone),
      leaf(Op::Param, "param", "trainable weights, in S", Split::Param,
           {optional(text("init")),           // how they begin: "normal:0.02"
            optional(text("dims")),           // what the dims are: "ffn,width"
            optional(text("logical")),        // of a part: the whole's shape,
            optional(text("boxes")),          //   and which parts of it are here
            optional(integer("tensor_sum")),  // its gradients are summed over the tensor axis
            optional(text("tied")),           // at which end of the pipeline, of a weight that both ends hold
            optional(integer("frozen")),      // it is not trained
            optional(real("lr")),             // factors of the learning rate
            optional(real("decay"))}),        //   and of the weight decay
      leaf(Op::State, "state",
           "a persistent buffer; with {transient: 1} it is needed only from the op of `pass` that overwrites "
           "it to the end of the step",
           Split::Never,
           {text("category"),  // its arena: gradients, master, optimizer, weights, cache, host
            optional(text("init")), optional(integer("transient"))}),
  };
}

}  // namespace tandem::ops
