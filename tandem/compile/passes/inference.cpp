#include "tandem/compile/passes/inference.h"

#include <set>

#include "tandem/compile/rewrite.h"
#include "tandem/ir/infer.h"

namespace tandem {

Graph inference(const Graph& forward, bool keep_logits) {
  Graph kept = forward;
  const bool both = !keep_logits && kept.find("images").valid();
  std::erase_if(kept.outputs(), [&](const GraphOutput& output) {
    return output.name != (keep_logits ? "logits" : "stats") && !(both && output.name == "logits");
  });

  std::set<int32_t> ends;
  for (const GraphOutput& output : kept.outputs()) ends.insert(output.value.node);
  for (int32_t id = 0; id < kept.num_nodes(); ++id) {
    if (kept.node(id).op == Op::Send) ends.insert(id);
  }

  Rewrite rewrite(kept);
  for (int32_t id : with_sources(kept, std::move(ends))) {
    const Node& node = kept.node(id);
    if (node.op == Op::Input && node.name == kSampleInput) continue;
    if (node.op == Op::Dropout) {  // nothing is dropped
      rewrite.set({id, 0}, rewrite.at(node.inputs[0]));
      continue;
    }
    if (node.op != Op::BatchNorm && node.op != Op::BatchNormApply) {
      const int32_t copied = rewrite.copy(id);
      if (node.op == Op::CrossEntropy) rewrite.graph().node(copied).attrs = {};  // its terms are training's
      continue;
    }
    std::vector<Value> inputs;
    for (size_t i = 0; i < 5; ++i) inputs.push_back(rewrite.at(node.inputs[i]));  // all but gathered parts
    rewrite.set({id, 0}, append(rewrite.graph(), Op::BatchNormInfer, inputs,
                                {{"eps", node.attrs.real("eps")}}, node.block));
  }
  return rewrite.finish();
}

}  // namespace tandem
