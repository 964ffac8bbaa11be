#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>

#include "tandem/base/file.h"
#include "tandem/base/temporary_directory_test.h"
#include "tandem/metrics/tensorboard/tensorboard_event.h"
#include "tandem/metrics/tensorboard/tensorboard_sink.h"
#include "tandem/metrics/tensorboard/tfrecord.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// The check value of crc32c is published: 0xe3069283 of "123456789".
TEST(TfRecord, HasTheMaskedSumOfThePublishedCheckValue) {
  constexpr uint32_t kCheck = 0xe3069283;
  EXPECT_EQ(masked_crc32c("123456789"), ((kCheck >> 15) | (kCheck << 17)) + 0xa282ead8u);
}

TEST(TfRecord, GivesBackWhatWasWrittenAndNoticesEveryFlippedBit) {
  const std::string file = tfrecord("first") + tfrecord("") + tfrecord("third");
  TfRecordReader reader(file);
  EXPECT_EQ(reader.next(), "first");
  EXPECT_EQ(reader.next(), "");
  EXPECT_EQ(reader.next(), "third");
  EXPECT_EQ(reader.next(), std::nullopt);
  EXPECT_FALSE(reader.damaged());
  for (size_t bit = 0; bit < 8 * file.size(); ++bit) {
    std::string bad = file;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    TfRecordReader again(bad);
    int whole = 0;
    while (again.next()) ++whole;
    EXPECT_LT(whole, 3) << "bit " << bit;
    EXPECT_TRUE(again.damaged()) << "bit " << bit;
  }
  for (size_t size = 0; size < file.size(); ++size) {
    TfRecordReader half(std::string_view(file).substr(0, size));
    while (half.next()) continue;
    EXPECT_FALSE(half.damaged()) << size;
  }
}

StepRecord record_of(int64_t step) {
  StepRecord record;
  record.step = step;
  record.loss = 0.1f;
  record.lr = 3e-4f;
  record.grad_norm = std::numeric_limits<float>::quiet_NaN();
  record.count = (int64_t{1} << 40) + 1;
  record.eval_loss = 2.5f;
  record.time = "2026-01-31T23:59:59.125Z";
  return record;
}

TEST(TensorboardEvent, HasEveryNumberOfTheRowAsAFloat) {
  const StepRecord record = record_of(int64_t{1} << 33);
  const auto event = tensorboard::read_event(tensorboard::scalars_event(record));
  ASSERT_TRUE(event);
  EXPECT_EQ(event->step, int64_t{1} << 33);
  EXPECT_EQ(event->wall_s, 1769903999.125);
  const auto numbers = numbers_of(record);
  ASSERT_EQ(event->scalars.size() + 1, numbers.size());
  for (size_t i = 0; i < event->scalars.size(); ++i) {
    EXPECT_EQ(event->scalars[i].first, numbers[i + 1].name);
    EXPECT_EQ(std::bit_cast<uint32_t>(event->scalars[i].second),
              std::bit_cast<uint32_t>(static_cast<float>(numbers[i + 1].value)))
        << numbers[i + 1].name;
  }
}

TEST(TensorboardEvent, AnyOtherBytesAreNoEventOrAreReadWithoutHarm) {
  const std::string good = tensorboard::scalars_event(record_of(7));
  for (size_t size = 1; size < good.size(); ++size) tensorboard::read_event(good.substr(0, size));
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = '\xff';
    tensorboard::read_event(bad);
  }
  EXPECT_FALSE(tensorboard::read_event("\xff\xff\xff"));
}

std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> paths(fs::directory_iterator(folder), fs::directory_iterator{});
  std::sort(paths.begin(), paths.end());
  return paths;
}

TEST(TensorboardSink, EveryFileBeginsWithItsVersionAndAResumedOneWithItsFirstStep) {
  const TemporaryDirectory run_dir;
  for (const int64_t last : {0, 1}) {
    TensorboardSink sink({.run_dir = run_dir.path(), .config = "train:\n  lr: 1\n"});
    EXPECT_EQ(sink.resume(last), "");
    sink.write(record_of(last + 1));
    sink.write(record_of(last + 2));
  }
  const auto files = files_in(run_dir.path() / "tensorboard");
  ASSERT_EQ(files.size(), 2u);
  const std::string first = read_text(files[0]), second = read_text(files[1]);
  TfRecordReader reader(second);
  EXPECT_NE(reader.next()->find("brain.Event:2"), std::string::npos);
  const std::string_view start = *reader.next();
  EXPECT_TRUE(start.ends_with(std::string_view("\x3a\x02\x08\x01", 4)));  // session_log {status: START}
  EXPECT_EQ(tensorboard::read_event(start)->step, 2);
  EXPECT_NE(reader.next()->find("    train:\n      lr: 1\n"), std::string::npos);
  EXPECT_EQ(tensorboard::read_event(*reader.next())->step, 2);
  EXPECT_EQ(first.find(std::string_view("\x3a\x02\x08\x01", 4)), std::string::npos);
}

TEST(TensorboardSink, ADamagedFileIsKeptBesideWhatCanBeReadOfIt) {
  const TemporaryDirectory run_dir;
  {
    TensorboardSink sink({.run_dir = run_dir.path()});
    sink.resume(0);
    for (int64_t step = 1; step <= 6; ++step) sink.write(record_of(step));
  }
  const fs::path file = files_in(run_dir.path() / "tensorboard").at(0);
  std::string bytes = read_text(file);
  bytes[bytes.size() / 2] ^= 1;
  std::ofstream(file, std::ios::binary) << bytes;
  TensorboardSink sink({.run_dir = run_dir.path()});
  const std::string problem = sink.resume(6);
  EXPECT_NE(problem.find("was damaged"), std::string::npos) << problem;
  EXPECT_NE(problem.find("is lost"), std::string::npos) << problem;
  EXPECT_EQ(read_text(run_dir.path() / "tensorboard" / "damaged-1.events"), bytes);
}

}  // namespace
}  // namespace tandem
