#include "tandem/checkpoint/layout.h"

#include <gtest/gtest.h>

#include "tandem/base/file.h"
#include "tandem/checkpoint/example_state_test.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

class Layout : public CheckpointTest {
 protected:
  void SetUp() override {
    CheckpointTest::SetUp();
    fs::create_directories(folder);
  }
};

TEST_F(Layout, ListsStepsInNumericalOrderAndNothingElse) {
  for (const char* name :
       {"step-100000000", "step-00000200", "step-00000030", "step-old", ".tmp-step-00000300-1"}) {
    fs::create_directory(folder / name);
    write_atomically(folder / name / kIndexName, "{}");
  }
  StoreRef(folder)->set_alias(kLatest, "step-00000200");
  EXPECT_EQ(list_checkpoints(folder),
            (std::vector<std::string>{"step-00000030", "step-00000200", "step-100000000"}));
  EXPECT_TRUE(list_checkpoints(folder / "missing").empty());
}

}  // namespace
}  // namespace tandem
