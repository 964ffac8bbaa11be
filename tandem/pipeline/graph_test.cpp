#include "tandem/pipeline/graph.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/base/message_of_test.h"
#include "tandem/base/temporary_directory_test.h"

namespace tandem::pipeline {
namespace {

class Pipeline : public testing::Test {
 protected:
  Graph graph(const std::string& steps) {
    directory_.write("a.txt", "a");
    directory_.write("b.txt", "b");
    return make_graph(read_spec(directory_.write("p.yaml", steps)));
  }
  std::string refusal(const std::string& steps) {
    return message_of<ConfigError>([&] { graph(steps); });
  }
  void expect_refused(const std::string& steps, std::initializer_list<const char*> parts) {
    const std::string message = refusal(steps);
    for (const char* part : parts)
      EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
  }
  TemporaryDirectory directory_;
};

std::vector<std::string> names(const Graph& graph) {
  std::vector<std::string> found;
  for (const Step& step : graph.steps) found.push_back(step.name);
  return found;
}

TEST_F(Pipeline, PutsStepsAfterWhatTheyNeed) {
  const Graph made = graph(
      "steps: {c: {run: x, needs: [b]}, b: {run: 'x {a.out}'}, a: {run: 'x', out: o}, d: {run: 'x', in: "
      "[o/file]}}");
  EXPECT_EQ(names(made), (std::vector<std::string>{"a", "b", "c", "d"}));
  EXPECT_EQ(made.steps[3].needs, std::vector<int>{0});  // it reads what a writes
  EXPECT_EQ(made.steps[3].inputs[0].inside, "file");
}

TEST_F(Pipeline, MakesOneOfEachCombinationAndJoinsThem) {
  const Graph made = graph(
      "steps:\n"
      "  t: {run: 'x {lr} {w}', foreach: {lr: [1e-3, 3e-4], w: [8, 16]}, out: 'runs/{lr}-{w}'}\n"
      "  e: {run: 'x {t.out}', foreach: {w: [8, 16]}, out: 'e/{w}'}\n"
      "  all: {run: 'x {e.out}'}\n");
  EXPECT_EQ(names(made), (std::vector<std::string>{"t[lr=1e-3,w=8]", "t[lr=1e-3,w=16]", "t[lr=3e-4,w=8]",
                                                   "t[lr=3e-4,w=16]", "e[w=8]", "e[w=16]", "all"}));
  EXPECT_EQ(made.steps[0].out, "runs/1e-3-8");
  EXPECT_EQ(made.steps[4].needs, (std::vector<int>{0, 2}));
  EXPECT_EQ(made.steps[6].needs, (std::vector<int>{4, 5}));
}

TEST_F(Pipeline, ShowsACircle) {
  expect_refused(
      "steps: {a: {run: x, needs: [c]}, b: {run: x, needs: [a]}, c: {run: x, needs: [b]}, d: {run: x}}",
      {"p.yaml: steps need each other in a circle: ", "a -> b", "b -> c", "c -> a"});
  expect_refused("steps: {a: {run: x, needs: [a]}}", {"circle: a -> a"});
  expect_refused("steps: {a: {run: x, in: [o], out: o}}", {"a reads what it writes ('o')"});
}

TEST_F(Pipeline, RefusesOutputsInEachOthersWay) {
  expect_refused("steps: {a: {run: x, out: o}, b: {run: x, out: ./o/}}", {"b writes 'o', and so does a"});
  expect_refused("steps: {a: {run: x, out: o}, c: {run: x, out: o-b}, b: {run: x, out: o/p/q}}",
                 {"b writes 'o/p/q'", "what a writes ('o')"});
  expect_refused("steps: {a: {run: x, out: o, foreach: {n: [1, 2]}}}",
                 {"a[n=1] and a[n=2] both write 'o'", "o-{n}"});
  expect_refused("steps: {a: {run: x, out: artifacts/a}}", {"where the store is"});
  expect_refused("{store: s/t, steps: {a: {run: x, out: s}}}", {"where the store is"});
  expect_refused("steps: {a: {run: x, out: ../a}}", {"within the pipeline's folder"});
  expect_refused("steps: {a: {run: x, out: 'r/{v}', foreach: {v: ['..']}}}",
                 {"within the pipeline's folder"});
}

TEST_F(Pipeline, KeepsAValueInOnePartOfAPath) {
  EXPECT_EQ(graph("steps: {a: {run: x, out: 'r/{v}', foreach: {v: ['../../x']}}}").steps[0].out, "r/..-..-x");
}

TEST_F(Pipeline, NamesWhatNobodyHas) {
  expect_refused("steps: {train: {run: x}, e: {run: x, needs: [trian]}}",
                 {"p.yaml:1: e", "needs: no step is called 'trian'", "did you mean train?"});
  expect_refused("steps: {train: {run: x, out: o}, e: {run: 'x {trian.out}'}}",
                 {"{trian.out}: no step", "did you mean train?"});
  expect_refused("steps: {a: {run: 'x {lr}'}}", {"{lr}: no such parameter", "{{lr}} is the text"});
  expect_refused("steps: {a: {run: 'x {out}'}}", {"{out}: the step has no `out`"});
  expect_refused("steps: {a: {run: 'x {in}'}}", {"{in}: the step has no `in`"});
  expect_refused("steps: {a: {run: x}, b: {run: 'x {a.out}'}}", {"{a.out}: a has no `out`"});
  expect_refused("steps: {a: {run: x, in: [none.txt]}}",
                 {"in: 'none.txt': no such file, and no step writes it"});
  expect_refused("steps: {a: {run: x, in: ['*.csv']}}", {"'*.csv': no such file"});
  expect_refused("steps: {a: {run: x, in: [o]}, b: {run: x, out: o/p}}", {"'o' holds what b writes ('o/p')"});
  expect_refused("steps: {a: {run: x, when: 'b.loss < 1'}}", {"when: no step is called 'b'"});
  expect_refused("steps: {a: {run: x, foreach: {n: [1, 2]}}, b: {run: x, when: 'a.loss < 1'}}",
                 {"when: a is 2 steps"});
}

TEST_F(Pipeline, RefusesKeysAndValuesThatItDoesNotKnow) {
  expect_refused("steps: {a: {run: x, retrise: 2}}",
                 {"p.yaml:1: a.retrise: no such key", "did you mean retries?"});
  expect_refused("{stor: x, steps: {a: {run: x}}}", {"p.yaml:1: stor: no such key", "did you mean store?"});
  expect_refused("steps: {a: {in: [a.txt]}}", {"expected `run`"});
  expect_refused("steps: {a: {run: x}, a: {run: y}}", {"'a' is there twice"});
  expect_refused("{store: gs://b/p, steps: {a: {run: x}}}", {"expected a directory or s3://BUCKET/PREFIX"});
  expect_refused("{on: mars, steps: {a: {run: x}}}", {"on: expected local, slurm or kubernetes", "mars"});
  expect_refused("{slurm: {gpu: 1}, steps: {a: {run: x}}}", {"slurm.gpu", "did you mean gpus?"});
  expect_refused("{steps: {a: {run: x, kubernetes: {cpus: -1}}}}", {"a.kubernetes.cpus", "whole number"});
  expect_refused("steps: {a: {run: x, on: 7}}", {"a.on: expected local, slurm or kubernetes"});
  expect_refused("steps: {a: {run: x, timeout: soon}}", {"a.timeout: expected a time", "'soon'"});
  expect_refused("steps: {a: {run: x, retries: -1}}", {"a.retries: expected a whole number"});
  expect_refused("steps: {a b: {run: x}}", {"expected a name", "'a b'"});
  expect_refused("steps: {a: {run: x, shell: yes}}", {"a.shell: expected true or false"});
  expect_refused("steps: [", {"p.yaml:1: not YAML"});
  expect_refused("{}", {"expected `steps:`"});
}

TEST_F(Pipeline, TakesPatternsInOrder) {
  const Graph made = graph("steps: {a: {run: 'x {in}', in: ['*.txt']}}");
  ASSERT_EQ(made.steps[0].inputs.size(), 2u);
  EXPECT_EQ(made.steps[0].inputs[0].path, "a.txt");
  EXPECT_EQ(made.steps[0].inputs[1].path, "b.txt");
}

TEST(TimeSpan, IsANumberWithAUnit) {
  EXPECT_EQ(parse_time_span("90"), 90);
  EXPECT_EQ(parse_time_span("1.5m"), 90);
  EXPECT_EQ(parse_time_span("2h"), 7200);
  EXPECT_EQ(parse_time_span("1d"), 86400);
  for (const char* text : {"", "0", "-1s", "nan", "5 s", "3w"}) EXPECT_FALSE(parse_time_span(text)) << text;
}

}  // namespace
}  // namespace tandem::pipeline
