// Ranks as threads that save and load together, and what becomes of the others when one does not.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <barrier>
#include <memory>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/checkpoint/example_ranks_test.h"
#include "tandem/checkpoint/layout.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using Kind = ExampleLayout::Kind;
using std::chrono::milliseconds;

class ManyRanks : public CheckpointTest {
 protected:
  void make_writers(int num_ranks, int keep = 0, milliseconds timeout = std::chrono::minutes(1)) {
    writers.clear();
    for (int rank = 0; rank < num_ranks; ++rank) {
      writers.push_back(std::make_unique<CheckpointWriter>(folder, keep, nullptr,
                                                           SaveGroup{rank, num_ranks, "t", timeout}));
    }
  }
  CheckpointWriter& writer(int rank) { return *writers[static_cast<size_t>(rank)]; }
  void expect_state(int64_t step, const ExampleState& state) {
    ExampleState loaded(0);
    load(read_manifest(folder / checkpoint_name(step)), loaded.targets());
    EXPECT_TRUE(loaded == state) << "step " << step;
  }

  std::vector<std::unique_ptr<CheckpointWriter>> writers;
};

TEST_F(ManyRanks, SaveTogetherAndKnowThatItIsCommitted) {
  make_writers(8, 2);
  const ExampleLayout layout{Kind::Grid, 8, 3};
  run_ranks(8, [&](int rank) {
    for (int64_t step = 1; step <= 5; ++step) {
      const ExampleState state(static_cast<uint64_t>(step));
      writer(rank).save(at_step(step), RankMemory(state, layout, rank).views());
      EXPECT_EQ(read_manifest(folder / checkpoint_name(step)).meta.step, step);  // on every rank
    }
  });
  writers.clear();
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step-00000004", "step-00000005"}));
  for (int64_t step : {4, 5}) expect_state(step, ExampleState(static_cast<uint64_t>(step)));
  const Manifest manifest = read_manifest(folder / "latest");
  EXPECT_EQ(manifest.sequence, 5);
  EXPECT_TRUE(manifest.find("embed.weight")->digest.empty());
  for (const auto& entry : fs::directory_iterator(manifest.directory)) {
    const std::string name = entry.path().filename();
    EXPECT_TRUE(name == "manifest.json" || name.ends_with(".ckpt")) << name;
  }
}

TEST_F(ManyRanks, SaveBehindTheirSteps) {
  make_writers(4);
  const ExampleLayout layout{Kind::Flat, 4, 3};
  run_ranks(4, [&](int rank) {
    ExampleState state(0);
    std::vector<std::byte> staging;
    for (int64_t save = 1; save <= 6; ++save) {
      state.fill(static_cast<uint64_t>(save));
      const RankMemory memory(state, layout, rank);
      staging.resize(static_cast<size_t>(staging_bytes(memory.views())));
      writer(rank).save(at_step((save + 1) / 2), memory.views(), staging);  // each step twice
    }
    writer(rank).wait_committed();
    EXPECT_EQ(writer(rank).poll().size(), 6u);
  });
  for (int64_t step : {1, 2, 3}) expect_state(step, ExampleState(static_cast<uint64_t>(2 * step)));
  EXPECT_EQ(names().size(), 4u);
}

TEST_F(ManyRanks, ARankOtherThanZeroIsDoneWithItsPart) {
  make_writers(2);
  const ExampleState state(1);
  const ExampleLayout layout{Kind::Rows, 2, 3};
  const RankMemory zero(state, layout, 0), one(state, layout, 1);
  std::vector<std::byte> staging(static_cast<size_t>(staging_bytes(one.views())));
  writer(1).save(at_step(1), one.views(), staging);
  writer(1).wait();
  EXPECT_TRUE(list_checkpoints(folder).empty());
  EXPECT_TRUE(fs::exists(folder / ".tmp-step-00000001-t-1" / "part-00001.json"));
  writer(0).save(at_step(1), zero.views());
  writer(1).wait_committed();
  expect_state(1, state);
}

