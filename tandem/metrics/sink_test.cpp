// What every sink promises (sink.h), asked of each kind: a new sink is a new entry of kKinds.
#include "tandem/metrics/sink.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/base/temporary_directory_test.h"
#include "tandem/metrics/csv_sink.h"
#include "tandem/metrics/jsonl_sink.h"
#include "tandem/metrics/offline/comet_sink.h"
#include "tandem/metrics/offline/wandb_log.h"
#include "tandem/metrics/offline/wandb_sink.h"
#include "tandem/metrics/online/fake_wandb_test.h"
#include "tandem/metrics/online/wandb_online_sink.h"
#include "tandem/metrics/tensorboard/tensorboard_event.h"
#include "tandem/metrics/tensorboard/tensorboard_sink.h"
#include "tandem/metrics/tensorboard/tfrecord.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

struct SeenRow {
  int64_t step;
  float loss;
  bool operator==(const SeenRow&) const = default;
};
using Rows = std::vector<SeenRow>;

std::vector<std::string> lines_of(const fs::path& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

Rows read_jsonl(const fs::path& path) {
  Rows rows;
  for (const std::string& line : lines_of(path)) {
    const auto row = nlohmann::json::parse(line);
    rows.push_back({row["step"], row["loss"]});
  }
  return rows;
}

Rows read_csv(const fs::path& path) {
  Rows rows;
  for (const std::string& line : lines_of(path)) {
    if (line == csv_header()) continue;
    SeenRow row{};
    EXPECT_EQ(std::sscanf(line.c_str(), "%ld,%*d,%f", &row.step, &row.loss), 2) << line;
    rows.push_back(row);
  }
  return rows;
}

// Every record of every file, in the order of their names, as a reader does that knows nothing of restarts.
Rows read_tensorboard(const fs::path& run_dir) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(run_dir / "tensorboard")) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  Rows rows;
  for (const fs::path& path : paths) {
    const std::string bytes = read_text(path);
    TfRecordReader reader(bytes);
    while (const auto record = reader.next()) {
      const auto event = tensorboard::read_event(*record);
      EXPECT_TRUE(event);
      for (const auto& [tag, value] : event->scalars) {
        if (tag == "loss") rows.push_back({event->step, value});
      }
    }
    EXPECT_FALSE(reader.damaged());
    EXPECT_EQ(reader.position(), bytes.size());
  }
  return rows;
}

// The loss of every row of every record.
Rows read_wandb(const fs::path& run_dir) {
  Rows rows;
  for (const auto& entry : fs::recursive_directory_iterator(run_dir / "wandb")) {
    if (entry.path().extension() != ".wandb") continue;
    const std::string bytes = read_text(entry.path());
    wandb::LogReader reader(bytes);
    while (const auto record = reader.next()) {
      const auto read = wandb::read_record(*record);
      EXPECT_TRUE(read);
      for (const auto& [key, value] : read->items) {
        if (key == "loss") rows.push_back({read->step, std::stof(value)});
      }
    }
    EXPECT_FALSE(reader.damaged());
  }
  return rows;
}

wandb::FakeWandb& wandb_server() {
  static wandb::FakeWandb server;
  return server;
}

std::unique_ptr<Sink> make_wandb_online(const SinkOptions& options) {
  wandb_server();
  const std::chrono::milliseconds soon(1), late(120000);
  return std::make_unique<WandbOnlineSink>(
      options, wandb::Patience{.interval = soon, .at_end = late, .at_stop = late, .at_end_failing = late});
}

// What the server has, whatever the file has.
Rows read_wandb_online(const fs::path& run_dir) {
  const std::string name = fs::directory_iterator(run_dir / "wandb")->path().filename().string();
  Rows rows;
  int64_t line = 0;
  for (const auto& [number, text] : wandb_server().run(name.substr(name.rfind('-') + 1)).history) {
    EXPECT_EQ(number, line++);
    const auto row = nlohmann::json::parse(text);
    rows.push_back({row["_step"], row["loss"]});
  }
  return rows;
}

// The lines of messages.json, which begins the archive; zips are read by others in tests/watch.
Rows read_comet(const fs::path& run_dir) {
  Rows rows;
  for (const auto& entry : fs::directory_iterator(run_dir / "comet")) {
    for (std::string line : lines_of(entry.path())) {
      const size_t begin = line.find("{\"type\":");
      if (begin == std::string::npos || line.find("{\"type\":\"metric_msg\"") == std::string::npos) continue;
      const auto metric = nlohmann::json::parse(line.substr(begin)).at("payload").at("metric");
      if (metric.at("metricName") == "loss") rows.push_back({metric.at("step"), metric.at("metricValue")});
    }
  }
  return rows;
}

// Stands for sinks that only add: what was written stays, and each session is a file that says behind which
// step it goes on. A reader lets a later session take the place of what earlier ones say of its steps.
class SessionSink final : public Sink {
 public:
  explicit SessionSink(const SinkOptions& options) : run_dir_(options.run_dir) {}

  std::string resume(int64_t last) override {
    const fs::path path = run_dir_ / fmt::format("session-{:03}", sessions_of(run_dir_).size());
    file_.emplace(path);
    file_->append_line(fmt::format("behind {}", last));
    const Rows rows = read(run_dir_);
    return last > 0 && (rows.empty() || rows.back().step != last)
               ? fmt::format("{}: has no rows up to step {}", path.string(), last)
               : "";
  }
  void write(const StepRecord& record) override {
    file_->append_line(fmt::format("{} {}", record.step, record.loss));
  }
  void sync() override { file_->sync(); }

