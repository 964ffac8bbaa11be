#include "tandem/pipeline/plan.h"

#include <gtest/gtest.h>

#include <set>

#include "tandem/base/temporary_directory_test.h"
#include "tandem/pipeline/record.h"

namespace tandem::pipeline {
namespace {

const std::string kSteps =
    "params: {n: 3}\n"
    "steps:\n"
    "  a: {run: 'cp {in} {out}', in: [x.txt], out: a.txt}\n"
    "  b: {run: 'cat {a.out} {n}', out: b.txt}\n"
    "  c: {run: 'cat {a.out}', out: c.txt}\n"
    "  d: {run: 'cat {b.out} {c.out}', out: d.txt}\n";

class PlanTest : public testing::Test {
 protected:
  void SetUp() override { directory_.write("x.txt", "text"); }
  Plan plan(const std::string& text, std::vector<std::string> params = {}) {
    return make_plan(make_graph(read_spec(directory_.write("p.yaml", text), params)));
  }
  // The steps whose keys differ.
  static std::set<std::string> changed(const Plan& before, const Plan& after) {
    std::set<std::string> names;
    for (size_t step = 0; step < before.work.size(); ++step) {
      if (before.work[step].key != after.work[step].key) names.insert(before.graph.steps[step].name);
    }
    return names;
  }
  std::string with(const std::string& before, const std::string& after) {
    std::string text = kSteps;
    return text.replace(text.find(before), before.size(), after);
  }
  TemporaryDirectory directory_;
};

using Names = std::set<std::string>;

TEST_F(PlanTest, ChangesTheKeysOfDescendantsAlone) {
  const Plan before = plan(kSteps);
  EXPECT_EQ(changed(before, plan(kSteps)), Names{});
  EXPECT_EQ(changed(before, plan(kSteps, {"n=4"})), (Names{"b", "d"}));
  EXPECT_EQ(changed(before, plan(with("cat {a.out}'", "tac {a.out}'"))), (Names{"c", "d"}));
  EXPECT_EQ(changed(before, plan(with("cat {b.out} {c.out}", "cat {c.out} {b.out}"))), Names{"d"});
  EXPECT_EQ(changed(before, plan(with("c.txt}", "sub/c.txt}"))), Names{});  // the link moves, the bytes stay
  EXPECT_EQ(changed(before, plan(with("c.txt}", "c.txt, retries: 3, timeout: 1h}"))), Names{});
  directory_.write("x.txt", "tex2");
  EXPECT_EQ(changed(before, plan(kSteps)), (Names{"a", "b", "c", "d"}));
  directory_.write("x.txt", "text");
  EXPECT_EQ(changed(before, plan(kSteps)), Names{});
}

TEST_F(PlanTest, GivesEveryStepAHomeNamedByItsKey) {
  const Plan made = plan(kSteps);
  EXPECT_EQ(made.work[0].output, "artifacts/a-" + made.work[0].key.substr(0, 16) + "/a.txt");
  EXPECT_EQ(made.work[0].command, (std::vector<std::string>{"cp", "x.txt", made.work[0].output}));
  EXPECT_EQ(made.work[1].command, (std::vector<std::string>{"cat", made.work[0].output, "3"}));
  EXPECT_FALSE(made.work[0].captures);
  EXPECT_TRUE(made.work[1].captures);
}

TEST_F(PlanTest, LetsTrainAndPrepareGoOn) {
  const Plan made = plan(
      "steps:\n"
      "  a: {run: 'tandem prepare --out {out}', out: a}\n"
      "  b: {run: 'tandem launch --nproc-per-node 2 train x.yaml --run-dir {out}', out: b}\n"
      "  c: {run: 'tandem export {b.out} {out}', out: c}\n"
      "  d: {run: 'mine {out}', out: d, resume: true}\n"
      "  e: {run: 'tandem train x.yaml --run-dir {out}', out: e, resume: false}\n");
  std::vector<bool> resumes;
  for (const Work& work : made.work) resumes.push_back(work.resumes);
  EXPECT_EQ(resumes, (std::vector<bool>{true, true, false, true, false}));
}

TEST_F(PlanTest, SeesEveryByteOfADirectory) {
  std::filesystem::create_directories(directory_.path() / "d/sub");
  directory_.write("d/sub/y", "1");
  const std::string text = "steps: {a: {run: 'cat {in}', in: [d], out: o}}";
  const Plan before = plan(text);
  directory_.write("d/sub/y", "2");
  EXPECT_EQ(changed(before, plan(text)), Names{"a"});
  directory_.write("d/sub/y", "1");
  EXPECT_EQ(changed(before, plan(text)), Names{});
  std::filesystem::rename(directory_.path() / "d/sub/y", directory_.path() / "d/sub/z");
  EXPECT_EQ(changed(before, plan(text)), Names{"a"});
}

TEST_F(PlanTest, ReadsTheNumbersOfAnOutput) {
  EXPECT_EQ(metrics_of(directory_.write("a.json",
                                        R"({"eval_loss": 2.5, "ok": true, "name": "x", "by": {"set": 3}})")),
            (Json{{"eval_loss", 2.5}, {"ok", 1}, {"by.set", 3}}));
  EXPECT_EQ(metrics_of(directory_.write("log.txt", "hello\n{\"loss\": 1}\n\n")), (Json{{"loss", 1}}));
  EXPECT_EQ(metrics_of(directory_.write("other.txt", "hello\n")), Json::object());
  std::filesystem::create_directories(directory_.path() / "run");
  directory_.write("run/summary.json", R"({"final_loss": 1.5})");
  EXPECT_EQ(metrics_of(directory_.path() / "run"), (Json{{"final_loss", 1.5}}));
}

}  // namespace
}  // namespace tandem::pipeline
