#include "tandem/launch/rendezvous.h"

#include <gtest/gtest.h>

#include <csignal>

#include <future>
#include <mutex>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/launch/round_watch.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;

class MemoryKeyStore final : public KeyStore {
 public:
  void set(const std::string& key, const std::string& value) override {
    const std::scoped_lock lock(mutex_);
    values_[key] = value;
  }
  std::string get(const std::string& key, milliseconds) override {
    if (const auto value = try_get(key)) return *value;
    throw CommError("{}: missing", key);
  }
  std::optional<std::string> try_get(const std::string& key) override {
    const std::scoped_lock lock(mutex_);
    const auto found = values_.find(key);
    return found == values_.end() ? std::nullopt : std::optional(found->second);
  }
  int64_t add(const std::string& key, int64_t amount) override {
    const std::scoped_lock lock(mutex_);
    const int64_t sum = (values_.contains(key) ? std::stoll(values_[key]) : 0) + amount;
    values_[key] = std::to_string(sum);
    return sum;
  }
  std::string set_if_missing(const std::string& key, const std::string& value) override {
    const std::scoped_lock lock(mutex_);
    return values_.try_emplace(key, value).first->second;
  }
  void remove(const std::string& key) override {
    const std::scoped_lock lock(mutex_);
    values_.erase(key);
  }
  std::string description() const override { return "memory"; }

 private:
  std::mutex mutex_;
  std::map<std::string, std::string> values_;
};

RendezvousOptions node(const std::string& host, int least = 2, int most = 2) {
  RendezvousOptions options;
  options.id = "job";
  options.self = {.host = host, .address = host, .num_ranks = 2, .least_nodes = least, .most_nodes = most};
  options.timeout = milliseconds(20000);
  options.last_call = milliseconds(50);
  options.silence = milliseconds(5000);
  return options;
}

std::future<std::optional<Round>> join_later(Rendezvous& rendezvous) {
  return std::async(std::launch::async, [&] { return rendezvous.join(); });
}

TEST(OrderNodes, GivenRanksComeFirstThenThePreviousOnesThenTheOrderOfJoining) {
  std::vector<NodeInfo> nodes(4);
  for (int slot = 0; slot < 4; ++slot) nodes[static_cast<size_t>(slot)].slot = slot;
  nodes[2].previous_rank = 0;
  nodes[1].previous_rank = 1;
  std::vector<int> slots;
  for (const NodeInfo& info : order_nodes(nodes)) slots.push_back(info.slot);
  EXPECT_EQ((std::vector<int>{2, 1, 0, 3}), slots);
  nodes[3].given_rank = 0;
  nodes[2].previous_rank = -1;
  EXPECT_EQ(3, order_nodes(nodes).front().slot);
}

TEST(OrderNodes, TwoNodesWithOneRankOrWithDifferentNumbersOfNodesAreRefused) {
  std::vector<NodeInfo> nodes(2);
  nodes[0].given_rank = nodes[1].given_rank = 0;
  EXPECT_THROW(order_nodes(nodes), ConfigError);
  nodes[1].given_rank = 1;
  EXPECT_NO_THROW(order_nodes(nodes));
  nodes[1].most_nodes = 3;
  EXPECT_THROW(order_nodes(nodes), ConfigError);
}

TEST(Round, RecordsComeBackAsTheyWere) {
  const NodeInfo info = NodeInfo::from_text(
      NodeInfo{.host = "a\"b", .address = "10.0.0.1", .num_ranks = 3, .given_rank = 1, .slot = 4}.to_text());
  EXPECT_EQ("a\"b", info.host);
  EXPECT_EQ(3, info.num_ranks);
  EXPECT_EQ(1, info.given_rank);
  EXPECT_EQ(4, info.slot);
  const RoundEnd end =
      RoundEnd::from_text(RoundEnd{EndKind::Restart, 1, "broken \xff line", 2, 0, 3}.to_text());
  EXPECT_EQ(3, end.rank);
  EXPECT_EQ(EndKind::Restart, end.kind);
  EXPECT_EQ(2, end.restarts);
  EXPECT_THROW(RoundEnd::from_text("nonsense"), CommError);
  // Of another program's, or of somebody's who wants to do harm.
  for (const char* text : {"{\"kind\": 9}", "{\"reason\": 3}", "{\"code\": 1e300}", "{\"code\": -1}"})
    EXPECT_THROW(RoundEnd::from_text(text), CommError) << text;
  for (const char* text :
       {"{\"host\": 3}", "{\"ranks\": -1}", "{\"ranks\": 99999999999}", "{\"slot\": null}"})
    EXPECT_THROW(NodeInfo::from_text(text), CommError) << text;
  EXPECT_EQ(parse_signal_and_rank("15 3"), std::pair(15, 3));
  EXPECT_EQ(parse_signal_and_rank("15"), std::pair(15, -1));
  EXPECT_EQ(parse_signal_and_rank("99999999999 99999999999"), std::pair(0, -1));
}

