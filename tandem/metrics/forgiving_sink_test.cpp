#include "tandem/metrics/forgiving_sink.h"

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "tandem/base/error.h"

namespace tandem {
namespace {

struct World {
  bool down = false;
  std::vector<int64_t> resumes, rows;
  int syncs = 0;
};

class FailingSink final : public Sink {
 public:
  explicit FailingSink(World& world) : world_(world) {}
  std::string resume(int64_t last) override {
    check();
    world_.resumes.push_back(last);
    return "";
  }
  void write(const StepRecord& record) override {
    check();
    world_.rows.push_back(record.step);
  }
  void sync() override {
    check();
    ++world_.syncs;
  }

 private:
  void check() const {
    if (world_.down) throw IoError("x: cannot write: disk full");
  }
  World& world_;
};

struct Fixture {
  World world;
  std::vector<std::string> told;
  ForgivingSink sink;

  explicit Fixture(size_t rows = 100, std::chrono::milliseconds retry = std::chrono::milliseconds(0))
      : sink(std::make_unique<FailingSink>(world), [this](const std::string& text) { told.push_back(text); },
             {.rows = rows, .retry = retry}) {}
  void write(int64_t first, int64_t last) {
    for (int64_t step = first; step <= last; ++step) {
      StepRecord record;
      record.step = step;
      sink.write(record);
    }
  }
};

TEST(ForgivingSink, CatchesUpInOrderAndTellsItOnce) {
  Fixture f;
  f.sink.resume(0);
  f.write(1, 2);
  f.world.down = true;
  f.write(3, 6);
  f.sink.sync();
  EXPECT_EQ(f.world.rows, (std::vector<int64_t>{1, 2}));
  ASSERT_EQ(f.told.size(), 1u);
  EXPECT_EQ(f.told[0], "x: cannot write: disk full; training goes on, and rows wait for it");
  f.world.down = false;
  f.write(7, 8);
  EXPECT_EQ(f.world.rows, (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8}));
  ASSERT_EQ(f.told.size(), 2u);
  EXPECT_EQ(f.told[1], "it takes rows again, and has caught up with 5 rows");
}

TEST(ForgivingSink, ResumesLaterWhereItCannotAtOnce) {
  Fixture f;
  f.world.down = true;
  EXPECT_EQ(f.sink.resume(10), "");
  f.write(11, 12);
  f.world.down = false;
  f.write(13, 13);
  EXPECT_EQ(f.world.resumes, (std::vector<int64_t>{10}));
  EXPECT_EQ(f.world.rows, (std::vector<int64_t>{11, 12, 13}));
}

TEST(ForgivingSink, KeepsAtMostItsBoundAndSaysWhatIsLost) {
  Fixture f(3);
  f.sink.resume(0);
  f.world.down = true;
  f.write(1, 10);
  f.world.down = false;
  f.sink.sync();
  EXPECT_EQ(f.world.rows, (std::vector<int64_t>{8, 9, 10}));
  EXPECT_NE(f.told.back().find("7 were too many"), std::string::npos) << f.told.back();
}

TEST(ForgivingSink, DoesNotTryAgainAtEveryStep) {
  Fixture f(100, std::chrono::hours(1));
  f.sink.resume(0);
  f.world.down = true;
  f.write(1, 1);
  f.world.down = false;
  f.write(2, 5);
  EXPECT_TRUE(f.world.rows.empty());
  f.sink.sync();  // before a checkpoint there is time
  EXPECT_EQ(f.world.rows.size(), 5u);
}

}  // namespace
}  // namespace tandem
