#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>

#include "tandem/base/error.h"
#include "tandem/base/message_of_test.h"
#include "tandem/base/system.h"
#include "tandem/base/temporary_directory_test.h"
#include "tandem/dash/arena_picture.h"
#include "tandem/dash/compare_runs.h"
#include "tandem/dash/dashboard.h"
#include "tandem/dash/page_files.h"
#include "tandem/dash/run_detail.h"
#include "tandem/dash/run_status.h"
#include "tandem/dash/text_plot.h"

namespace tandem::dash {
namespace {

namespace fs = std::filesystem;

void append(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::app) << text; }

std::string row(int step, const std::string& loss = "1.5") {
  return R"({"step":)" + std::to_string(step) + R"(,"loss":)" + loss + R"(,"tokens":)" +
         std::to_string(10 * step) + R"(,"time":"2026-01-31T23:59:59.250Z"})" + "\n";
}

fs::path make_run(const fs::path& folder, const std::string& name, int steps) {
  fs::create_directories(folder / name / "logs");
  for (int step = 1; step <= steps; ++step) append(folder / name / "metrics.jsonl", row(step));
  append(folder / name / "events.jsonl",
         R"({"time":"2026-01-31T23:59:59.250Z","type":"end","message":"<b>done</b>"})"
         "\n");
  append(folder / name / "config.yaml",
         "# changed after step 3: train.lr\nname: x\ntrain:\n  steps: 40\n  lr: 0.25\n");
  return folder / name;
}

TEST(Series, ReadsOnlyWholeRowsAndGoesOnBehindThem) {
  const TemporaryDirectory directory;
  const fs::path file = directory.path() / "metrics.jsonl";
  Series series(file);
  EXPECT_EQ(series.update(), Series::Change::None);
  append(file, row(1) + row(2, "null") + "no row\n" + row(2) + row(3, "0.5").substr(0, 20));
  EXPECT_EQ(series.update(), Series::Change::Grew);
  ASSERT_EQ(series.size(), 2u);
  EXPECT_TRUE(std::isnan(series.column("loss")[1]));
  EXPECT_EQ(series.times()[0], 1769903999.25);
  append(file, row(3, "0.5").substr(20));
  EXPECT_EQ(series.update(), Series::Change::Grew);
  EXPECT_EQ(series.column("loss")[2], 0.5f);
  EXPECT_EQ(series.counts()[2], 30);
  EXPECT_EQ(series.update(), Series::Change::None);
}

TEST(Series, NoticesThatARunWasTakenBackThoughItIsLongerAgain) {
  const TemporaryDirectory directory;
  const fs::path file = directory.path() / "metrics.jsonl";
  append(file, row(1) + row(2, "7.5"));
  Series series(file);
  series.update();
  fs::resize_file(file, row(1).size());
  append(file, row(2, "6.5") + row(3));
  EXPECT_EQ(series.update(), Series::Change::Restarted);
  ASSERT_EQ(series.size(), 3u);
  EXPECT_EQ(series.column("loss")[1], 6.5f);
  fs::remove(file);
  EXPECT_EQ(series.update(), Series::Change::Restarted);
  EXPECT_EQ(series.size(), 0u);
}

TEST(Downsample, KeepsWhatStandsOutAndBothEnds) {
  std::vector<float> values(100000, 1.0f);
  values[31415] = 9.0f;
  values[27182] = -9.0f;
  values[5] = std::nanf("");
  const auto rows = downsample(values, 0, values.size(), 200);
  EXPECT_LE(rows.size(), 202u);
  EXPECT_TRUE(std::is_sorted(rows.begin(), rows.end()));
  for (uint32_t row : {0u, 31415u, 27182u, 99999u})
    EXPECT_TRUE(std::binary_search(rows.begin(), rows.end(), row)) << row;
  EXPECT_EQ(downsample(values, 4, 7, 200), (std::vector<uint32_t>{4, 6}));
  EXPECT_TRUE(downsample(values, 50, 40, 200).empty());
}

TEST(RunFolder, ReadsNothingThatLinksLeadOutTo) {
  const TemporaryDirectory directory;
  const fs::path run = make_run(directory.path(), "a", 1);
  std::ofstream(directory.path() / "secret") << "{\"k\":1}";
  fs::create_symlink("../secret", run / "summary.json");
  EXPECT_EQ(RunFolder(run).text("summary.json", 1000), "");
  EXPECT_EQ(RunFolder(run).text("../secret", 1000), "");
  EXPECT_TRUE(RunFolder(run).object("summary.json").is_null());
}

http::Request get(const std::string& path, std::map<std::string, std::string> query = {},
                  const std::string& host = "localhost:7007") {
  http::Request request;
  request.method = "GET";
  request.path = path;
  request.query = std::move(query);
  request.headers["host"] = host;
  return request;
}

struct Served {
  TemporaryDirectory directory;
  fs::path first = make_run(directory.path(), "deep/first", 3);
  fs::path second = make_run(directory.path(), "<script>", 2);
  Dashboard dashboard{{directory.path()}, {.token = "", .hosts = {"localhost"}}};
  Json json(const http::Request& request) { return Json::parse(dashboard.answer(request).body); }
};

TEST(Dashboard, ListsRunsAndGivesTheirCurvesAndDetails) {
  Served served;
  const Json runs = served.json(get("/api/runs"));
  ASSERT_EQ(runs.size(), 2u);
  for (const Json& run : runs) {
    EXPECT_EQ(run["of"], 40);
    EXPECT_EQ(run["state"], "done");
    EXPECT_EQ(run["loss"], 1.5);
  }
  const Json curves =
      served.json(get("/api/series", {{"id", "deep/first"}, {"names", "loss,none"}, {"from", "2"}}));
  EXPECT_EQ(
      curves,
      Json::parse(
          R"({"loss":{"s":[2.0,3.0],"n":[20.0,30.0],"t":[1769903999.25,1769903999.25],"y":[1.5,1.5]}})"));
  const Json detail = served.json(get("/api/run", {{"id", "<script>"}}));
  EXPECT_EQ(detail["config"][2]["key"], "train.lr");
  EXPECT_EQ(detail["config"][2]["set"], true);
  EXPECT_EQ(detail["history"][0], "changed after step 3: train.lr");
}

TEST(Dashboard, TakesRunsAndNumbersWithCommasInTheirNames) {
  Served served;
  const fs::path run = make_run(served.directory.path(), "a,b 50%", 1);
  append(run / "metrics.jsonl", R"({"step":2,"loss":1,"eval_loss/x,y":0.5})"
                                "\n");
  const Json curves =
      served.json(get("/api/series", {{"id", "a,b 50%"}, {"names", "loss,eval_loss%2Fx%2Cy"}}));
  EXPECT_EQ(curves["eval_loss/x,y"]["y"], Json::parse("[0.5]")) << curves;
  const auto news = served.dashboard.answer(get("/api/live", {{"ids", "<script>,a%2Cb 50%25"}})).events;
  news();
  append(run / "metrics.jsonl", row(3, "0.125"));
  EXPECT_NE(news().find("event: rows"), std::string::npos);
}

TEST(Dashboard, KnowsNothingButItsRunsAndItsPage) {
  Served served;
  for (const std::string id : {"", "..", "../deep/first", "/etc", "deep", "first/../first"}) {
    EXPECT_EQ(served.dashboard.answer(get("/api/run", {{"id", id}})).status, 404) << id;
    EXPECT_EQ(served.dashboard.answer(get("/api/series", {{"id", id}})).status, 404) << id;
  }
  EXPECT_EQ(served.dashboard.answer(get("/deep/first/config.yaml")).status, 404);
  EXPECT_EQ(served.dashboard.answer(get("/etc/passwd")).status, 404);
  const http::Response page = served.dashboard.answer(get("/"));
  EXPECT_EQ(page.status, 200);
  const auto is_policy = [](const auto& header) { return header.first == "Content-Security-Policy"; };
  EXPECT_TRUE(std::any_of(page.headers.begin(), page.headers.end(), is_policy));
}

TEST(Dashboard, RefusesAForeignHostAndAMissingToken) {
  Served served;
  EXPECT_EQ(served.dashboard.answer(get("/", {}, "evil.example:7007")).status, 421);
  EXPECT_EQ(served.dashboard.answer(get("/", {}, "localhost")).status, 200);
  Dashboard guarded({served.directory.path()}, {.token = "secret", .hosts = {}});
  EXPECT_EQ(guarded.answer(get("/api/runs")).status, 401);
  EXPECT_EQ(guarded.answer(get("/", {{"token", "wrong"}})).status, 401);
  EXPECT_EQ(guarded.answer(get("/", {{"token", "secret"}})).status, 200);
  http::Request request = get("/api/runs");
  request.headers["cookie"] = "a=b; tandem_token=secret";
  EXPECT_EQ(guarded.answer(request).status, 200);
}

TEST(Dashboard, TellsWhatIsNew) {
  Served served;
  const auto news = served.dashboard.answer(get("/api/live", {{"ids", "deep/first"}})).events;
  ASSERT_TRUE(news);
  EXPECT_NE(news().find("event: runs"), std::string::npos);
  EXPECT_EQ(news(), "");
  append(served.first / "metrics.jsonl", row(4, "0.125"));
  const std::string text = news();
  EXPECT_NE(text.find("event: rows"), std::string::npos) << text;
  EXPECT_NE(text.find("\"y\":[0.125]"), std::string::npos) << text;
  std::ofstream(served.first / "metrics.jsonl") << row(1);
  EXPECT_NE(news().find("event: reset"), std::string::npos);
  fs::remove_all(served.directory.path() / "deep");
  news();  // of a run that is gone
}

TEST(RunStatus, OfARunThatHasNoLockGoesByItsProcess) {
  const TemporaryDirectory directory;
  const fs::path run = make_run(directory.path(), "a", 3);
  for (const auto& [pid, state] : {std::pair(::getpid(), "running"), {999999999, "killed"}}) {
    std::ofstream(run / "status.json")
        << Json{{"state", "running"}, {"step", 3}, {"host", hostname()}, {"pid", pid}}.dump();
    const Json status = run_status(RunFolder(run));
    EXPECT_EQ(status["state"], state);
    EXPECT_EQ(status["alive"], state == std::string("running"));
  }
}

TEST(Report, HoldsEverythingAndNothingThatEndsItsScript) {
  Served served;
  append(served.first / "events.jsonl", R"({"type":"note","message":"</script><script>alert(1)</script>"})"
                                        "\n");
  const std::string page = report_page(served.dashboard.everything(100));
  EXPECT_EQ(page.find("alert(1)</script>"), std::string::npos);
  EXPECT_EQ(page.find("src=\""), std::string::npos);
  EXPECT_NE(page.find("deep/first"), std::string::npos);
  const TemporaryDirectory empty;
  EXPECT_NE(message_of<DataError>([&] { Dashboard({empty.path()}, {}).everything(10); }).find("no run"),
            std::string::npos);
  EXPECT_NE(message_of<DataError>([&] { Dashboard({empty.path() / "x"}, {}); }).find("no such folder"),
            std::string::npos);
}

TEST(CompareRuns, FindsTheFirstLossAndTheKeysThatDiffer) {
  const TemporaryDirectory directory;
  const fs::path a = make_run(directory.path(), "a", 3), b = make_run(directory.path(), "b", 3);
  EXPECT_TRUE(compare_runs(RunFolder(a), RunFolder(b))["loss"]["first_different"].is_null());
  append(a / "metrics.jsonl", row(4, "1.25") + row(5, "1"));
  append(b / "metrics.jsonl", row(4, "1.5") + row(6, "2"));
  append(b / "config.yaml", "  seed: 7\n");
  const Json comparison = compare_runs(RunFolder(a), RunFolder(b));
  EXPECT_EQ(comparison["loss"]["common"], 4);
  EXPECT_EQ(comparison["loss"]["first_different"], 4);
  EXPECT_EQ(comparison["config"], Json::parse(R"([{"key":"train.seed","a":"","b":"7"}])"));
  const std::string text = comparison_text(comparison);
  EXPECT_NE(text.find("losses differ from step 4 on"), std::string::npos) << text;
  EXPECT_NE(message_of<DataError>([&] {
              plot_runs(RunFolder(a), RunFolder(b), "lsos", 40, false);
            }).find("there are loss"),
            std::string::npos);
  EXPECT_NE(message_of<DataError>([&] {
              compare_runs(RunFolder(a), RunFolder(directory.path()));
            }).find("metrics.jsonl"),
            std::string::npos);
}

TEST(BraillePlot, PutsDotsWhereTheValuesAre) {
  const TextCurve rising{"a", {0, 1}, {0, 1}};
  const std::string plot = braille_plot(std::span(&rising, 1), 12, 3, false);
  // Up on the right, down on the left, nothing elsewhere.
  EXPECT_EQ(plot,
            "1 |\u2800\u2800\u2800\u2800\u2800\u2800\u2800\u2800\u2808\n"
            "  |\u2800\u2800\u2800\u2800\u2800\u2800\u2800\u2800\u2800\n"
            "0 |\u2840\u2800\u2800\u2800\u2800\u2800\u2800\u2800\u2800\n"
            "   0       1\n");
  EXPECT_EQ(braille_plot({}, 12, 3, false), "nothing to plot\n");
}

TEST(ArenaPicture, HasEachBufferFromItsWriterToItsLastReader) {
  const auto slice = [](int offset, int bytes) {
    return nlohmann::json{{"arena", "activations"}, {"offset", offset}, {"bytes", bytes}};
  };
  const auto command = [](const char* kernel, nlohmann::json in, nlohmann::json out) {
    return nlohmann::json{{"kernel", kernel}, {"block", 0}, {"phase", "forward"}, {"in", in}, {"out", out}};
  };
  nlohmann::json plan = {{"planned_bytes", {{"activations", 64}}}, {"executables", nlohmann::json::array()}};
  plan["executables"].push_back({{"commands", nlohmann::json::array()}});
  plan["executables"][0]["commands"] = {
      command("a", nlohmann::json::array(), {slice(0, 32)}), command("b", {slice(0, 32)}, {slice(32, 32)}),
      command("c", {slice(32, 32)}, {slice(0, 16)}), command("d", {slice(0, 16)}, nlohmann::json::array())};
  Json picture = arena_picture(plan);
  ASSERT_TRUE(picture.is_object());
  std::vector<std::vector<int>> buffers = picture["buffers"];
  std::sort(buffers.begin(), buffers.end());
  EXPECT_EQ(buffers, (std::vector<std::vector<int>>{{0, 16, 2, 3}, {0, 32, 0, 1}, {32, 32, 1, 2}}));
  EXPECT_TRUE(arena_picture(nlohmann::json::parse("{}")).is_null());
  EXPECT_TRUE(arena_picture(nlohmann::json::parse("[1", nullptr, false)).is_null());
}

}  // namespace
}  // namespace tandem::dash
