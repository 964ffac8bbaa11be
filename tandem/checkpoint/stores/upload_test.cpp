// Checkpoints of a folder on their way to a store that has what S3 has.
#include "tandem/checkpoint/stores/upload.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/checkpoint/example_ranks_test.h"
#include "tandem/checkpoint/layout.h"
#include "tandem/checkpoint/stores/claim.h"
#include "tandem/store/memory_store_test.h"
#include "tandem/store/s3/fake_server_test.h"

namespace tandem {
namespace {

class UploadTest : public CheckpointTest {
 protected:
  // A save in the folder, as a job for one rank.
  UploadJob saved(int64_t step, uint64_t seed) {
    writer.save(at_step(step), ExampleState(seed).views());
    return job_of(step);
  }
  UploadJob job_of(int64_t step) {
    Manifest manifest = read_manifest(folder, checkpoint_name(step));
    UploadJob job{manifest.name, fmt::format("token{}", ++num_jobs), step, {}, std::nullopt};
    for (const CheckpointFile& file : manifest.files) {
      job.files.push_back({file.name, manifest.open(file.name),
                           digested_ranges(manifest.tensors, file.name, manifest.digest_block)});
    }
    job.manifest = std::move(manifest);
    return job;
  }
  std::unique_ptr<CheckpointUploader> uploader(const std::string& run, int keep = 0) {
    CheckpointUploader::Events events;
    events.ended = [this](const UploadReport& report) { reports.push_back(report); };
    return std::make_unique<CheckpointUploader>(store, run, keep, SaveGroup{}, std::span<std::byte>{},
                                                events);
  }
  void expect_newest(int64_t step, uint64_t seed) const {
    ExampleState loaded(0);
    const Latest latest = load_latest(store, loaded.targets());
    ASSERT_TRUE(latest.manifest.has_value());
    EXPECT_EQ(latest.manifest->meta.step, step);
    EXPECT_TRUE(loaded == ExampleState(seed));
    EXPECT_TRUE(latest.skipped.empty());
  }
  // Everything in the store is the newest claim, `latest`, a manifest or named by one.
  void expect_nothing_unnamed() const {
    for (const std::string& bundle : store->bundles()) {
      const Manifest manifest = read_manifest(store, bundle);
      EXPECT_EQ(store->list(bundle + "/").size(), manifest.files.size() + 1) << bundle;
    }
    for (const StoredObject& object : store->list("")) {
      const std::string first = object.name.substr(0, object.name.find('/'));
      EXPECT_TRUE(first == kLatest || first.starts_with("claim-") || is_checkpoint_name(first))
          << object.name;
    }
    EXPECT_TRUE(old_claims(store).empty());
  }