TEST_F(ManyRanks, AMissingRankIsNamedAndTheNextSaveGoesOn) {
  make_writers(3, 0, milliseconds(300));
  const ExampleState state(1);
  const ExampleLayout layout{Kind::Flat, 3, 3};
  const auto save = [&](int rank, int64_t step) {
    writer(rank).save(at_step(step), RankMemory(state, layout, rank).views());
  };
  run_ranks(3, [&](int rank) { save(rank, 1); });
  run_ranks(2, [&](int rank) {
    const auto late = [&] { save(rank, 2); };
    const std::string message = rank == 0 ? message_of<IoError>(late) : message_of<CommError>(late);
    EXPECT_NE(message.find("rank 2: no part of the checkpoint came"), std::string::npos) << message;
  });
  EXPECT_EQ(list_checkpoints(folder).size(), 1u);
  // It comes after all, late, and hears that it is too late.
  const std::string message = message_of<CommError>([&] { save(2, 2); });
  EXPECT_NE(message.find("rank 0: rank 2: no part"), std::string::npos) << message;
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step-00000001"}));
  run_ranks(3, [&](int rank) { save(rank, 3); });
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step-00000001", "step-00000003"}));
}

TEST_F(ManyRanks, ARankThatWasDoneHearsOfAFailureAtItsNextSave) {
  make_writers(2, 0, milliseconds(100));
  const ExampleState state(1);
  std::vector<std::byte> staging(static_cast<size_t>(staging_bytes(state.views())));
  const std::vector<TensorView> nothing;
  writer(1).save(at_step(1), state.views(), staging);
  writer(1).wait();
  EXPECT_THROW(writer(0).save(at_step(1), state.views()), IoError);  // both own everything
  for (const int rank : {1, 0}) {
    const std::string message =  // rank 0 now hears of rank 1's
        message_of<CommError>([&] { writer(rank).save(at_step(2), rank == 0 ? nothing : state.views()); });
    EXPECT_TRUE(message.starts_with((folder / (rank == 0 ? "step-00000002" : "step-00000001")).string()))
        << message;
    EXPECT_NE(message.find("expected each element once"), std::string::npos) << message;
  }
  EXPECT_TRUE(names().empty());
  run_ranks(2, [&](int rank) { writer(rank).save(at_step(3), rank == 0 ? nothing : state.views()); });
  expect_state(3, state);
}

TEST_F(ManyRanks, PiecesThatDoNotMakeATensorWholeAreNotCommitted) {
  make_writers(2);
  const ExampleState state(1);
  const ExampleLayout layout{Kind::Whole, 1, 1};
  run_ranks(2, [&](int rank) {
    const auto save = [&] {  // both own everything
      writer(rank).save(at_step(1), RankMemory(state, layout, 0).views());
    };
    const std::string message = rank == 0 ? message_of<IoError>(save) : message_of<CommError>(save);
    EXPECT_NE(message.find("'embed.weight': expected each element once"), std::string::npos) << message;
  });
  EXPECT_TRUE(names().empty());
}

// Whoever took the bytes away: what is committed is there, or nothing older goes.
TEST_F(ManyRanks, APartWhoseFileIsGoneOrShortIsNotCommitted) {
  for (const bool gone : {true, false}) {
    make_writers(2, 1);
    const ExampleState state(1);
    const ExampleLayout layout{Kind::Rows, 2, 3};
    const RankMemory zero(state, layout, 0), one(state, layout, 1);
    run_ranks(2, [&](int rank) { writer(rank).save(at_step(1), (rank == 0 ? zero : one).views()); });
    std::vector<std::byte> staging(static_cast<size_t>(staging_bytes(one.views())));
    writer(1).save(at_step(2), one.views(), staging);
    writer(1).wait();
    const fs::path data = folder / ".tmp-step-00000002-t-2" / "rank-00001.ckpt";
    gone ? void(fs::remove(data)) : fs::resize_file(data, 5);
    const std::string message = message_of<IoError>([&] { writer(0).save(at_step(2), zero.views()); });
    EXPECT_NE(message.find("rank-00001.ckpt"), std::string::npos) << message;
    EXPECT_THROW(writer(1).wait_committed(), CommError);
    expect_state(1, state);
    EXPECT_EQ(list_checkpoints(folder).size(), 1u);
    writers.clear();
    fs::remove_all(folder);
  }
}

