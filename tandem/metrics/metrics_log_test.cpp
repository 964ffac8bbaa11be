#include "tandem/metrics/metrics_log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/base/rng.h"
#include "tandem/base/temporary_directory_test.h"
#include "tandem/metrics/csv_sink.h"
#include "tandem/metrics/jsonl_sink.h"

namespace tandem {
namespace {

StepRecord at_step(int64_t step) {
  StepRecord record;
  record.step = step;
  record.loss = 1.0f / static_cast<float>(step);
  record.lr = 1e-3f;
  record.count = step * 2048;
  record.time = "2026-01-01T00:00:00.000Z";
  if (step % 5 == 0) record.eval_loss = 0.5f;
  return record;
}

class Metrics : public testing::Test {
 protected:
  MetricsLog open(int64_t resume_step, CsvColumns columns = CsvColumns::Plain, bool expected = true) const {
    const SinkOptions options{.run_dir = run_dir.path(), .columns = columns, .expected = expected};
    std::vector<std::unique_ptr<Sink>> sinks;
    sinks.push_back(std::make_unique<JsonlSink>(options));
    sinks.push_back(std::make_unique<CsvSink>(options));
    return {std::move(sinks), resume_step};
  }
  void run(int64_t first, int64_t last, int64_t resume_step) {
    MetricsLog log = open(resume_step);
    for (int64_t step = first; step <= last; ++step) log.write(at_step(step));
    log.sync();
  }
  std::string text(const char* name) const { return read_text(run_dir.path() / name); }
  void append(const char* name, const std::string& text) {
    std::ofstream(run_dir.path() / name, std::ios::app) << text;
  }

