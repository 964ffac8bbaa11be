#include "tandem/checkpoint/stores/alive.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/base/message_of_test.h"
#include "tandem/base/system.h"
#include "tandem/checkpoint/stores/upload.h"
#include "tandem/store/memory_store_test.h"

namespace tandem {
namespace {

constexpr AliveTimes kNeverAgain{3600, 30, 0.001};

class AliveTest : public testing::Test {
 protected:
  // As a killed run leaves it: a sign that nobody puts again.
  void leave_sign(const std::string& run) const { store->put("alive-" + run, "dead"); }
  const std::shared_ptr<MemoryStore> memory = std::make_shared<MemoryStore>();
  const StoreRef store{memory};
};

TEST_F(AliveTest, WhoNeverPutASignIsDead) {
  EXPECT_EQ(LifeWatch(store, "a").look(), Life::Dead);
  EXPECT_TRUE(store->list("").empty());
}

TEST_F(AliveTest, ASignThatIsPutAgainIsALife) {
  memory->clock_s = 1000;
  const AliveSign sign(store, "a", {}, {0.001, 30, 0.001});
  {
    LifeWatch watch(store, "a", {3600, 3600, 0.001});
    EXPECT_EQ(watch.look(), Life::Unknown);
    memory->clock_s = 1005;
    Life life = Life::Unknown;
    while (life == Life::Unknown) life = watch.look();
    EXPECT_EQ(life, Life::Alive);
  }
  EXPECT_EQ(store->list("").size(), 1u);  // whoever looked has left nothing
}

TEST_F(AliveTest, OneThatIsThirtySecondsOldIsADeathByTheStoresClock) {
  memory->clock_s = 1000;
  leave_sign("a");
  memory->clock_s = 1030;
  EXPECT_EQ(LifeWatch(store, "a", kNeverAgain).look(), Life::Dead);
  memory->clock_s = 1029;
  LifeWatch watch(store, "a", kNeverAgain);
  EXPECT_EQ(watch.look(), Life::Unknown);
  EXPECT_EQ(watch.age_s(), 29);
  EXPECT_EQ(watch.look(), Life::Unknown);
  memory->clock_s = 1030;
  EXPECT_EQ(watch.look(), Life::Dead);
}

TEST_F(AliveTest, OneThatIsTakenBackIsAnEnd) {
  memory->clock_s = 1000;
  LifeWatch watch(store, "a", kNeverAgain);
  {
    const AliveSign sign(store, "a", {}, kNeverAgain);
    EXPECT_EQ(watch.look(), Life::Unknown);
  }
  EXPECT_EQ(watch.look(), Life::Dead);
}

TEST_F(AliveTest, OwnersWhoTidyTheProbeAwayAreStillSeen) {
  memory->clock_s = 1000;
  leave_sign("a");
  LifeWatch watch(store, "a", kNeverAgain);
  EXPECT_EQ(watch.look(), Life::Unknown);
  tidy_store(store);
  memory->clock_s = 1008;
  leave_sign("a");
  EXPECT_EQ(watch.look(), Life::Alive);
}

TEST_F(AliveTest, WithoutAClockTheWatchingEnds) {
  leave_sign("a");
  LifeWatch watch(store, "a", {3600, 0, 0.001});
  EXPECT_EQ(watch.look(), Life::Dead);
}

TEST_F(AliveTest, WhoIsRefusedHearsOfWhom) {
  take_claim(store, "a", 7);
  const std::string message = message_of<DataError>([&] { throw_alive(store, *newest_claim(store)); });
  EXPECT_NE(message.find(hostname() + " ("), std::string::npos) << message;
  EXPECT_NE(message.find("is writing checkpoints there, and lives"), std::string::npos) << message;
}

TEST_F(AliveTest, SignsButThatOfTheNewestClaimGoWithTheTidying) {
  leave_sign("nobody");
  EXPECT_EQ(old_signs(store), std::vector<std::string>{"alive-nobody"});
  take_claim(store, "a", 7);
  leave_sign("a");
  take_claim(store, "b", 8);
  leave_sign("b");
  EXPECT_EQ(old_signs(store), (std::vector<std::string>{"alive-a", "alive-nobody"}));
  tidy_store(store);
  EXPECT_TRUE(old_signs(store).empty());
  EXPECT_TRUE(store->exists("alive-b"));
}

}  // namespace
}  // namespace tandem
