#include "tandem/checkpoint/stores/claim.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/base/message_of_test.h"
#include "tandem/store/memory_store_test.h"

namespace tandem {
namespace {

class ClaimTest : public testing::Test {
 protected:
  const StoreRef store{std::make_shared<MemoryStore>()};
};

TEST_F(ClaimTest, IsOneRunsAndStaysItsAcrossRestarts) {
  EXPECT_FALSE(newest_claim(store));
  take_claim(store, "a", 7);
  take_claim(store, "a", 7);  // killed, and started again
  ASSERT_TRUE(newest_claim(store));
  EXPECT_EQ(newest_claim(store)->run, "a");
  EXPECT_EQ(newest_claim(store)->sequence, 7);
  const std::string message = message_of<DataError>([&] { take_claim(store, "b", 7); });
  EXPECT_NE(message.find("is writing checkpoints there, and was faster"), std::string::npos) << message;
}

TEST_F(ClaimTest, ALaterOneOfAnotherRunEndsAllEarlierOnes) {
  take_claim(store, "a", 7);
  take_claim(store, "b", 8);
  EXPECT_THROW(check_claim(store, "a", 7), DataError);
  EXPECT_NO_THROW(check_claim(store, "b", 8));
  EXPECT_EQ(old_claims(store), std::vector<std::string>{"claim-00000007"});
  store->remove("claim-00000007");
  EXPECT_THROW(take_claim(store, "a", 7), DataError);  // free again, and still too late
  EXPECT_EQ(store->list("claim-").size(), 1u);
}

TEST_F(ClaimTest, OfOneRunMayBeLeftOut) {
  take_claim(store, "a", 3);
  take_claim(store, "a", 9);
  EXPECT_NO_THROW(check_claim(store, "a", 3));
  store->put("claim-00000010", "{}");
  EXPECT_TRUE(message_of<DataError>([&] { newest_claim(store); }).ends_with("damaged: names no run"));
}

}  // namespace
}  // namespace tandem
