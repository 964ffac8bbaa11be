// Two ways for the disk to be full: known beforehand (a small tmpfs, where this process may mount one), and
// met in the middle of writing (a limit on file sizes, which needs no rights).
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <memory>

#include "tandem/base/error.h"
#include "tandem/checkpoint/example_ranks_test.h"
#include "tandem/checkpoint/example_state_test.h"
#include "tandem/checkpoint/layout.h"
#include "tandem/checkpoint/writer.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// While it lives, no file can grow past `bytes`; writing further fails as it does on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limit{bytes, old_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    ::signal(SIGXFSZ, handler_);
  }

 private:
  sighandler_t handler_;
  rlimit old_{};
};

class FullDisk : public CheckpointTest {
 protected:
  // In a child with its own mounts, so that nothing stays mounted whatever happens.
  void on_small_disk(const char* size, const std::function<void()>& action) {
    fs::create_directories(folder);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    constexpr int kCannotMount = 77;
    if (child == 0) {
      if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
          ::mount("none", folder.c_str(), "tmpfs", 0, size) != 0) {
        ::_exit(kCannotMount);
      }
      try {
        action();
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
      }
      std::fflush(nullptr);
      ::_exit(HasFailure() ? 1 : 0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    if (WEXITSTATUS(status) == kCannotMount)
      GTEST_SKIP() << "may not mount a tmpfs here; run as root to test this";
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
  void expect_only_step_1() {
    EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step-00000001"}));
    ExampleState loaded(0);
    EXPECT_EQ(load_latest(folder, loaded.targets()).manifest->meta.step, 1);
    EXPECT_TRUE(loaded == ExampleState(1));
  }
};

TEST_F(FullDisk, AFailedWriteLeavesTheEarlierCheckpointAndNothingElse) {
  CheckpointWriter writer(folder, 1);
  writer.save(at_step(1), ExampleState(1).views());
  const ExampleState next(2);
  std::vector<std::byte> staging(static_cast<size_t>(staging_bytes(next.views())));
  for (const bool in_background : {false, true}) {
    const FileSizeLimit limit(5000);
    const std::string message = message_of<IoError>([&] {
      writer.save(at_step(2), next.views(), in_background ? std::span(staging) : std::span<std::byte>());
      writer.wait();
    });
    EXPECT_TRUE(message.starts_with((folder / "step-00000002").string())) << message;
    EXPECT_NE(message.find("17.0 KiB needed, "), std::string::npos) << message;
  }
  expect_only_step_1();
  writer.save(at_step(3), next.views());  // and the writer goes on once there is space
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step-00000003"}));
}

TEST_F(FullDisk, AFailureOfOneRankIsToldByAllAndLeavesNothing) {
  constexpr int kRanks = 4;
  const ExampleState small(1);
  std::vector<std::unique_ptr<CheckpointWriter>> writers;
  for (int rank = 0; rank < kRanks; ++rank)
    writers.push_back(std::make_unique<CheckpointWriter>(folder, 1, nullptr, SaveGroup{rank, kRanks, "t"}));
  // Rank 2 owns all there is, so that only it meets the limit.
  const auto save = [&](int rank, int64_t step, const ExampleState& state,
                        std::span<std::byte> staging = {}) {
    writers[static_cast<size_t>(rank)]->save(at_step(step),
                                             rank == 2 ? state.views() : std::vector<TensorView>(), staging);
  };
  run_ranks(kRanks, [&](int rank) { save(rank, 1, small); });
  const ExampleState next(2);
  std::vector<std::byte> staging(static_cast<size_t>(staging_bytes(next.views())));
  for (const bool in_background : {false, true}) {
    const FileSizeLimit limit(5000);
    run_ranks(kRanks, [&](int rank) {
      const auto save_and_wait = [&] {
        save(rank, 2, next, in_background ? std::span(staging) : std::span<std::byte>());
        writers[static_cast<size_t>(rank)]->wait_committed();
      };
      const std::string message =
          rank == 2 ? message_of<IoError>(save_and_wait) : message_of<CommError>(save_and_wait);
      EXPECT_TRUE(message.starts_with((folder / "step-00000002").string() + ": checkpoint not saved"))
          << message;
      EXPECT_NE(message.find("rank-00002.ckpt: cannot write: "), std::string::npos) << message;
      EXPECT_EQ(message.find("rank 2: ") != std::string::npos, rank != 2) << message;
    });
    expect_only_step_1();
  }
  run_ranks(kRanks, [&](int rank) { save(rank, 3, next); });
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step-00000003"}));
}

TEST_F(FullDisk, ADiskTooSmallIsRefusedBeforeAnythingIsWritten) {
  on_small_disk("size=2m", [&] {
    CheckpointWriter writer(folder, 1);
    writer.save(at_step(1), ExampleState(1).views());
    const ExampleState large(2, 40'000);
    const std::string message = message_of<IoError>([&] { writer.save(at_step(2), large.views()); });
    EXPECT_TRUE(message.starts_with(folder.string() + ": disk full: step-00000002 needs ")) << message;
    EXPECT_NE(message.find("earlier checkpoints are kept"), std::string::npos) << message;
    EXPECT_NE(message.find("--resume-from-checkpoint " + (folder / "step-00000001").string()),
              std::string::npos)
        << message;
    expect_only_step_1();
  });
}

// About 0.9 MiB each, and 1 MiB is to stay free: there is room for three, not for a fourth beside them.
TEST_F(FullDisk, WhatTheNextSavePushesOutGoesBeforeItWhereThereIsNoRoomForBoth) {
  on_small_disk("size=4m", [&] {
    const ExampleState state(1, 17'000);
    const auto save = [&](int keep, int64_t step) {
      CheckpointWriter(folder, keep).save(at_step(step), state.views());
    };
    {
      CheckpointWriter writer(folder, 3);
      for (int64_t step = 1; step <= 4; ++step) writer.save(at_step(step), state.views());
    }
    EXPECT_EQ(names(),
              (std::vector<std::string>{"latest", "step-00000002", "step-00000003", "step-00000004"}));
    // Where the rule keeps them all there is nothing to take away, and the advice works.
    const std::string message = message_of<IoError>([&] { save(0, 5); });
    EXPECT_NE(message.find("set checkpoint.keep (3 are kept)"), std::string::npos) << message;
    save(2, 5);
    EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step-00000004", "step-00000005"}));
  });
}

TEST_F(FullDisk, ADamagedOneIsNoReasonToTakeTheLastWholeOneAway) {
  on_small_disk("size=3m", [&] {
    const ExampleState state(1, 17'000);
    for (int64_t step : {1, 2}) CheckpointWriter(folder, 2).save(at_step(step), state.views());
    flip_byte(folder / "step-00000002" / "rank-00000.ckpt", 5);
    message_of<IoError>([&] { CheckpointWriter(folder, 2).save(at_step(3), state.views()); });
    EXPECT_EQ(find_latest(folder, Check::Digests).manifest->meta.step, 1);
  });
}

TEST_F(FullDisk, RankZeroMakesRoomForAllRanks) {
  on_small_disk("size=4m", [&] {
    constexpr int kRanks = 2;
    const ExampleState state(1, 17'000);
    const ExampleLayout layout{ExampleLayout::Kind::Rows, kRanks, 3};
    std::vector<std::unique_ptr<CheckpointWriter>> writers;
    for (int rank = 0; rank < kRanks; ++rank)
      writers.push_back(std::make_unique<CheckpointWriter>(folder, 3, nullptr, SaveGroup{rank, kRanks, "t"}));
    run_ranks(kRanks, [&](int rank) {
      for (int64_t step = 1; step <= 6; ++step)
        writers[static_cast<size_t>(rank)]->save(at_step(step), RankMemory(state, layout, rank).views());
    });
    writers.clear();
    EXPECT_EQ(find_latest(folder, Check::Digests).manifest->meta.step, 6);
    EXPECT_GE(list_checkpoints(folder).size(), 2u);
  });
}

}  // namespace
}  // namespace tandem
