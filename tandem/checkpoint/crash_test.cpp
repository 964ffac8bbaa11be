// A process that saves without pause is killed at random moments; whatever is on disk then must be usable.
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <random>
#include <thread>

#include "tandem/checkpoint/example_ranks_test.h"
#include "tandem/checkpoint/example_state_test.h"
#include "tandem/checkpoint/layout.h"
#include "tandem/checkpoint/writer.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kWidth = 20'000;  // about 1 MB, so that kills also fall inside the writing

// The state after a step: its first bytes count the steps there have been.
std::byte& counter(ExampleState& state, int64_t step) {
  return state.tensors[0].bytes[static_cast<size_t>(step)];
}

// Goes on from the newest checkpoint. Every third save is of the same step as the one before, which exercises
// replacing.
[[noreturn]] void save_forever(const fs::path& folder, ExampleState state, bool in_background) {
  const Latest latest = load_latest(folder, state.targets());
  int64_t step = latest.manifest ? latest.manifest->meta.step : 0;
  std::vector<std::byte> staging;
  if (in_background) staging.resize(static_cast<size_t>(staging_bytes(state.views())));
  CheckpointMeta meta;
  CheckpointWriter writer(folder, 2);
  for (int64_t i = 0;; ++i) {
    if (i % 3 != 2) ++step;
    meta.step = step;
    counter(state, step) = static_cast<std::byte>(step);
    writer.save(meta, state.views(), staging);
  }
}

// The same as three ranks, threads of a process that is killed as a whole.
[[noreturn]] void save_forever_as_ranks(const fs::path& folder, const ExampleState& fresh) {
  constexpr int kRanks = 3;
  ExampleState state = fresh;
  const Latest latest = load_latest(folder, state.targets());
  const std::string token = fmt::format("{}", ::getpid());
  CheckpointMeta meta;
  meta.step = latest.manifest ? latest.manifest->meta.step : 0;
  std::vector<std::unique_ptr<CheckpointWriter>> writers;
  for (int rank = 0; rank < kRanks; ++rank)
    writers.push_back(std::make_unique<CheckpointWriter>(folder, 2, nullptr, SaveGroup{rank, kRanks, token}));
  for (int64_t i = 0;; ++i) {
    if (i % 3 != 2) ++meta.step;
    counter(state, meta.step) = static_cast<std::byte>(meta.step);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        const ExampleLayout layout{ExampleLayout::Kind::Flat, kRanks, 3};
        writers[static_cast<size_t>(rank)]->save(meta, RankMemory(state, layout, rank).views());
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

enum class Saver { AtOnce, InBackground, ManyRanks };

class Crash : public CheckpointTest {
 protected:
  static bool saves(const std::vector<std::string>& names) {
    return std::any_of(names.begin(), names.end(),
                       [](const auto& name) { return name.starts_with(".tmp-"); });
  }
  std::string newest() const {
    const std::vector<std::string> there = list_checkpoints(folder);
    return there.empty() ? "" : *std::max_element(there.begin(), there.end());
  }
  // Or until the child has ended by itself, which is told then.
  template <typename Condition>
  static void wait_until(pid_t child, const Condition& holds) {
    siginfo_t ended{};
    while (!holds() && ::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           ended.si_pid == 0)
      std::this_thread::yield();
  }

  void kill_while_saving(Saver saver) {
    std::mt19937 random(7);
    const ExampleState fresh(0, kWidth);
    int64_t last_step = 0;
    int cut_short = 0;
    for (int round = 0; round < 20; ++round) {
      const auto before = round == 0 ? std::vector<std::string>() : names();
      const pid_t child = ::fork();
      ASSERT_GE(child, 0);
      if (child == 0) {
        try {
          if (saver == Saver::ManyRanks) save_forever_as_ranks(folder, fresh);
          save_forever(folder, fresh, saver == Saver::InBackground);
        } catch (...) {
          ::_exit(1);
        }
      }
      // What a child has to have done, however little of a processor it gets: the first one more than one
      // step; of the others some are killed as soon as they are seen to save.
      if (round == 0) {
        wait_until(child, [&] { return newest() > checkpoint_name(1); });
      } else if (round % 4 == 0) {
        wait_until(child, [&] { return saves(names()) && names() != before; });
      }
      const auto longest = round % 4 == 0 ? 1'000 : 120'000;
      std::this_thread::sleep_for(std::chrono::microseconds(random() % longest));
      ::kill(child, SIGKILL);
      int status = 0;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      ASSERT_TRUE(WIFSIGNALED(status)) << "the child failed by itself";

      cut_short += saves(names());
      ExampleState loaded = fresh;
      const Latest latest = load_latest(folder, loaded.targets());
      ASSERT_TRUE(latest.manifest.has_value()) << "round " << round;
      EXPECT_TRUE(latest.skipped.empty()) << latest.skipped[0].reason;
      EXPECT_GE(latest.manifest->meta.step, last_step);
      last_step = latest.manifest->meta.step;
      for (int64_t step = 1; step <= last_step; ++step) {
        ASSERT_EQ(counter(loaded, step), static_cast<std::byte>(step)) << "at step " << last_step;
      }
    }
    EXPECT_GT(last_step, 1);
    EXPECT_GT(cut_short, 0) << "no kill fell inside a save";
    { const CheckpointWriter next(folder, 2); }
    for (const std::string& name : names()) {
      EXPECT_TRUE(name == "latest" || name.starts_with("step-")) << "left over: " << name;
    }
    EXPECT_LE(list_checkpoints(folder).size(), 3u);  // one more when the kill came before the oldest went
  }
};

TEST_F(Crash, TheNewestCheckpointLoadsAfterKillsDuringSaves) { kill_while_saving(Saver::AtOnce); }

TEST_F(Crash, TheNewestCheckpointLoadsAfterKillsDuringBackgroundSaves) {
  kill_while_saving(Saver::InBackground);
}

TEST_F(Crash, TheNewestCheckpointLoadsAfterKillsDuringSavesOfManyRanks) {
  kill_while_saving(Saver::ManyRanks);
}

}  // namespace
}  // namespace tandem
