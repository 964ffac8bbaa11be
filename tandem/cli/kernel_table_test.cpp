#include "tandem/cli/kernel_table.h"

#include <gtest/gtest.h>

#include <regex>
#include <sstream>

namespace tandem::cli {
namespace {

// Ten steps of 100 ms: 60 ms of products, 25 of norms that find their input in a cache, 5 of AdamW; and
// beside them 40 ms of gathers.
Profiled example() {
  Profiled profiled;
  profiled.computing["cpu.matmul"] = {.calls = 120, .seconds = 0.6, .flops = 30e9, .bytes = 1e9};
  profiled.computing["cpu.rms_norm"] = {.calls = 40, .seconds = 0.25, .flops = 1e8, .bytes = 5.15e9};
  profiled.computing["cpu.adamw"] = {.calls = 10, .seconds = 0.05, .flops = 1e8, .bytes = 0.25e9};
  profiled.beside["comm.all_gather"] = {.calls = 80, .seconds = 0.4, .flops = 0, .bytes = 2e9};
  profiled.steps = 10;
  profiled.step_s = 0.1;
  return profiled;
}
constexpr Ceilings kCeilings = {.flops = 100e9, .fp8_flops = 0, .bandwidth = 10e9};

TEST(KernelTable, TheShareColumnAddsUpToTheWholeStep) {
  const std::string table = kernel_table(example(), kCeilings);
  const std::regex share(R"(\d\.\d\d +(\d+\.\d)%)");  // after ms/step
  double sum = 0;
  int rows = 0;
  for (std::sregex_iterator it(table.begin(), table.end(), share), end; it != end; ++it, ++rows)
    sum += std::stod((*it)[1]);
  EXPECT_EQ(rows, 4) << table;  // three kernels and what is between them
  EXPECT_NEAR(sum, 100, 1e-9) << table;
  EXPECT_TRUE(std::regex_search(table, std::regex(R"(comm\.all_gather \(beside\) +8 +40\.00 +- )"))) << table;
}

TEST(KernelTable, BytesThatNoMemoryMovesSoFastAreCached) {
  const std::string table = kernel_table(example(), kCeilings);
  EXPECT_TRUE(std::regex_search(table, std::regex(R"(cpu\.rms_norm .* cached  cache\n)"))) << table;
  EXPECT_TRUE(std::regex_search(table, std::regex(R"(cpu\.adamw .* 50\.0%  memory\n)"))) << table;
  EXPECT_TRUE(std::regex_search(table, std::regex(R"(cpu\.matmul .* 50\.0%  compute\n)"))) << table;
}

TEST(KernelTable, JsonHasTheSameAndNullWhereAFigureMeansNothing) {
  const nlohmann::json json = kernel_json(example(), kCeilings);
  EXPECT_NEAR(json["share_between"].get<double>(), 0.1, 1e-9);
  const auto& rows = json["kernels"];
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0]["kernel"], "cpu.matmul");
  EXPECT_NEAR(rows[0]["share"].get<double>(), 0.6, 1e-9);
  EXPECT_EQ(rows[1]["bound"], "cache");
  EXPECT_TRUE(rows[1]["of_ceiling"].is_null());
  EXPECT_EQ(rows[3]["kernel"], "comm.all_gather (beside)");
  EXPECT_TRUE(rows[3]["share"].is_null());
}

TEST(KernelTable, ProductsOfEightBitsHaveACeilingOfTheirOwn) {
  const KernelTime time = {.calls = 1, .seconds = 1, .flops = 100e9, .fp8_flops = 100e9, .bytes = 1e9};
  EXPECT_NEAR(ceiling_of(time, {.flops = 100e9, .fp8_flops = 200e9, .bandwidth = 10e9}).fraction, 0.5, 1e-9);
}

}  // namespace
}  // namespace tandem::cli
