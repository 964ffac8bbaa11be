#include "tandem/checkpoint/mend.h"

#include <fstream>

#include "tandem/checkpoint/example_state_test.h"
#include "tandem/checkpoint/layout.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

class Mend : public CheckpointTest {
 protected:
  void save(std::initializer_list<int64_t> steps) const {
    CheckpointWriter writer(folder, 0);
    for (const int64_t step : steps) writer.save(at_step(step), ExampleState(1).views());
  }
  Latest latest() const { return find_latest(folder, Check::Digests); }
};

TEST_F(Mend, FinishesWhatASaveWasKilledBefore) {
  save({1, 2, 3});
  StoreRef(folder)->set_alias(kLatest, "step-00000002");
  fs::rename(folder / "step-00000001", folder / ".tmp-old-step-00000001-99");
  EXPECT_TRUE(mend_checkpoints(folder, 1, latest()).empty());
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step-00000003"}));
  EXPECT_EQ(fs::read_symlink(folder / "latest"), "step-00000003");
}

TEST_F(Mend, TheNewestAreThoseSavedLast) {
  save({1, 2, 3, 2});  // went back to step 2
  EXPECT_TRUE(mend_checkpoints(folder, 2, latest()).empty());
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step-00000002", "step-00000003"}));
  EXPECT_EQ(fs::read_symlink(folder / "latest"), "step-00000002");
}

TEST_F(Mend, TheBestStays) {
  save({1, 2, 3});
  StoreRef(folder)->set_alias(kBest, "step-00000001");
  EXPECT_TRUE(mend_checkpoints(folder, 1, latest()).empty());
  EXPECT_EQ(names(), (std::vector<std::string>{"best", "latest", "step-00000001", "step-00000003"}));
}

TEST_F(Mend, ADamagedOneNeitherCountsNorGoes) {
  save({1, 2, 3});
  flip_byte(folder / "step-00000003" / "rank-00000.ckpt", 5);
  EXPECT_TRUE(mend_checkpoints(folder, 1, latest()).empty());
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step-00000002", "step-00000003"}));
  EXPECT_EQ(fs::read_symlink(folder / "latest"), "step-00000002");
}

TEST_F(Mend, WithoutACheckpointToGoOnFromOnlyLeftoversGo) {
  save({1, 2});
  fs::create_directory(folder / ".tmp-step-00000003-99");
  EXPECT_TRUE(mend_checkpoints(folder, 1, {}).empty());
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step-00000001", "step-00000002"}));
  EXPECT_TRUE(mend_checkpoints(folder / "missing", 1, {}).empty());
}

}  // namespace
}  // namespace tandem
