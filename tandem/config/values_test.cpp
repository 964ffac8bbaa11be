#include "tandem/config/values.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(ParseSize, ReadsBinaryAndDecimalUnits) {
  EXPECT_EQ(parse_size("0"), 0);
  EXPECT_EQ(parse_size("4096"), 4096);
  EXPECT_EQ(parse_size("4096B"), 4096);
  EXPECT_EQ(parse_size("1e9"), 1000000000);
  EXPECT_EQ(parse_size("2GB"), 2000000000);
  EXPECT_EQ(parse_size("3kB"), 3000);
  EXPECT_EQ(parse_size("2KiB"), 2048);
  EXPECT_EQ(parse_size("512MiB"), 512LL << 20);
  EXPECT_EQ(parse_size("1.5 GiB"), 3LL << 29);
  EXPECT_EQ(parse_size("1TiB"), 1LL << 40);
}

TEST(ParseSize, RefusesWhatIsNoSize) {
  for (const char* text : {"", "GiB", "2 giB", "2GiBs", "1e300GB", "nan", "2G"}) {
    EXPECT_FALSE(parse_size(text)) << text;
  }
}

TEST(ParseRecompute, ReadsEveryFormAndPrintsItBack) {
  for (const char* text : {"none", "full", "every:1", "every:12", "selective", "auto"}) {
    const std::optional<Recompute> value = parse_recompute(text);
    ASSERT_TRUE(value) << text;
    EXPECT_EQ(to_string(*value), text);
  }
  EXPECT_EQ(parse_recompute("every:3")->every, 3);
}

TEST(ParseRecompute, RefusesAnIntervalThatIsMissingOrBelowOne) {
  for (const char* text : {"every", "every:", "every:0", "every:-1", "every:x", "ful", ""}) {
    EXPECT_FALSE(parse_recompute(text)) << text;
  }
}

TEST(Decode, TakesAWholeNumberWrittenWithAnExponentButNoFraction) {
  int64_t value = 0;
  EXPECT_FALSE(decode(RawValue{{"1e3"}}, Limits{}, value));
  EXPECT_EQ(value, 1000);
  EXPECT_EQ(decode(RawValue{{"1.5"}}, Limits{}, value), "expected a whole number, found '1.5'");
  EXPECT_EQ(value, 1000) << "a refused value must not be stored";
}

TEST(Decode, KeepsEveryBitOfALargeSeed) {
  int64_t value = 0;
  EXPECT_FALSE(decode(RawValue{{"9223372036854775807"}}, Limits{}, value));
  EXPECT_EQ(value, 9223372036854775807LL);
}

TEST(Decode, HonoursOpenAndClosedEndsOfARange) {
  double value = 0;
  const Limits below_one{.min = 0, .max = 1, .below_max = true};
  EXPECT_FALSE(decode(RawValue{{"0"}}, below_one, value));
  EXPECT_EQ(decode(RawValue{{"1"}}, below_one, value),
            "expected a number of at least 0 and below 1, found '1'");
  const Limits positive{.min = 0, .above_min = true};
  EXPECT_EQ(decode(RawValue{{"0"}}, positive, value), "expected a number above 0, found '0'");
  EXPECT_TRUE(decode(RawValue{{"inf"}}, Limits{}, value));
  EXPECT_TRUE(decode(RawValue{{"nan"}}, Limits{}, value));
}

TEST(Decode, ReadsMoneyWithItsUnitOrWithoutAndPrintsItBack) {
  Dollars budget;
  EXPECT_FALSE(decode(RawValue{{"500USD"}}, Limits{.min = 0}, budget));
  EXPECT_EQ(budget.usd, 500);
  EXPECT_EQ(encode(budget), "500.0USD");
  HourlyPrice price;
  EXPECT_FALSE(decode(RawValue{{"12.5USD/h"}}, Limits{.min = 0}, price));
  EXPECT_EQ(price.usd, 12.5);
  EXPECT_FALSE(decode(RawValue{{"3"}}, Limits{.min = 0}, price));
  EXPECT_EQ(encode(price), "3.0USD/h");
  EXPECT_EQ(decode(RawValue{{"500EUR"}}, Limits{.min = 0}, budget),
            "expected an amount such as 500USD of at least 0, found '500EUR'");
  EXPECT_TRUE(decode(RawValue{{"-1USD"}}, Limits{.min = 0}, budget));
  EXPECT_TRUE(decode(RawValue{{"USD"}}, Limits{.min = 0}, budget));
}

TEST(Decode, TellsScalarsListsAndNothingApart) {
  int64_t number = 0;
  std::vector<int64_t> list;
  EXPECT_EQ(decode(RawValue{}, Limits{}, number), "expected a whole number, found nothing");
  EXPECT_EQ(decode(RawValue{{"1", "2"}, true}, Limits{}, number),
            "expected a whole number, found the list [1, 2]");
  EXPECT_EQ(decode(RawValue{{"2"}}, Limits{}, list),
            "expected a list of whole numbers, such as [2, 2, 2], found '2'");
  EXPECT_TRUE(decode(RawValue{{}, true}, Limits{}, list)) << "an empty list of stages";
  EXPECT_FALSE(decode(RawValue{{"3", "4"}, true}, Limits{}, list));
  EXPECT_EQ(list, (std::vector<int64_t>{3, 4}));
}

TEST(EnumNames, CoverTheLastValueOfEachEnum) {
  EXPECT_EQ(name_of(DeviceKind::Cuda), "cuda");
  EXPECT_EQ(name_of(Family::Mlp), "mlp");
  EXPECT_EQ(name_of(ImageNorm::Group), "group");
  EXPECT_EQ(name_of(OptimizerKind::Sgd), "sgd");
  EXPECT_EQ(name_of(ScheduleKind::Constant), "constant");
  EXPECT_EQ(name_of(Strategy::Fsdp), "fsdp");
  EXPECT_EQ(name_of(Precision::Fp8), "fp8");
  EXPECT_EQ(name_of(RecomputeKind::Auto), "auto");
  EXPECT_EQ(name_of(OffloadKind::Optimizer), "optimizer");
}

}  // namespace
}  // namespace tandem
