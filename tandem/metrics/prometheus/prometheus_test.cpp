#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/base/message_of_test.h"
#include "tandem/base/temporary_directory_test.h"
#include "tandem/metrics/prometheus/prometheus_sink.h"
#include "tandem/metrics/prometheus/prometheus_text.h"

namespace tandem {
namespace {

RunFigures figures() {
  RunFigures run;
  run.run = "a \"quoted\\ name\"\n";
  run.record.step = 7;
  run.record.loss = 0.5f;
  run.record.count = 4096;
  run.ranks = {{.rank = 0, .step = 7, .step_ms = 250, .data_wait_ms = 1, .rss_bytes = 100, .node = ""},
               {.rank = 1,
                .step = 6,
                .step_ms = 500,
                .data_wait_ms = 2,
                .comm_wait_ms = 50,
                .rss_bytes = 200,
                .node = ""}};
  return run;
}

bool has(const std::string& text, const std::string& line) {
  return text.find(line + "\n") != std::string::npos;
}

TEST(Prometheus, HasEveryRanksFiguresAndEscapesLabels) {
  const std::string text = prometheus_text(figures(), PrometheusFormat::Plain);
  const std::string run = R"(run="a \"quoted\\ name\"\n")";
  EXPECT_TRUE(has(text, "tandem_loss{" + run + "} 0.5")) << text;
  EXPECT_TRUE(has(text, "tandem_step_seconds{" + run + R"(,rank="1"} 0.5)"));
  EXPECT_TRUE(has(text, "tandem_memory_bytes{" + run + R"(,rank="1",category="resident"} 200)"));
  EXPECT_TRUE(has(text, "# TYPE tandem_tokens_total counter"));
  EXPECT_EQ(text.find("# EOF"), std::string::npos);
}

TEST(Prometheus, OpenMetricsDeclaresCountersWithoutTheirEndingAndEnds) {
  const std::string text = prometheus_text(figures(), PrometheusFormat::OpenMetrics);
  EXPECT_TRUE(has(text, "# TYPE tandem_tokens counter"));
  EXPECT_NE(text.find("\ntandem_tokens_total{"), std::string::npos);
  EXPECT_TRUE(text.ends_with("# EOF\n"));
  EXPECT_EQ(wanted_format("application/openmetrics-text;version=1.0.0,text/plain"),
            PrometheusFormat::OpenMetrics);
  EXPECT_EQ(wanted_format("*/*"), PrometheusFormat::Plain);
}

TEST(Prometheus, HasWhatTheLauncherKnows) {
  RunFigures run = figures();
  EXPECT_EQ(prometheus_text(run, PrometheusFormat::Plain).find("tandem_rank_state"), std::string::npos);
  run.restarts = 2;
  run.places = R"([{"rank":0,"state":"waiting","since_s":1.5},{"rank":1,"state":"stopped"},{"rank":"x"},7])";
  const std::string text = prometheus_text(run, PrometheusFormat::Plain);
  const std::string name = R"(run="a \"quoted\\ name\"\n")";
  EXPECT_TRUE(has(text, "tandem_launcher_restarts_total{" + name + "} 2")) << text;
  EXPECT_TRUE(has(text, "tandem_rank_state{" + name + R"(,rank="1",state="stopped"} 1)")) << text;
  EXPECT_TRUE(has(text, "tandem_rank_command_seconds{" + name + R"(,rank="0"} 1.5)")) << text;
  run.places = "no JSON";
  EXPECT_EQ(prometheus_text(run, PrometheusFormat::Plain).find("tandem_rank_state"), std::string::npos);
}

TEST(Prometheus, ARanksFiguresAreThoseOfItsLastRow) {
  StepRecord record;
  record.step = 8;
  record.step_ms = 12.5;
  const std::string rows = "half a ro\n" + rank_row(record) + "\n";
  const auto found = rank_figures(3, rows);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 3);
  EXPECT_EQ(found->step, 8);
  EXPECT_EQ(found->step_ms, 12.5);
  for (const char* bad : {"", "\n", "{}", "[1]", R"({"step":"x"})"})
    EXPECT_FALSE(rank_figures(1, bad)) << bad;
}

TEST(PrometheusSink, RefusesWhatIsNoAddressAndAPortThatIsTaken) {
  const TemporaryDirectory run;
  EXPECT_NE(message_of<ConfigError>([&] {
              PrometheusSink("9090", {.run_dir = run.path()});
            }).find("log.prometheus"),
            std::string::npos);
  PrometheusSink first("127.0.0.1:0", {.run_dir = run.path()});
  EXPECT_EQ(first.resume(0), "");
  PrometheusSink second(first.address().text(), {.run_dir = run.path()});
  EXPECT_NE(message_of<ListenError>([&] { second.resume(0); }).find("Address already in use"),
            std::string::npos);
}

}  // namespace
}  // namespace tandem
