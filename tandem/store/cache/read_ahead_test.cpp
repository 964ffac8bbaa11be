#include "tandem/store/cache/read_ahead.h"

#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/base/message_of_test.h"
#include "tandem/base/temporary_directory_test.h"
#include "tandem/store/memory_store_test.h"

namespace tandem {
namespace {

constexpr int64_t kBlock = BlockCache::kBlock;
constexpr int64_t kRoom = 64 * kBlock;

// Counts what is read of the store behind it.
class CountingStore final : public Store {
 public:
  std::string description(const std::string& name) const override { return store_.description(name); }
  std::unique_ptr<ObjectReader> open(const std::string& name) const override {
    return std::make_unique<Reader>(*this, store_.open(name));
  }
  bool exists(const std::string& name) const override { return store_.exists(name); }
  std::unique_ptr<ObjectWriter> create(const std::string& name) override { return store_.create(name); }
  std::vector<StoredObject> list(const std::string& prefix) const override { return store_.list(prefix); }
  void remove(const std::string& name) override { store_.remove(name); }
  int64_t free_bytes() const override { return store_.free_bytes(); }
  bool put_new(const std::string& name, std::string_view text) override { return store_.put_new(name, text); }

  mutable std::atomic<int64_t> num_reads{0};
  std::string version = "1";

 private:
  class Reader final : public ObjectReader {
   public:
    Reader(const CountingStore& store, std::unique_ptr<ObjectReader> reader)
        : store_(store), reader_(std::move(reader)), version_(store.version) {}
    int64_t size() const override { return reader_->size(); }
    std::string description() const override { return reader_->description(); }
    std::string version() const override { return version_; }
    void read_at(int64_t offset, std::span<std::byte> dst) const override {
      ++store_.num_reads;
      reader_->read_at(offset, dst);
    }

   private:
    const CountingStore& store_;
    std::unique_ptr<ObjectReader> reader_;
    std::string version_;
  };
  MemoryStore store_;
};

class Cached : public testing::Test {
 protected:
  std::string text_of(int64_t bytes, int seed) const {
    std::string text(static_cast<size_t>(bytes), '\0');
    for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>((i * 2654435761u >> 13) + seed);
    return text;
  }
  std::shared_ptr<ReadAhead> through(int64_t room = kRoom) const {
    return std::make_shared<ReadAhead>(store,
                                       std::make_shared<BlockCache>(directory_.path() / "cache", room));
  }
  static std::string read(const ObjectReader& object, int64_t offset, int64_t bytes) {
    std::string text(static_cast<size_t>(bytes), '\0');
    object.read_at(offset, std::as_writable_bytes(std::span(text)));
    return text;
  }
  std::filesystem::path blocks(int64_t room = kRoom) const {
    return directory_.path() / "cache" / fmt::format("blocks-{}", room / kBlock);
  }

  const TemporaryDirectory directory_;
  const std::shared_ptr<CountingStore> store = std::make_shared<CountingStore>();
};

TEST_F(Cached, GivesTheBytesAndReadsEachBlockOnce) {
  const std::string text = text_of(3 * kBlock + 77, 1);
  store->put("a", text);
  const auto object = through()->open("a");
  for (const auto& [offset, bytes] : {std::pair<int64_t, int64_t>{0, 3 * kBlock + 77},
                                      {5, 10},
                                      {kBlock - 3, 6},
                                      {3 * kBlock, 77},
                                      {kBlock, kBlock}})
    EXPECT_EQ(read(*object, offset, bytes),
              text.substr(static_cast<size_t>(offset), static_cast<size_t>(bytes)));
  EXPECT_EQ(store->num_reads, 4);
  EXPECT_NE(message_of<DataError>([&] { read(*object, 3 * kBlock, 78); }).find("truncated"),
            std::string::npos);
}

TEST_F(Cached, IsSharedByThoseWhoNameTheSameDirectory) {
  store->put("a", text_of(kBlock, 1));
  read(*through()->open("a"), 0, kBlock);
  const std::string again = read(*through()->open("a"), 0, kBlock);
  EXPECT_EQ(again, text_of(kBlock, 1));
  EXPECT_EQ(store->num_reads, 1);
}

TEST_F(Cached, AnotherVersionOfAnObjectIsAnotherObject) {
  store->put("a", text_of(100, 1));
  const auto ahead = through();
  EXPECT_EQ(read(*ahead->open("a"), 0, 100), text_of(100, 1));
  store->put("a", text_of(100, 2));
  store->version = "2";
  EXPECT_EQ(read(*ahead->open("a"), 0, 100), text_of(100, 2));
}

TEST_F(Cached, WhatTheDiskGivesBackWrongIsReadAgain) {
  store->put("a", text_of(kBlock, 1));
  read(*through()->open("a"), 0, kBlock);
  {
    std::fstream file(blocks(), std::ios::in | std::ios::out | std::ios::binary);
    for (int64_t slot = 0; slot < kRoom / kBlock; ++slot) {
      file.seekp(slot * kBlock + 1000);
      file.put('x').put('y');
    }
  }
  EXPECT_EQ(read(*through()->open("a"), 0, kBlock), text_of(kBlock, 1));
  EXPECT_EQ(store->num_reads, 2);
}

TEST_F(Cached, NeverTakesMoreThanItsRoom) {
  constexpr int64_t kNumBlocks = 40, kSmall = 8 * kBlock;
  const std::string text = text_of(kNumBlocks * kBlock, 3);
  store->put("a", text);
  const auto object = through(kSmall)->open("a");
  for (int round = 0; round < 2; ++round) {
    for (int64_t block = 0; block < kNumBlocks; ++block)
      ASSERT_EQ(read(*object, block * kBlock + 9, 100),
                text.substr(static_cast<size_t>(block * kBlock + 9), 100));
  }
  EXPECT_EQ(std::filesystem::file_size(blocks(kSmall)), static_cast<uintmax_t>(kSmall));
  EXPECT_GT(store->num_reads, kNumBlocks);
}

TEST_F(Cached, AnotherSizeTakesThePlaceOfTheFirst) {
  through(16 * kBlock);
  through(8 * kBlock);
  EXPECT_FALSE(std::filesystem::exists(blocks(16 * kBlock)));
  EXPECT_TRUE(std::filesystem::exists(blocks(8 * kBlock)));
  EXPECT_NE(message_of<ConfigError>([&] { through(kBlock); }).find("expected at least"), std::string::npos);
  EXPECT_NE(message_of<ConfigError>([&] { through(int64_t{1} << 60); }).find("are free there"),
            std::string::npos);
}

TEST_F(Cached, WhatIsExpectedIsThereBeforeItIsAskedFor) {
  const std::string text = text_of(20 * kBlock, 4);
  store->put("a", text);
  const auto object = through()->open("a");
  object->expect(3, 20 * kBlock);
  for (int i = 0; i < 2000 && store->num_reads < 20; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(store->num_reads, 20);
  EXPECT_EQ(read(*object, 0, 20 * kBlock), text);
  EXPECT_EQ(store->num_reads, 20);
}

TEST_F(Cached, ManyWhoWantTheSameGetItOnce) {
  const std::string text = text_of(8 * kBlock, 5);
  store->put("a", text);
  const auto object = through()->open("a");
  std::atomic<int> wrong{0};
  {
    std::vector<std::jthread> readers;
    for (int i = 0; i < 8; ++i)
      readers.emplace_back([&] { wrong += read(*object, 0, 8 * kBlock) == text ? 0 : 1; });
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(store->num_reads, 8);
}

}  // namespace
}  // namespace tandem