  CheckpointWriter writer{folder, 0};
  const StoreRef store{std::make_shared<MemoryStore>()};
  std::vector<UploadReport> reports;
  int num_jobs = 0;
};

TEST_F(UploadTest, BringsTheSameBitsAndKeepsTheNewest) {
  const auto up = uploader("a", 2);
  for (const int64_t step : {10, 20, 30}) {
    up->begin(saved(step, static_cast<uint64_t>(step)));
    up->wait();
  }
  ASSERT_EQ(reports.size(), 3u);
  for (const UploadReport& report : reports) EXPECT_EQ(report.warning, "");
  EXPECT_EQ(list_checkpoints(store), (std::vector<std::string>{"step-00000020", "step-00000030"}));
  expect_newest(30, 30);
  EXPECT_EQ(store->alias(kLatest), "step-00000030");
  expect_nothing_unnamed();
}

TEST_F(UploadTest, ReadsWhatIsRemovedMeanwhile) {
  UploadJob job = saved(10, 1);
  std::filesystem::remove_all(folder / checkpoint_name(10));
  const auto up = uploader("a");
  up->begin(std::move(job));
  up->wait();
  expect_newest(10, 1);
}

TEST_F(UploadTest, WhatDiffersFromTheLiveDigestDoesNotGetThere) {
  UploadJob job = saved(10, 1);
  job.files.at(0).ranges.at(1).digest[0] ^= 1;
  const auto up = uploader("a");
  up->begin(std::move(job));
  up->wait();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_TRUE(reports[0].failed);
  EXPECT_NE(reports[0].warning.find("damaged: bytes"), std::string::npos) << reports[0].warning;
  EXPECT_TRUE(store->bundles().empty());
  EXPECT_NO_THROW(up->check());
}

TEST_F(UploadTest, OfTwoRunsOneWinsAndTheOtherLearnsWho) {
  const auto first = uploader("a"), second = uploader("b");
  first->begin(saved(10, 1));
  first->wait();
  second->begin(job_of(10));
  second->wait();
  EXPECT_TRUE(reports.at(1).failed);
  const std::string message = message_of<DataError>([&] { second->check(); });
  EXPECT_NE(message.find("is writing checkpoints there, and was faster"), std::string::npos) << message;
  EXPECT_NO_THROW(first->check());
  expect_newest(10, 1);
  expect_nothing_unnamed();
}

TEST_F(UploadTest, WhatAKilledOneLeftGoesWithTheNextCommit) {
  const auto up = uploader("a");
  up->begin(saved(10, 1));
  up->wait();
  take_claim(store, "a", 2);
  store->draft(checkpoint_name(20), "dead")->put("rank-00000.ckpt", "half");
  store->draft(checkpoint_name(10), "dead")->put("rank-00000.ckpt", "half");
  expect_newest(10, 1);
  up->begin(saved(20, 2));
  up->wait();
  expect_newest(20, 2);
  expect_nothing_unnamed();
}

TEST_F(UploadTest, ASecondSaveOfAStepTakesThePlaceOfTheFirst) {
  const auto up = uploader("a");
  for (const uint64_t seed : {1, 2}) {
    up->begin(saved(10, seed));
    up->wait();
  }
  expect_newest(10, 2);
  expect_nothing_unnamed();
}

TEST_F(UploadTest, ManyRanksBringTheirOwnFiles) {
  const ExampleState state(7);
  const ExampleLayout layout{ExampleLayout::Kind::Rows, 3, 3};
  save_as_ranks(folder, at_step(5), state, layout);
  const Manifest manifest = read_manifest(folder, checkpoint_name(5));
  ASSERT_EQ(manifest.files.size(), 3u);
  run_ranks(3, [&](int rank) {
    SaveGroup group{rank, 3, "t"};
    CheckpointUploader up(store, "a", 0, group, {}, {});
    UploadJob job{manifest.name, "t-1", 5, {}, std::nullopt};
    const std::string& file = manifest.files[static_cast<size_t>(rank)].name;
    job.files.push_back(
        {file, manifest.open(file), digested_ranges(manifest.tensors, file, manifest.digest_block)});
    if (rank == 0) job.manifest = manifest;
    up.begin(std::move(job));
    up.wait();
  });
  const Manifest there = read_manifest(store, checkpoint_name(5));
  verify(there);
  EXPECT_EQ(there.files.size(), 3u);
  expect_nothing_unnamed();
}

// Every call of an upload in turn fails for good, as if the process had been killed there or the store had
// gone: what was there stays whole, and the next upload brings the newest and leaves nothing behind.
TEST_F(UploadTest, TroubleAtAnyCallLosesNothing) {
  saved(10, 1);
  for (int failing = 0;; ++failing) {
    s3::FakeServer server;
    const StoreRef s3_store(server.store("s3://bucket/p", 1000));
    const StoreRef fine(server.store("s3://bucket/p", 1000));
    const auto go = [&](int64_t step, const StoreRef& to) {
      bool failed = false;
      CheckpointUploader::Events events;
      events.ended = [&](const UploadReport& report) { failed = report.failed || !report.warning.empty(); };
      CheckpointUploader up(to, "a", 2, SaveGroup{}, {}, events);
      up.begin(job_of(step));
      up.wait();
      return !failed;
    };
    ASSERT_TRUE(go(10, fine));
    if (failing == 0) saved(20, 2);
    server.set_trouble([failing](int number, const s3::SeenRequest&) {
      return number < failing    ? s3::Trouble::None
             : number == failing ? s3::Trouble::CutAfter
                                 : s3::Trouble::CutBefore;
    });
    const bool whole = go(20, s3_store);
    server.set_trouble({});
    ExampleState loaded(0);
    const Latest latest = load_latest(fine, loaded.targets());
    ASSERT_TRUE(latest.manifest.has_value()) << failing;
    EXPECT_TRUE(latest.skipped.empty()) << failing;
    EXPECT_TRUE(loaded == ExampleState(latest.manifest->meta.step == 10 ? 1 : 2)) << failing;
    ASSERT_TRUE(go(20, fine)) << failing;
    for (const std::string& bundle : fine->bundles())
      EXPECT_EQ(fine->list(bundle + "/").size(), read_manifest(fine, bundle).files.size() + 1) << failing;
    EXPECT_EQ(server.num_uploads(), 0u) << failing;
    EXPECT_EQ(read_manifest(fine, kLatest).meta.step, 20) << failing;
    if (whole) break;
    ASSERT_LT(failing, 200);
  }
}

}  // namespace
}  // namespace tandem