  TemporaryDirectory run_dir;
};

TEST_F(Metrics, RowsHaveTheColumnsOfTheInterfaceInItsOrder) {
  EXPECT_EQ(csv_header(),
            "step,epoch,loss,lr,grad_norm,loss_scale,tokens,tokens_per_s,step_ms,data_wait_ms,rss_bytes,"
            "device_bytes,"
            "mfu,time,eval_loss,eval_accuracy");
  StepRecord record = at_step(4);
  EXPECT_EQ(
      jsonl_row(record),
      R"({"step":4,"epoch":0,"loss":0.25,"lr":0.001,"grad_norm":0,"loss_scale":1,"tokens":8192,"tokens_per_s":0,)"
      R"("step_ms":0,"data_wait_ms":0,"rss_bytes":0,"device_bytes":0,"mfu":0,"time":"2026-01-01T00:00:00.000Z"})");
  record.eval_accuracy = 0.75f;
  EXPECT_EQ(csv_row(record), "4,0,0.25,0.001,0,1,8192,0,0,0,0,0,0,2026-01-01T00:00:00.000Z,,0.75");
}

TEST_F(Metrics, FiguresOfAGpuAreThereWhereItTellsThem) {
  StepRecord record = at_step(4);
  record.gpu_busy_percent = 98;
  record.gpu_power_w = 612.5f;
  record.gpu_used_bytes = int64_t{70} << 30;
  EXPECT_TRUE(jsonl_row(record).ends_with(
      R"(Z","gpu_busy_percent":98,"gpu_power_w":612.5,"gpu_used_bytes":75161927680})"))
      << jsonl_row(record);
  EXPECT_EQ(csv_header(CsvColumns::WithGpu),
            std::string(csv_header()) + ",gpu_busy_percent,gpu_power_w,gpu_temperature_c,gpu_used_bytes");
  EXPECT_EQ(csv_row(record, CsvColumns::WithGpu), csv_row(record) + ",98,612.5,,75161927680");
  EXPECT_EQ(csv_row(at_step(4), CsvColumns::WithGpu), csv_row(at_step(4)) + ",,,,");
}

TEST_F(Metrics, TheNumbersOfARowHaveTheNamesOfItsColumns) {
  StepRecord record = at_step(4);
  record.unit = CountedIn::Images;
  record.gpu_power_w = 612.5f;
  std::string names;
  std::map<std::string_view, double> values;
  for (const NamedNumber& number : numbers_of(record)) {
    names += std::string(number.name) + " ";
    values[number.name] = number.value;
  }
  EXPECT_EQ(names,
            "step epoch loss lr grad_norm loss_scale samples samples_per_s step_ms data_wait_ms rss_bytes "
            "device_bytes mfu gpu_power_w ");
  EXPECT_EQ(values["loss"], 0.25);
  EXPECT_EQ(values["samples"], 4 * 2048);
  EXPECT_EQ(values["gpu_power_w"], 612.5);
}

TEST_F(Metrics, ARunThatGoesOnOnOtherHardwareKeepsTheColumnsOfItsCsv) {
  const CsvColumns both[] = {CsvColumns::Plain, CsvColumns::WithGpu};
  for (CsvColumns before : both) {
    for (CsvColumns after : both) {
      for (int64_t resumed : {0, 1}) {
        open(0, before).write(at_step(1));
        open(resumed, after).write(at_step(2));
        const CsvColumns columns = resumed > 0 ? before : after;
        std::string expected = std::string(csv_header(columns)) + "\n";
        for (int64_t step = 2 - resumed; step <= 2; ++step)
          expected += csv_row(at_step(step), columns) + "\n";
        EXPECT_EQ(text("metrics.csv"), expected);
      }
    }
  }
}

TEST_F(Metrics, TheLossReadsBackAsTheSameFloat) {
  const Rng rng(1, 2);
  for (uint64_t i = 0; i < 20'000; ++i) {
    const uint32_t bits = rng.bits(i);
    StepRecord record = at_step(1);
    record.loss = std::bit_cast<float>(bits);
    if (!std::isfinite(record.loss)) continue;
    const auto row = nlohmann::json::parse(jsonl_row(record));
    EXPECT_EQ(std::bit_cast<uint32_t>(row["loss"].get<float>()), bits) << row["loss"];
    std::stringstream csv(csv_row(record));
    std::string field;
    for (int column = 0; column < 3; ++column) std::getline(csv, field, ',');
    EXPECT_EQ(std::bit_cast<uint32_t>(std::strtof(field.c_str(), nullptr)), bits) << field;
  }
}

TEST_F(Metrics, ALossThatIsNotFiniteIsNullInJson) {
  StepRecord record = at_step(1);
  record.loss = std::numeric_limits<float>::quiet_NaN();
  record.grad_norm = std::numeric_limits<float>::infinity();
  const auto row = nlohmann::json::parse(jsonl_row(record));
  EXPECT_TRUE(row["loss"].is_null());
  EXPECT_TRUE(row["grad_norm"].is_null());
  EXPECT_NE(csv_row(record).find(",nan,"), std::string::npos);
}

TEST_F(Metrics, BlocksOfZerosThatAPowerCutLeavesAreDropped) {
  run(1, 10, 0);
  const std::string jsonl = text("metrics.jsonl"), csv = text("metrics.csv");
  append("metrics.jsonl", std::string(100, '\0') + "\n");
  append("metrics.csv", std::string(100, '\0') + "\n");
  run(11, 10, 10);
  EXPECT_EQ(text("metrics.jsonl"), jsonl);
  EXPECT_EQ(text("metrics.csv"), csv);
}

TEST_F(Metrics, ADamagedRowLosesNoOther) {
  run(1, 20, 0);
  const std::string jsonl = text("metrics.jsonl"), csv = text("metrics.csv");
  const std::vector<std::string> damages[] = {
      {"\"step\":7", "\"stop\":7"},       {"{\"step\":7,\"epoch\":0", "{\"step\":7,\"epoch:0"},
      {"{\"step\":7,", "{\"step\":9,"},   {"{\"step\":7,", "{\"step\":3,"},
      {"{\"step\":7,", "{\"step\":700,"}, {"\n{\"step\":7,", "{\"step\":7,"}};
  for (const auto& damage : damages) {
    run(1, 20, 0);
    std::string damaged = jsonl;
    damaged.replace(damaged.find(damage[0]), damage[0].size(), damage[1]);
    write_atomically(run_dir.path() / "metrics.jsonl", damaged);
    const MetricsLog log = open(12);
    const bool two = damage[0].starts_with("\n");  // rows 6 and 7 became one line
    std::string expected;
    for (int64_t step = 1; step <= 12; ++step) {
      if (step != 7 && !(two && step == 6)) expected += jsonl_row(at_step(step)) + "\n";
    }
    EXPECT_EQ(text("metrics.jsonl"), expected) << damage[1];
    EXPECT_EQ(text("metrics.jsonl.damaged-1"), damaged);
    ASSERT_EQ(log.problems().size(), 1u);
    EXPECT_TRUE(
        log.problems()[0].ends_with(fmt::format("metrics.jsonl: was damaged and lacks steps {}; what can be "
                                                "read of it is kept, and the file as it was is "
                                                "metrics.jsonl.damaged-1",
                                                two ? "6 to 7" : "7")))
        << log.problems()[0];
    std::filesystem::remove(run_dir.path() / "metrics.jsonl.damaged-1");
  }
  EXPECT_EQ(text("metrics.csv").find("\n13,"), std::string::npos);
}

TEST_F(Metrics, ADamagedTableKeepsItsOtherRowsAndItsHeader) {
  run(1, 10, 0);
  const std::string csv = text("metrics.csv");
  write_atomically(run_dir.path() / "metrics.csv.damaged-1", "of an earlier time");
  for (const std::string row : {"\n4,", "step,"}) {
    run(1, 10, 0);
    std::string damaged = csv;
    damaged.replace(damaged.find(row), row.size(), row[0] == '\n' ? "\nx," : "stop,");
    write_atomically(run_dir.path() / "metrics.csv", damaged);
    EXPECT_EQ(open(10).problems().size(), 1u);
    std::string expected = csv;
    if (row[0] == '\n') expected.erase(expected.find("\n4,"), csv_row(at_step(4)).size() + 1);
    EXPECT_EQ(text("metrics.csv"), expected);
    EXPECT_EQ(text("metrics.csv.damaged-2"), damaged);
    std::filesystem::remove(run_dir.path() / "metrics.csv.damaged-2");
  }
  EXPECT_EQ(text("metrics.csv.damaged-1"), "of an earlier time");
}

TEST_F(Metrics, RowsThatAreMissingAreTold) {
  run(1, 10, 0);
  std::filesystem::remove(run_dir.path() / "metrics.csv");
  std::filesystem::resize_file(run_dir.path() / "metrics.jsonl", jsonl_row(at_step(1)).size() + 20);
  const MetricsLog log = open(10);
  ASSERT_EQ(log.problems().size(), 2u);
  EXPECT_TRUE(log.problems()[0].ends_with("metrics.jsonl: has no rows of steps 2 to 10"))
      << log.problems()[0];
  EXPECT_TRUE(log.problems()[1].ends_with("metrics.csv: is missing; it goes on after step 10"));
  EXPECT_EQ(text("metrics.jsonl"), jsonl_row(at_step(1)) + "\n");
}

TEST_F(Metrics, ARunThatBeganFromACheckpointLacksNothing) {
  EXPECT_TRUE(open(5, CsvColumns::Plain, false).problems().empty());
  run(6, 10, 5);
  EXPECT_TRUE(open(10).problems().empty());
  EXPECT_TRUE(open(0).problems().empty());
}

TEST_F(Metrics, AStepTwiceIsABug) {
  MetricsLog log = open(10);
  EXPECT_THROW(log.write(at_step(10)), BugError);
  log.write(at_step(11));
  EXPECT_THROW(log.write(at_step(11)), BugError);
}

}  // namespace
}  // namespace tandem
