#include "tandem/checkpoint/writer.h"

#include "tandem/base/digest.h"
#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/base/thread_pool.h"
#include "tandem/checkpoint/example_state_test.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

class Writer : public CheckpointTest {};

TEST_F(Writer, SavesWhatTheReaderGivesBack) {
  const ExampleState saved(5);
  CheckpointWriter writer(folder, 0);
  writer.save(at_step(40), saved.views());
  ExampleState loaded(6);
  ASSERT_FALSE(loaded == saved);
  const Manifest manifest = read_manifest(folder / "step-00000040");
  load(manifest, loaded.targets());
  EXPECT_TRUE(loaded == saved);
  EXPECT_EQ(manifest.meta.step, 40);
  EXPECT_EQ(manifest.meta.loss, at_step(40).loss);
  EXPECT_EQ(manifest.meta.scalars, at_step(40).scalars);
  EXPECT_EQ(manifest.meta.config, at_step(40).config);
  EXPECT_FALSE(manifest.hostname.empty());
  EXPECT_FALSE(manifest.time.empty());
  EXPECT_EQ(manifest.find("embed.weight")->digest, digest_hex(saved.tensors[0].bytes));
  EXPECT_EQ(read_manifest(folder / "latest").directory, folder / "step-00000040");
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step-00000040"}));
}

TEST_F(Writer, EveryByteOfTheFileBelongsToATensor) {
  CheckpointWriter writer(folder, 0);
  writer.save(at_step(1), ExampleState(1).views());
  EXPECT_EQ(static_cast<int64_t>(fs::file_size(folder / "step-00000001" / "rank-00000.ckpt")),
            staging_bytes(ExampleState(1).views()));
}

TEST_F(Writer, InTheBackgroundWritesTheSameFilesAsAtOnceForAnyNumberOfThreads) {
  const ExampleState state(5, 60'001);  // several digest pieces, with a ragged last one
  CheckpointWriter plain(folder, 0);
  plain.save(at_step(1), state.views());
  ThreadPool pool(3);
  CheckpointWriter writer(folder, 0, &pool);
  ExampleState live = state;
  std::vector<std::byte> staging(static_cast<size_t>(staging_bytes(live.views())));
  writer.save(at_step(2), live.views(), staging);
  live.fill(99);  // training goes on while the file is being written
  writer.wait();
  EXPECT_EQ(read_text(folder / "step-00000001" / "rank-00000.ckpt"),
            read_text(folder / "step-00000002" / "rank-00000.ckpt"));
  const Manifest a = read_manifest(folder / "step-00000001"), b = read_manifest(folder / "step-00000002");
  for (size_t i = 0; i < a.tensors.size(); ++i) EXPECT_EQ(a.tensors[i].digest, b.tensors[i].digest);
}

TEST_F(Writer, ANewSaveWaitsForTheOneBefore) {
  ExampleState live(1);
  std::vector<std::byte> staging(static_cast<size_t>(staging_bytes(live.views())));
  CheckpointWriter writer(folder, 0);
  for (int64_t step = 1; step <= 5; ++step) {
    live.fill(static_cast<uint64_t>(step));
    writer.save(at_step(step), live.views(), staging);
  }
  writer.wait();
  const auto reports = writer.poll();
  ASSERT_EQ(reports.size(), 5u);
  for (int64_t step = 1; step <= 5; ++step) {
    EXPECT_EQ(reports[static_cast<size_t>(step - 1)].step, step);
    ExampleState loaded(0);
    load(read_manifest(reports[static_cast<size_t>(step - 1)].directory), loaded.targets());
    EXPECT_TRUE(loaded == ExampleState(static_cast<uint64_t>(step)));
  }
  EXPECT_TRUE(writer.poll().empty());
}

TEST_F(Writer, KeepsTheNewestOnesAcrossRestarts) {
  const ExampleState state(1);
  {
    CheckpointWriter writer(folder, 2);
    for (int64_t step : {10, 20, 30}) writer.save(at_step(step), state.views());
  }
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step-00000020", "step-00000030"}));
  CheckpointWriter writer(folder, 2);
  writer.save(at_step(40), state.views());
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step-00000030", "step-00000040"}));
}

TEST_F(Writer, KeepsTheBestBesideTheNewestAcrossRestarts) {
  const auto save = [](CheckpointWriter& writer, int64_t step, bool best) {
    CheckpointMeta meta = at_step(step);
    meta.is_best = best;
    writer.save(meta, ExampleState(1).views());
  };
  {
    CheckpointWriter writer(folder, 2);
    for (int64_t step : {10, 20, 30, 40}) save(writer, step, step == 10);
  }
  EXPECT_EQ(names(),
            (std::vector<std::string>{"best", "latest", "step-00000010", "step-00000030", "step-00000040"}));
  CheckpointWriter writer(folder, 2);
  save(writer, 50, false);
  EXPECT_EQ(fs::read_symlink(folder / "best"), "step-00000010");
  EXPECT_EQ(names().size(), 5u);
  save(writer, 60, true);  // the one before is one like any other
  EXPECT_EQ(names(), (std::vector<std::string>{"best", "latest", "step-00000050", "step-00000060"}));
  EXPECT_EQ(fs::read_symlink(folder / "best"), "step-00000060");
}

TEST_F(Writer, KeepZeroKeepsAll) {
  CheckpointWriter writer(folder, 0);
  for (int64_t step : {1, 2, 3, 4}) writer.save(at_step(step), ExampleState(1).views());
  EXPECT_EQ(names().size(), 5u);
}

TEST_F(Writer, TheNewestIsTheLastSavedEvenAfterGoingBackToAnEarlierStep) {
  {
    CheckpointWriter writer(folder, 0);
    for (int64_t step : {100, 200, 300}) writer.save(at_step(step), ExampleState(1).views());
  }
  CheckpointWriter writer(folder, 0);
  writer.save(at_step(200), ExampleState(2).views());
  EXPECT_EQ(names().size(), 4u);
  const Latest latest = find_latest(folder, Check::Digests);
  EXPECT_EQ(latest.manifest->meta.step, 200);
  ExampleState loaded(0);
  load(*latest.manifest, loaded.targets());
  EXPECT_TRUE(loaded == ExampleState(2));
}

TEST_F(Writer, ALostFolderIsAnErrorOfTheNextCallWhenWritingBehind) {
  ExampleState live(1);
  std::vector<std::byte> staging(static_cast<size_t>(staging_bytes(live.views())));
  CheckpointWriter writer(folder, 0);
  writer.save(at_step(1), live.views(), staging);
  writer.wait();
  fs::remove_all(folder);
  const std::string message = message_of<IoError>([&] {
    writer.save(at_step(2), live.views(), staging);
    writer.wait();
  });
  EXPECT_TRUE(message.starts_with(folder.string())) << message;
}

}  // namespace
}  // namespace tandem