TEST(Rendezvous, NodesAgreeOnRanksAndMaster) {
  MemoryKeyStore store;
  RendezvousOptions first = node("a"), second = node("b");
  second.self.num_ranks = 3;
  first.self.given_rank = 1;
  second.self.given_rank = 0;
  Rendezvous a(store, first), b(store, second);
  auto joined_a = join_later(a), joined_b = join_later(b);
  const Round round_a = *joined_a.get(), round_b = *joined_b.get();
  EXPECT_EQ(1, round_a.node_rank);
  EXPECT_EQ(0, round_b.node_rank);
  EXPECT_EQ(5, round_a.world_size());
  EXPECT_EQ(3, round_a.first_rank());
  EXPECT_EQ(0, round_b.first_rank());
  EXPECT_EQ("b", round_a.master_addr);
  EXPECT_GT(round_a.master_port, 0);
  EXPECT_EQ(round_a.master_port, round_b.master_port);
}

TEST(Rendezvous, MissingNodesAreCounted) {
  MemoryKeyStore store;
  RendezvousOptions options = node("a", 3, 3);
  options.timeout = milliseconds(100);
  try {
    Rendezvous(store, options).join();
    FAIL();
  } catch (const CommError& error) {
    EXPECT_NE(std::string::npos, std::string(error.what()).find("only 1 of 3 nodes joined"));
  }
}

TEST(Rendezvous, MoreThanTheLeastAreWaitedFor) {
  MemoryKeyStore store;
  RendezvousOptions first = node("a", 1, 2), second = node("b", 1, 2);
  first.last_call = second.last_call = milliseconds(60000);  // it ends when all who may come are there
  Rendezvous a(store, first), b(store, second);
  auto joined_a = join_later(a), joined_b = join_later(b);
  EXPECT_EQ(2u, joined_a.get()->nodes.size());
  EXPECT_EQ(2u, joined_b.get()->nodes.size());
}

TEST(Rendezvous, ARestartKeepsTheNumbersAndCounts) {
  MemoryKeyStore store;
  Rendezvous a(store, node("a")), b(store, node("b"));
  auto joined_a = join_later(a), joined_b = join_later(b);
  const Round first_a = *joined_a.get(), first_b = *joined_b.get();
  EXPECT_EQ(EndKind::Restart, a.end(first_a, {EndKind::Restart, 1, "x", 1}).kind);
  EXPECT_EQ("x", b.end(first_b, {EndKind::Stop, 1, "y", 0}).reason);  // the first decides
  joined_b = join_later(b);
  joined_a = join_later(a);
  const Round second_a = *joined_a.get(), second_b = *joined_b.get();
  EXPECT_EQ(first_a.node_rank, second_a.node_rank);
  EXPECT_EQ(first_b.node_rank, second_b.node_rank);
  EXPECT_EQ(1, second_a.restarts);
  EXPECT_EQ(1, second_b.restarts);
  a.end(second_a, {EndKind::Restart, 1, "x", 2});
  Rendezvous c(store, node("c"));  // in b's place
  auto joined_c = join_later(c);
  joined_a = join_later(a);
  EXPECT_EQ(2, joined_c.get()->restarts);
  EXPECT_EQ(0, joined_a.get()->node_rank);
}

