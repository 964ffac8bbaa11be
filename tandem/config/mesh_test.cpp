#include "tandem/config/mesh.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(MeshShapeOfAConfig, HasTheThreeAxes) {
  Config config;
  EXPECT_EQ(mesh_shape(config), MeshShape());
  config.parallel.data = 2;
  config.parallel.tensor = 3;
  config.parallel.pipeline = 4;
  EXPECT_EQ(mesh_shape(config), (MeshShape{.data = 2, .tensor = 3, .pipeline = 4}));
}

TEST(NumBlocks, SumsTheStagesOfResnetAndCountsTheLayersOfTheOthers) {
  ModelConfig model;
  model.layers = 5;
  model.blocks = {2, 3, 4};
  for (const Family family : {Family::Gpt2, Family::Llama, Family::Mlp}) {
    model.family = family;
    EXPECT_EQ(num_blocks(model), 5);
  }
  model.family = Family::Resnet;
  EXPECT_EQ(num_blocks(model), 9);
}

TEST(SuitsMesh, WantsEveryAxisToDivide) {
  Config config;
  config.model.context = 10;
  config.train.batch = 24;
  config.parallel.data = 2;
  EXPECT_TRUE(suits_mesh(config, 3));
  EXPECT_FALSE(suits_mesh(config, 5)) << "24 is no multiple of 10";

  config.parallel.tensor = 4;
  EXPECT_FALSE(suits_mesh(config, 3)) << "30 rows over 4 ranks";
  EXPECT_TRUE(suits_mesh(config, 4));
  config.model.family = Family::Mlp;
  EXPECT_TRUE(suits_mesh(config, 3)) << "images have no rows to split";

  config.parallel.pipeline = 2;
  EXPECT_TRUE(suits_mesh(config, 4)) << "1f1b takes 3 passes";
  config.parallel.schedule = PipelineSchedule::Interleaved;
  EXPECT_FALSE(suits_mesh(config, 4)) << "3 passes";
  EXPECT_TRUE(suits_mesh(config, 3)) << "4 passes";
}

TEST(LargestMicroBatch, IsZeroWhereNoneSuits) {
  Config config;
  config.train.batch = 24;
  EXPECT_EQ(largest_micro_batch(config, 10), 8);
  EXPECT_EQ(largest_micro_batch(config, 24), 24);
  config.parallel.data = 5;
  EXPECT_EQ(largest_micro_batch(config, 10), 0);
}

}  // namespace
}  // namespace tandem
