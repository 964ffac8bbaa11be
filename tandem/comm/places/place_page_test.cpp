#include "tandem/comm/places/place_page.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <thread>

#include "tandem/comm/shared_region.h"

namespace tandem {
namespace {

class PlaceTest : public testing::Test {
 protected:
  void SetUp() override {
    region_ = SharedRegion::create(sizeof(PlacePage));
    ::setenv(kPlaceVariable, region_->ticket().c_str(), 1);
    open_place(3, {4, 1, 1});
  }
  void TearDown() override {
    close_place();
    ::unsetenv(kPlaceVariable);
  }
  const PlacePage& page() { return *std::launder(reinterpret_cast<PlacePage*>(region_->data())); }

  std::shared_ptr<SharedRegion> region_;
};

TEST_F(PlaceTest, IsReadInTheLaunchersMemory) {
  ASSERT_TRUE(page().is_used());
  EXPECT_EQ(page().rank, 3);
  tell_run_directory("/runs/a");
  EXPECT_EQ(page().run_path(), "/runs/a");
  tell_step(7);
  tell_pass(2, 4);
  tell_program("pass", 709);
  const MainRecord main = page().main.read();
  EXPECT_EQ(main.step, 7);
  EXPECT_EQ(main.pass, 2);
  EXPECT_EQ(main.passes, 4);
  EXPECT_EQ(main.commands, 709);
  EXPECT_EQ(main.state, PlaceState::Running);
}

TEST_F(PlaceTest, CallsAreCountedAndLeft) {
  {
    const PlacedCall call("data", CallKind::Collective, "all_gather", "blocks.5");
    const LineRecord inside = page().calls[1][0].read();
    EXPECT_EQ(inside.doing, Doing::Communicates);
    EXPECT_EQ(inside.index, 1);
    EXPECT_EQ(inside.get_name(), "all_gather");
    EXPECT_EQ(inside.get_label(), "blocks.5");
  }
  { const PlacedCall call("data", CallKind::Collective, "barrier", std::string(100, 'x')); }
  EXPECT_EQ(page().calls[1][0].read().doing, Doing::Nothing);
  EXPECT_EQ(page().calls[1][0].read().index, 2);
}

TEST_F(PlaceTest, AStateEndsWithTheScope) {
  tell_state(PlaceState::Running);
  {
    const PlacedState saves(PlaceState::Saving);
    EXPECT_EQ(page().main.read().state, PlaceState::Saving);
  }
  EXPECT_EQ(page().main.read().state, PlaceState::Running);
}

TEST_F(PlaceTest, AReaderNeverSeesHalfALine) {
  PlaceLine<LineRecord>& line = place_page()->streams[0];
  std::jthread writer([&](const std::stop_token& stop) {
    LineRecord record;
    while (!stop.stop_requested()) {
      record.index = record.block = record.index + 1;
      record.set_name(std::to_string(record.index));
      line.write(record);
    }
  });
  for (int i = 0; i < 20000; ++i) {
    const LineRecord seen = page().streams[0].read();
    if (seen.index == 0) continue;
    ASSERT_EQ(seen.index, seen.block);
    ASSERT_EQ(seen.get_name(), std::to_string(seen.index));
  }
}

TEST_F(PlaceTest, TheBoardIsWholeOrEmpty) {
  place_page()->write_board("[1, 2]");
  EXPECT_EQ(page().read_board(), "[1, 2]");
  place_page()->write_board(std::string(PlacePage::kBoardBytes + 1, 'x'));
  EXPECT_EQ(page().read_board(), "");
}

TEST(Place, NothingHappensWhereNobodyAsks) {
  open_place(0, {});
  EXPECT_EQ(place_page(), nullptr);
  tell_step(3);
  const PlacedCall call("data", CallKind::Recv, "recv", "", 1);
}

TEST(Place, AWrongTicketIsNoHarm) {
  ::setenv(kPlaceVariable, "1 99999", 1);
  open_place(0, {});
  ::unsetenv(kPlaceVariable);
  EXPECT_EQ(place_page(), nullptr);
}

}  // namespace
}  // namespace tandem
