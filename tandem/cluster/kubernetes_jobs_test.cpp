#include "tandem/cluster/kubernetes_jobs.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tandem::cluster {
namespace {

using Json = nlohmann::ordered_json;

Json pod(const std::string& name, const std::string& index, const std::string& created, const Json& status) {
  return {{"metadata",
           {{"name", name},
            {"uid", "u-" + name},
            {"creationTimestamp", created},
            {"annotations", {{"batch.kubernetes.io/job-completion-index", index}}}}},
          {"spec", {{"nodeName", "node-a"}}},
          {"status", status}};
}

TEST(StateOf, IsPendingUntilAPodRunsAndThenWhatTheConditionsSay) {
  EXPECT_EQ("Pending", state_of(Json::object(), Json::object()).state);
  const Json running = {{"items", {pod("a", "0", "1", {{"phase", "Running"}})}}};
  EXPECT_EQ("Running", state_of(Json::object(), running).state);
  const auto with = [&](const Json& condition) {
    return state_of({{"status", {{"conditions", Json::array({condition})}}}}, running);
  };
  EXPECT_EQ("Complete", with({{"type", "Complete"}, {"status", "True"}}).state);
  EXPECT_EQ("Running", with({{"type", "Failed"}, {"status", "False"}}).state);
  const KubernetesState failed = with(
      {{"type", "Failed"}, {"status", "True"}, {"reason", "BackoffLimitExceeded"}, {"message", "too many"}});
  EXPECT_EQ("Failed", failed.state);
  EXPECT_EQ("BackoffLimitExceeded: too many", failed.reason);
}

TEST(StateOf, PodsAreInOrderOfTheirIndexTheNewestLastWithTheirReasons) {
  const Json waiting = {
      {"phase", "Pending"},
      {"containerStatuses",
       {{{"state", {{"waiting", {{"reason", "ErrImagePull"}, {"message", "not\nfound"}}}}}}}}};
  const Json ended = {{"phase", "Failed"},
                      {"containerStatuses", {{{"state", {{"terminated", {{"exitCode", 75}}}}}}}}};
  const Json unplaced = {
      {"phase", "Pending"},
      {"conditions",
       {{{"type", "PodScheduled"}, {"status", "False"}, {"message", "0/2 nodes are available"}}}}};
  const Json pods = {
      {"items", {pod("c", "1", "3", unplaced), pod("b", "0", "2", waiting), pod("a", "0", "1", ended)}}};
  const KubernetesState state = state_of(Json::object(), pods);
  ASSERT_EQ(3u, state.pods.size());
  EXPECT_EQ("a", state.pods[0].name);
  EXPECT_EQ("exit code 75", state.pods[0].reason);
  EXPECT_EQ("ErrImagePull: not found", state.pods[1].reason);
  EXPECT_EQ(1, state.pods[2].index);
  EXPECT_EQ("0/2 nodes are available", state.pods[2].reason);
}

TEST(StateOf, SurvivesAnswersOfAnotherForm) {
  const Json odd = {{"items", {Json(3), Json::object(), {{"status", "x"}, {"metadata", Json::array()}}}}};
  EXPECT_EQ(3u, state_of({{"status", 7}}, odd).pods.size());
}

}  // namespace
}  // namespace tandem::cluster