  static Rows read(const fs::path& run_dir) {
    Rows rows;
    for (const fs::path& path : sessions_of(run_dir)) {
      for (const std::string& line : lines_of(path)) {
        int64_t last = 0;
        SeenRow row{};
        if (std::sscanf(line.c_str(), "behind %ld", &last) == 1) {
          std::erase_if(rows, [&](const SeenRow& earlier) { return earlier.step > last; });
        } else if (std::sscanf(line.c_str(), "%ld %f", &row.step, &row.loss) == 2) {
          rows.push_back(row);
        }
      }
    }
    return rows;
  }

 private:
  static std::vector<fs::path> sessions_of(const fs::path& run_dir) {
    std::vector<fs::path> paths;
    for (const auto& entry : fs::directory_iterator(run_dir)) {
      if (entry.path().filename().string().starts_with("session-")) paths.push_back(entry.path());
    }
    std::sort(paths.begin(), paths.end());
    return paths;
  }

  fs::path run_dir_;
  std::optional<AppendFile> file_;
};

struct Kind {
  const char* name;
  std::unique_ptr<Sink> (*make)(const SinkOptions& options);
  Rows (*read)(const fs::path& run_dir);  // what a reader of such a sink finds
};

template <typename T>
std::unique_ptr<Sink> make(const SinkOptions& options) {
  return std::make_unique<T>(options);
}

const Kind kKinds[] = {
    {"jsonl", make<JsonlSink>, [](const fs::path& run_dir) { return read_jsonl(run_dir / "metrics.jsonl"); }},
    {"tensorboard", make<TensorboardSink>, read_tensorboard},
    {"csv", make<CsvSink>, [](const fs::path& run_dir) { return read_csv(run_dir / "metrics.csv"); }},
    {"wandb", make<WandbSink>, read_wandb},
    {"wandb_online", make_wandb_online, read_wandb_online},
    {"comet", make<CometSink>, read_comet},
    {"sessions", make<SessionSink>, SessionSink::read},
};

class EverySink : public testing::TestWithParam<Kind> {
 protected:
  static float loss_of(int64_t step, int attempt) { return 1.0f / static_cast<float>(step + 100 * attempt); }
  std::unique_ptr<Sink> open(bool expected = true) const {
    return GetParam().make({.run_dir = run_dir.path(), .expected = expected});
  }
  // Steps (resumed, last] of one attempt. It ends as a kill would end it, unless it ends in good order.
  std::string run(int64_t resumed, int64_t last, int attempt, bool in_good_order = true) {
    const auto sink = open();
    std::string problem = sink->resume(resumed);
    for (int64_t step = resumed + 1; step <= last; ++step) {
      StepRecord record;
      record.step = step;
      record.loss = loss_of(step, attempt);
      record.time = "2026-01-01T00:00:00.000Z";
      sink->write(record);
    }
    if (in_good_order) sink->sync();
    return problem;
  }
  void expect_rows(std::initializer_list<std::pair<int64_t, int>> last_step_and_attempt) const {
    Rows expected;
    for (const auto& [last, attempt] : last_step_and_attempt) {
      for (int64_t step = std::ssize(expected) + 1; step <= last; ++step)
        expected.push_back({step, loss_of(step, attempt)});
    }
    EXPECT_EQ(GetParam().read(run_dir.path()), expected);
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> paths;
    for (const auto& entry : fs::recursive_directory_iterator(run_dir.path())) {
      if (entry.is_regular_file()) paths.push_back(entry.path());
    }
    return paths;
  }

  TemporaryDirectory run_dir;
};

TEST_P(EverySink, KeepsEveryRowOfARunThatWasNeverStopped) {
  EXPECT_EQ(run(0, 20, 1), "");
  expect_rows({{20, 1}});
}

TEST_P(EverySink, ARowThatWasWrittenOutlivesAKill) {
  run(0, 7, 1, /*in_good_order=*/false);
  expect_rows({{7, 1}});
}

TEST_P(EverySink, ARunResumedAtAnyStepHasEachStepOnceAndNoneIsLost) {
  for (int64_t checkpoint = 0; checkpoint <= 12; ++checkpoint) {
    run(0, 12, 1, checkpoint % 2 == 0);  // a fresh start forgets the run before
    EXPECT_EQ(run(checkpoint, 20, 2), "");
    expect_rows({{checkpoint, 1}, {20, 2}});
  }
}

TEST_P(EverySink, AnyNumberOfResumesIsAsOne) {
  run(0, 10, 1, false);
  run(6, 9, 2, false);  // killed before the steps of the first attempt were reached again
  run(6, 6, 3, false);  // killed before its first step
  run(8 - 2, 8, 4, false);
  run(7, 20, 5);
  expect_rows({{6, 1}, {7, 4}, {20, 5}});
}

TEST_P(EverySink, AHalfWrittenLastRowIsNoRow) {
  run(0, 10, 1);
  for (const fs::path& path : files()) std::ofstream(path, std::ios::app) << "9";
  EXPECT_EQ(run(10, 20, 2), "");
  expect_rows({{10, 1}, {20, 2}});
}

TEST_P(EverySink, ThatRowsAreMissingIsToldWhereTheyAreExpected) {
  run(0, 4, 1);
  EXPECT_NE(run(10, 12, 2), "");
  EXPECT_EQ(GetParam().read(run_dir.path()).size(), 6u);
}

INSTANTIATE_TEST_SUITE_P(, EverySink, testing::ValuesIn(kKinds),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tandem
