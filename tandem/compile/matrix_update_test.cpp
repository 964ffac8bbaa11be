#include "tandem/compile/matrix_update.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tandem/compile/pass_list.h"
#include "tandem/compile/passes/tensor_axis.h"
#include "tandem/models/family_models_test.h"
#include "tandem/models/tiny_gpt2_test.h"

namespace tandem {
namespace {

TEST(RowSections, TakePackedMatricesApart) {
  const RowSections gpt2 = row_sections(build_model(tiny_gpt2(1), 2));
  EXPECT_EQ(gpt2, (RowSections{{"blocks.0.qkv.weight", {16, 16, 16}}}));
  const RowSections llama = row_sections(build_model(tiny_decoder(), 2));
  EXPECT_EQ(llama.size(), 4u);
  EXPECT_EQ(llama.at("blocks.1.qkv.weight"), (std::vector<int64_t>{16, 8, 8}));
  EXPECT_EQ(llama.at("blocks.1.gate_up.weight"), (std::vector<int64_t>{24, 24}));
  for (const FamilyModel& family : family_models()) {
    const RowSections found = row_sections(build_model(family.model, 2));
    EXPECT_TRUE(found.contains("blocks.0.qkv.weight")) << family.name;
  }
}

UnitLayout layout_at(const Graph& forward, const MeshPosition& at) {
  const std::vector<Graph> graphs = {shard_tensor(forward, at)};
  return UnitLayout(graphs, at, nullptr, {.matrices_apart = true});
}

// However the tensor axis cuts them, the parts of all its ranks are each element of each matrix once, and no
// two matrices share one.
TEST(MatrixUpdate, FindsMatricesInWhatTheTensorRanksHold) {
  const Graph forward = build_model(tiny_decoder(), 2);
  for (int tensor : {1, 2}) {
    for (int rank = 0; rank < tensor; ++rank) {
      const UnitLayout layout = layout_at(forward, MeshPosition{{.data = 1, .tensor = tensor}, 0, rank});
      for (const Unit& unit : layout.units()) {
        if (!holds_block_matrices(unit)) continue;
        const std::vector<UpdateMatrix> matrices = matrices_of(layout, unit, row_sections(forward));
        EXPECT_EQ(matrices.size(), 7u);  // q, k, v, out, gate, up, down
        std::set<int64_t> places;
        for (const UpdateMatrix& matrix : matrices) {
          std::set<std::pair<int64_t, int64_t>> seen;
          for (const auto& [offset, box] : matrix.parts) {
            for (int64_t i = 0; i < box.elems(); ++i) {
              EXPECT_TRUE(places.insert(offset + i).second);
              seen.emplace(box.row_begin + i / box.cols(), box.col_begin + i % box.cols());
            }
          }
          EXPECT_EQ(static_cast<int64_t>(seen.size()), matrix.elems()) << matrix.param->name;
          EXPECT_EQ(seen.rbegin()->first, matrix.rows - 1);
          EXPECT_LT(seen.rbegin()->second, matrix.cols);
        }
        EXPECT_LE(*places.rbegin(), tensor * unit.elems);
      }
    }
  }
}

CompileOptions muon_at(const MeshPosition& at, Strategy strategy) {
  CompileOptions options;
  options.parallel.at = at;
  options.parallel.strategy = strategy;
  options.optimizer = OptimizerKind::Muon;
  return options;
}

// The products of a rank's share, by how often each matrix is worked on over all ranks.
TEST(MatrixUpdate, EveryMatrixIsWorkedOnByOneRankAndAllHaveAsMuchToDo) {
  const Graph forward = build_model(tiny_gpt2(6), 2);
  for (const MeshShape& shape :
       {MeshShape{.data = 3}, MeshShape{.data = 2, .tensor = 2}, MeshShape{.tensor = 2}}) {
    for (Strategy strategy : {Strategy::Ddp, Strategy::Zero1, Strategy::Fsdp}) {
      std::map<std::string, int> times;
      std::vector<int64_t> flops;
      for (int rank = 0; rank < shape.world(); ++rank) {
        const Graph update = run_passes(forward, muon_at(MeshPosition::of(shape, rank), strategy)).update;
        flops.push_back(0);
        for (const Node& node : update.nodes()) {
          if (node.op == Op::Matmul) flops.back() += 2 * node.outputs[0].shape.elems();
          if (node.op != Op::NormalizeMatrix) continue;
          ++times[fmt::format("{} {}", node.block, node.attrs.text("parts"))];
        }
      }
      EXPECT_EQ(times.size(), 6u * 6u);
      for (const auto& [matrix, count] : times) EXPECT_EQ(count, 1) << matrix;
      const auto [least, most] = std::minmax_element(flops.begin(), flops.end());
      EXPECT_LT(static_cast<double>(*most), 1.35 * static_cast<double>(*least));
    }
  }
}

TEST(MatrixUpdate, KeepsSecondMomentsOfWhatAdamWTrainsOnly) {
  const Graph forward = build_model(tiny_gpt2(2), 2);
  const Graph update = run_passes(forward, muon_at({{.data = 2}, 1}, Strategy::Zero1)).update;
  std::set<std::string> states;
  for (const Node& node : update.nodes()) {
    if (node.op == Op::State) states.insert(node.name);
  }
  EXPECT_TRUE(states.contains("moment1:blocks.1.matrices"));
  EXPECT_FALSE(states.contains("moment2:blocks.1.matrices"));
  EXPECT_TRUE(states.contains("moment2:blocks.1"));
  EXPECT_TRUE(states.contains("moment2:first"));
}

}  // namespace
}  // namespace tandem
