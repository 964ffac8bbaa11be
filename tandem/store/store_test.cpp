// What every store promises.
#include "tandem/store/store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <thread>

#include "tandem/base/message_of_test.h"
#include "tandem/base/temporary_directory_test.h"
#include "tandem/store/memory_store_test.h"
#include "tandem/store/s3/fake_server_test.h"

namespace tandem {
namespace {

// s3://BUCKET/PREFIX of a server that tests/store/promises.py has started; the promises are asked of it too.
constexpr const char* kRealServer = "TANDEM_TEST_STORE";

std::vector<const char*> kinds() {
  std::vector<const char*> kinds = {"disk", "memory", "s3"};
  if (std::getenv(kRealServer) != nullptr) kinds.push_back("server");
  return kinds;
}

class EveryStore : public testing::TestWithParam<const char*> {
 protected:
  std::string text(const std::string& name) const { return read_text(*store->open(name)); }
  std::vector<std::string> listed(const std::string& prefix) const {
    std::vector<std::string> names;
    for (const StoredObject& object : store->list(prefix)) names.push_back(object.name);
    return names;
  }
  std::vector<std::string> bundles() const {
    std::vector<std::string> names = store->bundles();
    std::sort(names.begin(), names.end());
    return names;
  }
  // A bundle of one object, "data".
  void commit(const std::string& bundle, const std::string& token, const std::string& data) const {
    const auto draft = store->draft(bundle, token);
    draft->put("data", data);
    draft->commit(draft->committed_name("data"), {});
    draft->drop_replaced();
  }
  // The text of the object that a bundle's index mentions.
  std::string data_of(const std::string& bundle) const {
    return text(bundle + "/" + text(bundle + "/" + std::string(kIndexName)));
  }

  const TemporaryDirectory directory_;
  std::shared_ptr<Store> make() const {
    const std::string kind = GetParam();
    if (kind == "disk") return open_store(directory_.path().string());
    if (kind == "memory") return std::make_shared<MemoryStore>();
    if (kind == "s3") return server_.store("s3://bucket/some/prefix");
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    return open_store(fmt::format("{}/{}", std::getenv(kRealServer), std::string(test->name())));
  }

