#include "tandem/compile/update_graph.h"

#include "tandem/compile/executable.h"
#include "tandem/ir/infer.h"

namespace tandem {
namespace {

Value state(Graph& graph, const std::string& name, TensorType type, std::string_view category,
            std::string init) {
  const Attrs attrs{{"category", std::string(category)}, {"init", std::move(init)}};
  return graph.add({Op::State, {}, attrs, {std::move(type)}, kNoBlock, Phase::Update, name});
}

}  // namespace

Graph build_update(const Graph& pass, OptimizerKind optimizer, const PrecisionPolicy& policy) {
  Graph graph;
  const Value hyper =
      graph.add({Op::Input, {}, {}, {{DType::F32, Shape({kHyperSlots})}}, kNoBlock, Phase::Update, "hyper"});
  std::vector<Value> norm_inputs = {hyper}, tensors;
  std::string decay;
  for (const Node& param : pass.nodes()) {
    if (param.op != Op::Param) continue;
    const Value grad = pass.find("grad:" + param.name);
    if (!grad.valid()) continue;  // a parameter the loss does not depend on
    Node weights = param, gradient = pass.node(grad.node);
    weights.phase = gradient.phase = Phase::Update;
    const TensorType& type = param.outputs[0];
    const DType wide = type.dtype == DType::F64 ? DType::F64 : DType::F32;
    const Value g = (tensors.push_back(graph.add(std::move(weights))), graph.add(std::move(gradient)));
    norm_inputs.push_back(g);
    tensors.push_back(g);
    tensors.push_back(state(graph, "moment1:" + param.name, {wide, type.shape}, "optimizer", "zeros"));
    if (optimizer == OptimizerKind::AdamW) {
      tensors.push_back(state(graph, "moment2:" + param.name, {wide, type.shape}, "optimizer", "zeros"));
    }
    if (policy.masters()) {
      tensors.push_back(state(graph, std::string(kMasterPrefix) + param.name, {DType::F32, type.shape},
                              "master", param.attrs.text("init")));
    }
    decay += fmt::format("{}{}", decay.empty() ? "" : ",", type.shape.rank() > 1 ? 1 : 0);
  }
  const Value norm = append(graph, Op::GlobalNorm, norm_inputs, {}, kNoBlock, Phase::Update);
  std::vector<Value> inputs = {hyper, norm};
  inputs.insert(inputs.end(), tensors.begin(), tensors.end());
  append(graph, optimizer == OptimizerKind::AdamW ? Op::AdamW : Op::Sgd, inputs,
         {{"masters", int64_t{policy.masters()}}, {"decay", decay}}, kNoBlock, Phase::Update);
  graph.add_output("norm", norm);
  return graph;
}

}  // namespace tandem
