#include "tandem/metrics/offline/wandb_log.h"

#include <gtest/gtest.h>

namespace tandem::wandb {
namespace {

// Sizes around the ends of blocks: what is left of one may hold a head and nothing, or not even a head.
TEST(WandbLog, GivesBackRecordsOfAnySizeAcrossBlocks) {
  for (const size_t first : {0, 1, 32740, 32741, 32746, 32747, 32748, 32753, 32754, 32755, 70000}) {
    std::string file = file_head();
    const std::string records[] = {std::string(first, 'a'), "second", std::string(40000, 'c'), ""};
    for (const std::string& record : records) file += framed(record, static_cast<int64_t>(file.size()));
    LogReader reader(file);
    for (const std::string& record : records) EXPECT_EQ(reader.next(), record) << first;
    EXPECT_EQ(reader.next(), std::nullopt);
    EXPECT_EQ(reader.position(), file.size());
    EXPECT_FALSE(reader.damaged());
  }
}

TEST(WandbLog, NoticesFlippedBitsAndTakesAHalfWrittenRecordForNone) {
  std::string file = file_head();
  for (const char* record : {"first", "second"}) file += framed(record, static_cast<int64_t>(file.size()));
  for (size_t size = 0; size < file.size(); ++size) {
    LogReader half(std::string_view(file).substr(0, size));
    while (half.next()) continue;
    EXPECT_FALSE(half.damaged()) << size;
  }
  for (size_t byte = 0; byte < file.size(); ++byte) {
    std::string bad = file;
    bad[byte] = static_cast<char>(bad[byte] ^ 0x20);
    LogReader reader(bad);
    int whole = 0;
    while (reader.next()) ++whole;
    EXPECT_LT(whole, 2) << byte;
  }
}

// Bytes as W&B's own client has them: head, then one chunk with crc32 of its kind and payload.
TEST(WandbLog, HasTheBytesOfThePublicFormat) {
  EXPECT_EQ(file_head(), std::string(":W&B\xe1\xbe\x00", 7));
  // crc32 of "\x01" + "123456789" is 0x9da4d8f1, by zlib.
  const std::string chunk = framed("123456789", 7);
  EXPECT_EQ(chunk.substr(4), std::string("\x09\x00\x01", 3) + "123456789");
}

TEST(WandbLog, ARowHasItsStepAndEveryNumber) {
  StepRecord row;
  row.step = 300;
  row.loss = 0.1f;
  row.grad_norm = std::numeric_limits<float>::infinity();
  row.eval_loss = std::numeric_limits<float>::quiet_NaN();
  const auto read = read_record(history_record(7, row, 12.5, 2.25));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->kind, Record::Kind::History);
  EXPECT_EQ(read->number, 7);
  EXPECT_EQ(read->step, 300);
  std::string text;
  for (const auto& [key, value] : read->items) text += key + "=" + value + " ";
  for (const char* expected :
       {"loss=0.1 ", "grad_norm=Infinity ", "eval_loss=NaN ", "_step=300 ", "_runtime=10.25 "})
    EXPECT_NE(text.find(expected), std::string::npos) << text;
}

TEST(WandbLog, ARunHasItsStart) {
  RunFacts run;
  run.start_s = 1700000000.5;
  run.config = R"({"a":{"b":1}})";
  const auto read = read_record(run_record(1, run));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->kind, Record::Kind::Run);
  EXPECT_DOUBLE_EQ(read->start_s, 1700000000.5);
}

}  // namespace
}  // namespace tandem::wandb
