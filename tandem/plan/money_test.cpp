#include "tandem/plan/money.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tandem/base/error.h"
#include "tandem/base/message_of_test.h"
#include "tandem/base/temporary_directory_test.h"

namespace tandem::plan {
namespace {

constexpr char kHead[] = "provider,instance,gpu,gpus,region,on_demand,spot_region,spot,date,source,note\n";

TimePlan plan_of(int gpus) {
  TimePlan plan;
  plan.cluster = find_cluster("h100-sxm:" + std::to_string(gpus));
  plan.step_s = 2;
  plan.state_bytes = 96'000'000'000;
  return plan;
}

std::vector<Offer> offers_of(const TimePlan& plan, const std::string& providers = "") {
  const std::vector<Price> prices = read_prices();
  return offers(plan, prices, {10000, parse_providers(providers, prices)},
                [](const Cluster&) { return 2.0; });
}

TEST(Money, TheCataloguesPricesAreRead) {
  const std::vector<Price> prices = read_prices();
  EXPECT_GT(prices.size(), 150u);
  for (const Price& price : prices) EXPECT_NE(catalogue().find_gpu(price.gpu), nullptr) << price.instance;
}

TEST(Money, DollarsAreThoseOfThePrintedParts) {
  const std::vector<Offer> list = offers_of(plan_of(64));
  ASSERT_FALSE(list.empty());
  for (const Offer& offer : list) {
    EXPECT_EQ(offer.instances * offer.price.gpus, 64);
    for (const Bill* bill : {&offer.on_demand, offer.spot ? &*offer.spot : nullptr}) {
      if (bill == nullptr || bill->hours == 0) continue;
      const double price = bill == &offer.on_demand ? *offer.price.on_demand : *offer.price.spot;
      EXPECT_NEAR(bill->compute, bill->hours * offer.instances * price, 0.005);
      EXPECT_GE(bill->hours, 10000 * 2 / 3600.0 - 0.005);
      EXPECT_NEAR(bill->total(), bill->compute + bill->storage + bill->egress, 1e-9);
    }
  }
  for (size_t i = 1; i < list.size(); ++i) EXPECT_LE(cheapest(list[i - 1]), cheapest(list[i]));
}

TEST(Money, SpotIsNeverAssumed) {
  for (const Offer& offer : offers_of(plan_of(8), "lambda")) {
    EXPECT_FALSE(offer.spot.has_value());
    EXPECT_EQ(offer.price.provider, "lambda");
  }
  bool aws = false;
  for (const Offer& offer : offers_of(plan_of(8), "aws")) aws = aws || offer.spot.has_value();
  EXPECT_TRUE(aws);
}

TEST(Money, NodesWithoutANetworkAreNotACluster) {
  for (const Offer& offer : offers_of(plan_of(64))) {
    EXPECT_NE(offer.price.provider, "lambda");
    EXPECT_NE(offer.price.provider, "runpod");
  }
  EXPECT_FALSE(offers_of(plan_of(8), "lambda").empty());
}

TEST(Money, MachinesWithTooLittleMemoryOfTheirOwnAreLeftOut) {
  TimePlan plan = plan_of(8);
  EXPECT_FALSE(offers_of(plan, "vast").empty());
  plan.host_bytes = int64_t{500} << 30;  // vast's have 64 GiB, those of AWS 2 TiB
  EXPECT_TRUE(offers_of(plan, "vast").empty());
  EXPECT_FALSE(offers_of(plan, "aws").empty());
}

TEST(Money, SpotIsInterruptedMoreOften) {
  for (const Offer& offer : offers_of(plan_of(64), "aws")) {
    if (!offer.spot || !offer.price.on_demand) continue;
    EXPECT_GT(offer.spot->expected, offer.on_demand.expected);
    EXPECT_LT(offer.spot->interval, offer.on_demand.interval);
    EXPECT_GT(offer.spot->hours, offer.on_demand.hours);
  }
}

TEST(Money, WhatNothingMeetsSaysWhatWouldBeNeeded) {
  const std::vector<Offer> list = offers_of(plan_of(64));
  EXPECT_NE(message_of<ConfigError>([&] { within(list, 1, 0); }).find("the cheapest way takes"),
            std::string::npos);
  EXPECT_NE(message_of<ConfigError>([&] { within(list, 0, 60); }).find("the fastest way takes"),
            std::string::npos);
  const std::vector<Offer> some = within(list, cheapest(list[0]) + 0.01, 0);
  EXPECT_EQ(some.size(), 1u);
}

TEST(Money, AmountsAndTimes) {
  EXPECT_DOUBLE_EQ(parse_amount("20B", "--tokens"), 20e9);
  EXPECT_DOUBLE_EQ(parse_amount("1.5T", "--tokens"), 1.5e12);
  EXPECT_DOUBLE_EQ(parse_dollars("2000USD", "--budget"), 2000);
  EXPECT_DOUBLE_EQ(parse_time("48h", "--deadline"), 48 * 3600);
  EXPECT_DOUBLE_EQ(parse_time("2d", "--deadline"), 2 * 86400);
  for (const char* bad : {"", "x", "20Q", "-3", "0"})
    EXPECT_THROW(parse_amount(bad, "--tokens"), ConfigError) << bad;
}

TEST(Money, APriceFileWithNonsenseNamesTheLine) {
  const TemporaryDirectory folder;
  const auto refusal = [&](const std::string& rows) {
    const std::string path = folder.write("p.csv", kHead + rows).string();
    return message_of<ConfigError>([&] { read_prices(path); });
  };
  EXPECT_NE(refusal("me,box,h100-sxm,8,x,cheap,,,2026-11-01,me,\n").find("p.csv:2: on_demand"),
            std::string::npos);
  EXPECT_NE(refusal("me,box,h100-sxm,8,x,-1,,,2026-11-01,me,\n").find("between 0 and"), std::string::npos);
  EXPECT_NE(refusal("me,box,h100-smx,8,x,1,,,2026-11-01,me,\n").find("h100-sxm"), std::string::npos);
  EXPECT_NE(refusal("me,box,h100-sxm,8,x,1,,,yesterday,me,\n").find("date"), std::string::npos);
  EXPECT_NE(refusal("me,box,h100-sxm,8,x,,,,2026-11-01,me,\n").find("neither"), std::string::npos);
  const std::vector<Price> prices = read_prices();
  EXPECT_NE(message_of<ConfigError>([&] { parse_providers("awz", prices); }).find("nearest is aws"),
            std::string::npos);
}

}  // namespace
}  // namespace tandem::plan