TEST(Rendezvous, AnIdCanBeUsedAgainAfterALaunchHasEndedOrCrashed) {
  MemoryKeyStore store;
  RendezvousOptions options = node("a", 1, 1);
  options.silence = milliseconds(100);
  Rendezvous first(store, options);
  const Round round = *first.join();
  first.finish(round, 0);
  Rendezvous second(store, options);  // is left behind without an end
  EXPECT_EQ(1, second.join()->number);
  Rendezvous third(store, options);
  const Round after = *third.join();
  EXPECT_EQ(2, after.number);
  EXPECT_EQ(0, after.restarts);
}

TEST(Rendezvous, AJoinerThatDiedIsNotWaitedFor) {
  MemoryKeyStore store;
  store.add(Rendezvous::prefix("job", 0) + "joined", 1);  // a slot whose owner was killed
  RendezvousOptions a = node("a"), b = node("b");
  a.silence = b.silence = milliseconds(1500);
  Rendezvous first(store, a), second(store, b);
  auto joined_a = join_later(first), joined_b = join_later(second);
  EXPECT_GE(joined_a.get()->number, 1);
  EXPECT_EQ(2u, joined_b.get()->nodes.size());
}

TEST(Rendezvous, WaitingCanBeInterrupted) {
  MemoryKeyStore store;
  RendezvousOptions options = node("a");
  options.interrupted = [] { return true; };
  EXPECT_FALSE(Rendezvous(store, options).join().has_value());
}

TEST(Rendezvous, TheLastNodeToFinishEndsTheRoundWithTheWorstCode) {
  MemoryKeyStore store;
  Rendezvous a(store, node("a")), b(store, node("b"));
  auto joined_a = join_later(a), joined_b = join_later(b);
  const Round round_a = *joined_a.get(), round_b = *joined_b.get();
  a.finish(round_a, 75);
  EXPECT_FALSE(store.try_get(a.prefix(0) + "end").has_value());
  b.finish(round_b, 143);
  const RoundEnd end = RoundEnd::from_text(*store.try_get(a.prefix(0) + "end"));
  EXPECT_EQ(EndKind::Stop, end.kind);
  EXPECT_EQ(143, end.code);
}

TEST(Rendezvous, AnInterruptedRoundNamesTheRankThatHasNotedIt) {
  for (const bool noted : {false, true}) {
    MemoryKeyStore store;
    Rendezvous a(store, node("a")), b(store, node("b"));
    auto joined_a = join_later(a), joined_b = join_later(b);
    const Round round_a = *joined_a.get(), round_b = *joined_b.get();
    a.interrupt(round_a, 15, 0);  // the first that a has seen to end so
    if (noted) b.note_interrupted(round_b, 1);
    a.finish(round_a, 75);
    b.finish(round_b, 75);
    EXPECT_EQ(noted ? 1 : 0, RoundEnd::from_text(*store.try_get(a.prefix(0) + "end")).rank);
  }
}

// Node b comes when a runs alone with room for another.
class LateNode : public testing::Test {
 protected:
  static RendezvousOptions options(const std::string& host) {
    RendezvousOptions made = node(host);
    made.self.least_nodes = 1;
    made.self.most_nodes = 2;
    return made;
  }
  LateNode() {
    RendezvousOptions late = options("b");
    late.notice = [this](const std::string&) { waits_.set_value(); };
    b_.emplace(store_, late);
    alone_ = *a_.join();
    joined_ = join_later(*b_);
    waits_.get_future().wait();
  }

  MemoryKeyStore store_;
  Rendezvous a_{store_, options("a")};
  std::optional<Rendezvous> b_;
  std::promise<void> waits_;
  Round alone_;
  std::future<std::optional<Round>> joined_;
};

TEST_F(LateNode, IsLetInAtTheNextRestart) {
  EXPECT_EQ(1u, alone_.nodes.size());
  a_.end(alone_, {EndKind::Restart, 1, "broken", 1});
  const Round again = *a_.join();
  const std::optional<Round> late = joined_.get();
  ASSERT_TRUE(late.has_value());
  EXPECT_EQ(2u, again.nodes.size());
  EXPECT_EQ(0, again.node_rank);
  EXPECT_EQ(1, late->node_rank);
  EXPECT_EQ(1, late->restarts);
}