  const s3::FakeServer server_;
  const std::shared_ptr<Store> store = make();
};

TEST_P(EveryStore, GivesBackWhatWasPutAndReplacesIt) {
  EXPECT_FALSE(store->exists("a/b"));
  for (const char* put : {"first", "second, and longer", ""}) {
    store->put("a/b", put);
    EXPECT_TRUE(store->exists("a/b"));
    EXPECT_EQ(text("a/b"), put);
    EXPECT_EQ(store->open("a/b")->size(), static_cast<int64_t>(std::string_view(put).size()));
    EXPECT_EQ(store->map("a/b")->bytes().size(), std::string_view(put).size());
  }
}

TEST_P(EveryStore, AnObjectInPartsIsThereWhenItIsFinishedAndNotBefore) {
  const std::string part(100'000, 'x');
  {
    const auto given_up = store->create("object");
    given_up->write_all(std::as_bytes(std::span(part)));
  }
  EXPECT_FALSE(store->exists("object"));
  EXPECT_TRUE(store->list("").empty());
  const auto writer = store->create("object");
  for (int i = 0; i < 3; ++i) writer->write_all(std::as_bytes(std::span(part)));
  EXPECT_FALSE(store->exists("object"));
  writer->finish();
  EXPECT_EQ(text("object"), part + part + part);
}

TEST_P(EveryStore, ReadsARangeAndSaysWhereTheObjectEnds) {
  store->put("object", "0123456789");
  const auto object = store->open("object");
  std::string some(4, ' ');
  object->read_at(3, std::as_writable_bytes(std::span(some)));
  EXPECT_EQ(some, "3456");
  const std::string message =
      message_of<DataError>([&] { object->read_at(7, std::as_writable_bytes(std::span(some))); });
  EXPECT_EQ(message, store->description("object") + ": truncated: ends at byte 10");
  EXPECT_TRUE(message_of<IoError>([&] { store->open("other"); }).starts_with(store->description("other")));
}

TEST_P(EveryStore, ListsByPrefixAndRemoves) {
  for (const char* name : {"b/2", "a", "b/1", "bc"}) store->put(name, "four");
  EXPECT_EQ(listed(""), (std::vector<std::string>{"a", "b/1", "b/2", "bc"}));
  EXPECT_EQ(listed("b"), (std::vector<std::string>{"b/1", "b/2", "bc"}));
  EXPECT_EQ(listed("b/"), (std::vector<std::string>{"b/1", "b/2"}));
  EXPECT_EQ(store->list("a").at(0).bytes, 4);
  store->remove("b/1");
  store->remove("b/1");  // is gone: nothing
  EXPECT_EQ(listed("b/"), std::vector<std::string>{"b/2"});
}

TEST_P(EveryStore, ABundleAppearsWithItsCommit) {
  const auto draft = store->draft("bundle", "t");
  draft->put("data", "content");
  draft->put("note", "for the others");
  EXPECT_TRUE(bundles().empty());
  EXPECT_EQ(draft->state(), Draft::State::Open);
  const std::string note = "note";
  draft->commit(draft->committed_name("data"), {&note, 1});
  EXPECT_EQ(draft->state(), Draft::State::Committed);
  EXPECT_EQ(bundles(), std::vector<std::string>{"bundle"});
  EXPECT_EQ(data_of("bundle"), "content");
  for (const std::string& name : listed("bundle/")) EXPECT_EQ(name.find("note"), std::string::npos) << name;
}

TEST_P(EveryStore, ManyFillOneDraftAndAllSeeTheCommitOfItAlone) {
  commit("bundle", "before", "old");
  const auto one = store->draft("bundle", "t"), two = store->draft("bundle", "t");
  one->put("data", "new");
  two->put("note", "done");
  EXPECT_EQ(read_text(*one->open("note")), "done");
  EXPECT_EQ(one->list().size(), 2u);
  EXPECT_EQ(two->state(), Draft::State::Open);
  EXPECT_EQ(data_of("bundle"), "old");
  one->commit(one->committed_name("data"), {});
  EXPECT_EQ(two->state(), Draft::State::Committed);
  EXPECT_EQ(data_of("bundle"), "new");
}

TEST_P(EveryStore, ADraftThatIsRemovedIsGoneForTheOthers) {
  commit("bundle", "before", "old");
  const auto one = store->draft("bundle", "t"), two = store->draft("bundle", "t");
  two->put("note", "");
  one->remove_all();
  EXPECT_EQ(two->state(), Draft::State::Gone);
  EXPECT_EQ(data_of("bundle"), "old");
}

TEST_P(EveryStore, ReplacingLeavesNothingOfTheOlderBundle) {
  commit("bundle", "1", "old");
  commit("bundle", "2", "new");
  EXPECT_EQ(data_of("bundle"), "new");
  store->remove_leftovers(any_bundle);
  EXPECT_EQ(listed("").size(), 2u);
  store->remove_bundle("bundle");
  store->remove_bundle("bundle");
  EXPECT_TRUE(bundles().empty());
  EXPECT_TRUE(listed("").empty());
}

TEST_P(EveryStore, WhatWasNotCommittedIsALeftover) {
  commit("kept", "1", "content");
  store->draft("kept", "2")->put("data", "half");
  store->draft("never", "3")->put("data", "half");
  store->remove_draft("never", "3");
  store->put_back_replaced();
  EXPECT_TRUE(store->remove_leftovers(any_bundle).empty());
  EXPECT_EQ(bundles(), std::vector<std::string>{"kept"});
  EXPECT_EQ(data_of("kept"), "content");
  EXPECT_EQ(listed("").size(), 2u);
}

TEST_P(EveryStore, AnAliasMovesToTheNewName) {
  EXPECT_EQ(store->alias("latest"), std::nullopt);
  for (const char* name : {"one", "two"}) {
    commit(name, "t", name);
    store->set_alias("latest", name);
    EXPECT_EQ(store->alias("latest"), name);
  }
  EXPECT_EQ(store->alias("one"), std::nullopt);
}

TEST_P(EveryStore, OfManyWhoPutANewObjectOneDoes) {
  std::atomic<int> winners{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] { winners += store->put_new("claim", fmt::format("of {}", i)) ? 1 : 0; });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(winners, 1);
  EXPECT_TRUE(text("claim").starts_with("of "));
  EXPECT_FALSE(store->put_new("claim", "of another"));
  EXPECT_EQ(listed(""), std::vector<std::string>{"claim"});
  EXPECT_TRUE(store->unfinished().empty());
}

INSTANTIATE_TEST_SUITE_P(, EveryStore, testing::ValuesIn(kinds()),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tandem
