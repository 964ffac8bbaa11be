#include "tandem/compile/units.h"

#include <gtest/gtest.h>

#include <set>

#include "tandem/config/config.h"
#include "tandem/models/model.h"

namespace tandem {
namespace {

Graph gpt2() {
  ModelConfig config;
  config.layers = 2;
  config.width = 12;
  config.heads = 2;
  config.context = 5;
  config.vocab = 33;
  return build_model(config, 2);
}

UnitLayout layout_at(int data, int ranks) {
  const std::vector<Graph> graphs = {gpt2()};
  return UnitLayout(graphs, MeshPosition{{.data = ranks}, data});
}

TEST(UnitLayout, HasAUnitForEachBlockAndOneOnEachSide) {
  const UnitLayout layout = layout_at(0, 3);
  std::vector<std::string> names;
  for (const Unit& unit : layout.units()) {
    names.push_back(unit.name);
    EXPECT_EQ(0, unit.elems % (3 * kUnitAlignment)) << unit.name;
    int64_t end = 0;
    for (const UnitParam& param : unit.params) {
      EXPECT_EQ(0, param.begin % kUnitAlignment) << param.name;
      EXPECT_GE(param.begin, end) << param.name;
      end = param.end();
    }
    EXPECT_GE(unit.elems, end);
  }
  EXPECT_EQ((std::vector<std::string>{"first", "blocks.0", "blocks.1", "last"}), names);
  EXPECT_EQ("last", layout.units()[layout.find("norm.weight")->unit].name);
  EXPECT_EQ(nullptr, layout.find("nothing"));
}

// Every element of every tensor is owned by exactly one rank, wherever the parts are cut.
TEST(UnitLayout, RanksOwnEveryElementOnce) {
  constexpr int kRanks = 3;
  std::map<std::string, std::set<std::pair<int64_t, int64_t>>> seen;
  std::map<std::string, int64_t> elems;
  for (int rank = 0; rank < kRanks; ++rank) {
    const UnitLayout layout = layout_at(rank, kRanks);
    for (const Unit& unit : layout.units()) {
      for (const Piece& piece : logical_pieces(layout, unit, layout.whole(unit), "", true)) {
        elems[piece.tensor] = piece.shape.elems();
        if (!piece.owned) continue;
        for (int64_t row = piece.box.row_begin; row < piece.box.row_end; ++row) {
          for (int64_t col = piece.box.col_begin; col < piece.box.col_end; ++col)
            EXPECT_TRUE(seen[piece.tensor].emplace(row, col).second) << piece.tensor << " twice";
        }
      }
    }
  }
  ASSERT_FALSE(elems.empty());
  for (const auto& [tensor, count] : elems)
    EXPECT_EQ(static_cast<size_t>(count), seen[tensor].size()) << tensor;
}

TEST(UnitLayout, PiecesOfAPartLieWhereTheUnitHasThem) {
  const UnitLayout layout = layout_at(1, 2);
  for (const Unit& unit : layout.units()) {
    const Range own = layout.own(unit);
    int64_t covered = 0;
    for (const Piece& piece : logical_pieces(layout, unit, own, "moment1:", false)) {
      EXPECT_TRUE(piece.tensor.starts_with("moment1:"));
      EXPECT_EQ("zeros", piece.init);
      EXPECT_GE(piece.offset, 0);
      EXPECT_LE(piece.offset + piece.box.elems(), own.elems());
      covered += piece.box.elems();
    }
    int64_t expected = 0;
    for (const ParamPiece& piece : pieces_in(unit, own)) expected += piece.range.elems();
    EXPECT_EQ(expected, covered);
  }
}

TEST(UnitLayout, ASplitTensorKeepsItsPlaceInTheWholeOne) {
  Graph graph;
  graph.add({Op::Param,
             {},
             {{"init", "zeros"}, {"logical", "8,3"}, {"boxes", "0:2,0:3;6:8,0:3"}},
             {{DType::F32, Shape({4, 3})}},
             0,
             Phase::Forward,
             "w"});
  const std::vector<Graph> graphs = {graph};
  const UnitLayout layout(graphs, MeshPosition{{.data = 1}});
  const Unit& unit = layout.units()[0];
  const std::vector<Piece> pieces = logical_pieces(layout, unit, {4, 11}, "", true);
  ASSERT_EQ(3u, pieces.size());  // rest of row 1; row 6 whole; most of row 7
  EXPECT_EQ((Box{1, 2, 1, 3}), pieces[0].box);
  EXPECT_EQ((Box{6, 7, 0, 3}), pieces[1].box);
  EXPECT_EQ((Box{7, 8, 0, 2}), pieces[2].box);
  EXPECT_EQ(2, pieces[1].offset);
}

}  // namespace
}  // namespace tandem