// It waits for the others, although it would be enough alone.
TEST_F(LateNode, MayBeTheFirstToJoinAgain) {
  a_.end(alone_, {EndKind::Restart, 1, "broken", 1});
  while (store_.add(a_.prefix(1) + "joined", 0) == 0) std::this_thread::yield();
  std::this_thread::sleep_for(milliseconds(200));  // several times its last call
  const Round again = *a_.join();
  EXPECT_EQ(2u, again.nodes.size());
  EXPECT_EQ(0, again.node_rank);
  EXPECT_EQ(2u, joined_.get()->nodes.size());
}

TEST_F(LateNode, LearnsThatTheLaunchHasEndedWithoutIt) {
  a_.finish(alone_, 0);
  a_.leave(alone_);
  EXPECT_FALSE(joined_.get().has_value());
  ASSERT_TRUE(b_->ended_without_us().has_value());
  EXPECT_EQ(EndKind::Done, b_->ended_without_us()->kind);
  a_.wait_until_left(alone_, milliseconds(60000));  // who serves the store hears of it
  EXPECT_EQ(2, store_.add(a_.prefix(0) + "left", 0));
}

RoundWatch::Options watching() {
  RoundWatch::Options options;
  options.id = "job";
  options.interval = milliseconds(20);
  options.silence = milliseconds(200);
  options.end_for = [](const std::string& reason, int) { return RoundEnd{EndKind::Restart, 1, reason, 1}; };
  return options;
}

TEST(RoundWatch, ANodeWithoutASignOfLifeEndsTheRound) {
  MemoryKeyStore store;
  Rendezvous a(store, node("a")), b(store, node("b"));
  auto joined_a = join_later(a), joined_b = join_later(b);
  const Round round = *joined_a.get();
  joined_b.get();
  RoundWatch watch(a, store, round, watching());
  const std::optional<RoundEnd> end = watch.wait_for_end(milliseconds(20000));
  ASSERT_TRUE(end.has_value());
  EXPECT_NE(std::string::npos, end->reason.find("(b) is gone"));
}

TEST(RoundWatch, TwoThatLiveStayTogetherAndHearOfASignal) {
  MemoryKeyStore store;
  Rendezvous a(store, node("a")), b(store, node("b"));
  auto joined_a = join_later(a), joined_b = join_later(b);
  const Round round_a = *joined_a.get(), round_b = *joined_b.get();
  RoundWatch::Options patient = watching();
  patient.silence = milliseconds(5000);
  RoundWatch watch_a(a, store, round_a, patient), watch_b(b, store, round_b, patient);
  EXPECT_FALSE(watch_a.wait_for_end(milliseconds(300)).has_value());
  watch_a.tell_interrupt(15, 3);
  OtherNodes::News news;
  for (int i = 0; i < 1000 && news.interrupt == 0; ++i) {
    std::this_thread::sleep_for(milliseconds(10));
    news = watch_b.take();
  }
  EXPECT_EQ(15, news.interrupt);
  EXPECT_EQ(3, news.rank);
  EXPECT_FALSE(news.stop);
}

TEST(RoundWatch, RanksThatMissAPeerBlameTheStoppedOneOfAnotherNode) {
  MemoryKeyStore store;
  Rendezvous a(store, node("a")), b(store, node("b"));
  auto joined_a = join_later(a), joined_b = join_later(b);
  const Round round_a = *joined_a.get(), round_b = *joined_b.get();
  RoundWatch::Options patient = watching();
  patient.silence = milliseconds(5000);
  RoundWatch watch_a(a, store, round_a, patient), watch_b(b, store, round_b, patient);
  watch_a.tell_stopped(4, SIGSTOP);
  watch_a.tell_stopped(4, 0);
  EXPECT_FALSE(b.stopped_rank(round_b).has_value());
  watch_a.tell_stopped(3, SIGSTOP);
  watch_a.tell_stopped(4, 0);
  RankEnd missed;
  missed.exit_code = 1;
  missed.lost_peer = true;
  missed.last_lines = {"rank 3 is silent"};
  watch_b.tell_failure(missed, {missed});
  EXPECT_EQ("rank 3 was stopped (SIGSTOP): rank 3 is silent", watch_b.end()->reason);
  EXPECT_EQ(3, watch_b.end()->rank);
}

}  // namespace
}  // namespace tandem
