// W&B's server as far as a run needs it, for tests: runs by GraphQL, lines at line numbers. tests/watch has
// one of its own that checks more.
#pragma once

#include <cstdlib>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tandem/http/post_taker_test.h"

namespace tandem::wandb {

class FakeWandb {
 public:
  struct Run {
    std::map<int64_t, std::string> history;
    std::string summary, config;
    bool complete = false;
  };

  FakeWandb() : server_([this](const http::Posted& posted) { return take(posted); }) {
    ::setenv("WANDB_BASE_URL", server_.url().c_str(), 1);
    ::setenv("WANDB_API_KEY", "a-key-of-the-tests", 1);
  }

  Run run(const std::string& id) {
    const std::lock_guard lock(mutex_);
    return runs_[id];
  }
  // The next requests are answered so.
  void fail(int times, int status) {
    const std::lock_guard lock(mutex_);
    failures_ = times, status_ = status;
  }
  std::vector<std::string> heads() {
    const std::lock_guard lock(mutex_);
    return heads_;
  }

 private:
  using Json = nlohmann::json;

  http::PostAnswer take(const http::Posted& posted) {
    const std::lock_guard lock(mutex_);
    heads_.push_back(posted.head);
    if (failures_ > 0 && --failures_ >= 0) return {status_};
    const Json body = Json::parse(posted.body);
    if (posted.head.starts_with("POST /graphql ")) return {200, query(body).dump()};
    constexpr std::string_view kFiles = "POST /files/me/tandem/";
    EXPECT_TRUE(posted.head.starts_with(kFiles)) << posted.head;
    const size_t end = posted.head.find("/file_stream ");
    EXPECT_NE(end, std::string::npos) << posted.head;
    stream(runs_[posted.head.substr(kFiles.size(), end - kFiles.size())], body);
    return {200, "{}"};
  }

  Json query(const Json& body) {
    const std::string query = body.at("query"), name = body.at("variables").at("name");
    if (query.find("mutation UpsertBucket") != std::string::npos) {
      runs_[name].config = body["variables"]["config"];
      const Json project = {{"name", "tandem"}, {"entity", {{"name", "me"}}}};
      return {{"data", {{"upsertBucket", {{"bucket", {{"name", name}, {"project", project}}}}}}}};
    }
    if (!runs_.contains(name)) return {{"data", {{"model", {{"bucket", Json()}}}}}};
    const Run& run = runs_[name];
    const Json tail = run.history.empty() ? Json::array() : Json::array({run.history.rbegin()->second});
    const Json bucket = {{"historyLineCount", run.history.size()}, {"historyTail", tail.dump()}};
    return {{"data", {{"model", {{"bucket", bucket}}}}}};
  }

  static void stream(Run& run, const Json& body) {
    const Json files = body.value("files", Json::object());
    if (files.contains("wandb-history.jsonl")) {
      int64_t line = files["wandb-history.jsonl"]["offset"];
      EXPECT_LE(line, std::ssize(run.history)) << "lines are left out";
      for (const Json& text : files["wandb-history.jsonl"]["content"]) run.history[line++] = text;
    }
    if (files.contains("wandb-summary.json")) run.summary = files["wandb-summary.json"]["content"][0];
    run.complete = body.value("complete", false);
  }

  std::mutex mutex_;
  std::map<std::string, Run> runs_;
  std::vector<std::string> heads_;
  int failures_ = 0, status_ = 500;
  http::PostTaker server_;  // last: its thread uses the others
};

}  // namespace tandem::wandb