TEST_F(ManyRanks, KilledHalfWayTheyLeaveTheEarlierCheckpointAndTheNextStartClearsUp) {
  const ExampleState state(1);
  const ExampleLayout layout{Kind::Flat, 3, 3};
  save_as_ranks(folder, at_step(1), state, layout);
  const fs::path pending = folder / ".tmp-step-00000002-dead-1";
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    run_ranks(2, [&](int rank) {  // the third was killed before
      CheckpointWriter(folder, 0, nullptr, {rank, 3, "dead"})
          .save(at_step(2), RankMemory(state, layout, rank).views());
    });
    ::_exit(1);
  }
  while (!fs::exists(pending / "part-00001.json") || !fs::exists(pending / "rank-00000.ckpt"))
    std::this_thread::sleep_for(milliseconds(1));
  { const CheckpointWriter living(folder, 0); }
  EXPECT_TRUE(fs::exists(pending));  // the child's ranks are in it
  ::kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ExampleState loaded(0);
  EXPECT_EQ(load_latest(folder, loaded.targets()).manifest->meta.step, 1);
  EXPECT_TRUE(loaded == state);
  { const CheckpointWriter one(folder, 0, nullptr, {1, 3, "next"}); }
  EXPECT_TRUE(fs::exists(pending));  // not for rank 1 to clear
  { const CheckpointWriter zero(folder, 0, nullptr, {0, 3, "next"}); }
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step-00000001"}));
}

// What a communicator would do for ranks that are processes.
class ThreadsAgree {
 public:
  explicit ThreadsAgree(int num_ranks) : barrier_(num_ranks), votes_(static_cast<size_t>(num_ranks)) {}
  LoadGroup group(int rank) {
    return {rank,
            [this, rank](const std::string& text) {
              if (rank == 0) text_ = text;
              barrier_.arrive_and_wait();
              const std::string result = text_;
              barrier_.arrive_and_wait();
              return result;
            },
            [this, rank](bool mine) {
              votes_[static_cast<size_t>(rank)] = mine ? 1 : 0;
              barrier_.arrive_and_wait();
              const bool result =
                  std::all_of(votes_.begin(), votes_.end(), [](int vote) { return vote == 1; });
              barrier_.arrive_and_wait();
              return result;
            }};
  }

 private:
  std::barrier<> barrier_;
  std::string text_;
  std::vector<int> votes_;
};

TEST_F(ManyRanks, DamageThatOneRankMeetsMakesAllTakeAnEarlierCheckpoint) {
  const ExampleLayout saved{Kind::Whole, 1, 1}, loading{Kind::Rows, 4, 2};
  for (int64_t step : {1, 2, 3})
    save_as_ranks(folder, at_step(step), ExampleState(static_cast<uint64_t>(step), 100'000), saved);
  flip_byte(folder / "step-00000003" / "rank-00000.ckpt", 2'000'000);  // not in every rank's blocks
  fs::remove(folder / "step-00000002" / "manifest.json");
  const auto load_as_ranks = [&](const std::function<void(int, RankMemory&, const LoadGroup&)>& action) {
    ThreadsAgree agree(4);
    run_ranks(4, [&](int rank) {
      RankMemory memory(ExampleState(0, 100'000), loading, rank);
      action(rank, memory, agree.group(rank));
    });
  };
  load_as_ranks([&](int rank, RankMemory& memory, const LoadGroup& group) {
    const Latest latest = load_latest(folder, memory.targets(), nullptr, Match::Subset, {}, &group);
    EXPECT_EQ(latest.manifest->meta.step, 1);
    EXPECT_TRUE(memory == RankMemory(ExampleState(1, 100'000), loading, rank));
    EXPECT_EQ(latest.skipped.size(), rank == 0 ? 2u : 1u);
  });
  flip_byte(folder / "step-00000001" / "rank-00000.ckpt", 2'000'000);
  load_as_ranks([&](int, RankMemory& memory, const LoadGroup& group) {
    const std::string message = message_of<DataError>(
        [&] { load_latest(folder, memory.targets(), nullptr, Match::Subset, {}, &group); });
    EXPECT_NE(message.find("none of 3 checkpoints is whole"), std::string::npos) << message;
  });
}

}  // namespace
}  // namespace tandem
