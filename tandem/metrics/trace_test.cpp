#include "tandem/metrics/trace.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/base/message_of_test.h"
#include "tandem/base/temporary_directory_test.h"

namespace tandem {
namespace {

TEST(Trace, IsChromeJsonWithSpansCountersAndNames) {
  const TemporaryDirectory directory;
  const auto path = directory.path() / "trace.json";
  TraceWriter trace(path);
  trace.name_process(0, "rank 0");
  trace.name_thread(0, 1, "worker 1");
  trace.add({"matmul \"q\"", "forward", 10.5, 2.25, 1, 0, {{"flops", 1024}}});
  trace.add_counter("memory", 14, 4096);
  EXPECT_FALSE(std::filesystem::exists(path)) << "appeared before it was whole";
  trace.finish();
  const auto events = nlohmann::json::parse(read_text(path))["traceEvents"];
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[1]["args"]["name"], "worker 1");
  EXPECT_EQ(events[2]["ph"], "X");
  EXPECT_EQ(events[2]["name"], "matmul \"q\"");
  EXPECT_EQ(events[2]["cat"], "forward");
  EXPECT_EQ(events[2]["ts"], 10.5);
  EXPECT_EQ(events[2]["dur"], 2.25);
  EXPECT_EQ(events[2]["tid"], 1);
  EXPECT_EQ(events[2]["args"]["flops"], 1024);
  EXPECT_EQ(events[3]["ph"], "C");
  EXPECT_EQ(events[3]["args"]["value"], 4096);
}

TEST(Trace, AnUnfinishedOneLeavesNoFile) {
  const TemporaryDirectory directory;
  { TraceWriter(directory.path() / "trace.json").add_counter("memory", 0, 1); }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(Trace, SaysWhyItCannotBeCreated) {
  const TemporaryDirectory directory;
  const std::string message =
      message_of<IoError>([&] { TraceWriter(directory.path() / "missing" / "trace.json"); });
  EXPECT_TRUE(message.ends_with(": cannot create: No such file or directory")) << message;
}

}  // namespace
}  // namespace tandem
