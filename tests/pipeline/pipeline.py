"""tandem pipeline as a user runs it: what runs, what does not run again, what is refused."""

import json
import os
import signal
import sys
import time
import xml.etree.ElementTree

from pipeline_folder import PipelineTest, tandem_run
from tandem_run import BAD_USAGE, FAILED, INTERRUPTED

HOSTILE = "a 'b' \"c\" $(touch hurt) `touch hurt`; touch hurt\n${HOME} \\ * {x} {{y}} ~"
PRINT = [sys.executable, "-c", "import sys; sys.stdout.write(chr(0).join(sys.argv[1:]))"]


class Pipeline(PipelineTest):
    def chain(self, **more):
        (self.directory / "in.txt").write_text("text")
        return self.write_pipeline({
            "a": {"run": "cp {in} {out}", "in": ["in.txt"], "out": "out/a.txt"},
            "b": {"run": "sed s/t/{letter}/ {a.out}", "out": "b.txt"},
            "c": {"run": "cat {a.out}", "out": "c.txt"},
            "d": {"run": "cat {b.out} {c.out}", "out": "d.txt"}}, params={"letter": "n"})

    def test_runs_what_is_not_there_and_nothing_twice(self):
        self.chain()
        self.assertEqual({name: "to do" for name in "abcd"}, self.states())
        self.assertEqual(list("abcd"), self.ran(self.run_pipeline()))
        self.assertEqual("nexttext", (self.directory / "d.txt").read_text())
        self.assertTrue((self.directory / "out/a.txt").is_symlink())
        before = self.records()
        self.assertEqual([], self.ran(self.run_pipeline("--jobs", "3")))
        self.assertEqual(before, self.records())
        self.assertEqual({name: "done" for name in "abcd"}, self.states())

    def test_a_changed_parameter_runs_its_descendants(self):
        self.chain()
        self.run_pipeline()
        result = self.run_pipeline("--param", "letter=m")
        self.assertEqual(["b", "d"], self.ran(result))
        self.assertEqual("mexttext", (self.directory / "d.txt").read_text())
        self.assertEqual([], self.ran(self.run_pipeline()), "what was made before is still there")
        self.assertEqual("nexttext", (self.directory / "d.txt").read_text())
        (self.directory / "in.txt").write_text("test")
        status = self.status()
        self.assertEqual(("to do", "in.txt has changed"), (status["a"]["state"], status["a"]["why"]))
        self.assertEqual("a is another", status["c"]["why"])
        self.assertEqual(list("abcd"), self.ran(self.run_pipeline()))

    def test_a_damaged_record_is_none(self):
        self.chain()
        self.run_pipeline()
        file = (self.directory / "b.txt").resolve().with_name("record.json")
        good = json.loads(file.read_text())
        for name in good:
            for wrong in (None, 7.5, "x", [3], {"a": [None]}, [{"path": 3}]):
                file.write_text(json.dumps({**good, name: wrong}))
                self.status()
        for text in ("", "{", "[]", "null", "\0" * 50, json.dumps({**good, "output": 3}), json.dumps({**good, "metrics": [1]})):
            with self.subTest(text=text):
                file.write_text(text)
                self.assertEqual("stopped", self.states()["b"])
                self.assertEqual(["b"], self.ran(self.run_pipeline()))
        file.with_name("attempt.json").write_text('{"number": "many", "failure": 3}')
        file.unlink()
        self.assertEqual(["b"], self.ran(self.run_pipeline()))

    def test_what_a_link_to_a_folder_leads_to_is_read(self):
        (self.directory / "far/deep").mkdir(parents=True)
        (self.directory / "far/deep/a").write_text("1")
        (self.directory / "far/back").symlink_to("..")
        (self.directory / "data").mkdir()
        (self.directory / "data/far").symlink_to("../far")
        self.write_pipeline({"a": {"run": "cat data/far/deep/a", "in": ["data"], "out": "a"}})
        self.assertEqual(["a"], self.ran(self.run_pipeline()))
        self.assertEqual([], self.ran(self.run_pipeline()))
        (self.directory / "far/deep/a").write_text("2")
        self.assertEqual(["a"], self.ran(self.run_pipeline()))
        self.assertEqual("2", (self.directory / "a").read_text())

    def test_an_input_that_changes_under_it_makes_no_record(self):
        (self.directory / "in.txt").write_text("1")
        self.write_pipeline({"a": {"run": "cat {in} && echo 2 > in.txt", "shell": True, "in": ["in.txt"], "out": "a"},
                             "b": {"run": "cat {in}", "in": ["in.txt"], "needs": ["a"], "out": "b"}})
        result = self.run_pipeline(expect=FAILED)
        self.assertIn("a: failed: 'in.txt' has changed since the pipeline was begun", result.err)
        self.assertEqual({}, self.records())
        self.assertEqual(["a", "b"], self.ran(self.run_pipeline()))

    def test_from_any_directory(self):
        self.chain()
        (self.directory / "elsewhere").mkdir()
        self.tandem("pipeline", "run", "../pipeline.yaml", cwd=self.directory / "elsewhere")
        self.assertEqual("nexttext", (self.directory / "d.txt").read_text())
        self.assertEqual([], self.ran(self.run_pipeline()))

    def test_an_output_that_is_gone_is_made_again(self):
        self.chain()
        self.run_pipeline()
        os.remove(os.path.realpath(self.directory / "b.txt"))
        (self.directory / "c.txt").unlink()  # only the link
        self.assertEqual(["b"], self.ran(self.run_pipeline()))
        self.assertEqual("text", (self.directory / "c.txt").read_text())

    def test_records_tell_what_made_it(self):
        self.chain()
        self.run_pipeline()
        record = json.loads((self.directory / "d.txt").resolve().with_name("record.json").read_text())
        status = self.status()
        self.assertEqual({"b", "c"}, set(record["needs"]))
        self.assertEqual(status["b"]["key"], record["needs"]["b"]["key"])
        self.assertEqual(["cat", status["b"]["output"], status["c"]["output"]], record["command"])
        self.assertEqual({"path": status["d"]["output"], "files": 1, "bytes": 8}, record["output"])
        first = json.loads((self.directory / "out/a.txt").resolve().with_name("record.json").read_text())
        self.assertEqual("in.txt", first["inputs"][0]["path"])
        self.assertEqual(32, len(first["inputs"][0]["digest"]))
        for key in ("start", "end", "seconds", "host", "version", "attempts"):
            self.assertIn(key, first)

    def test_hostile_values_are_data(self):
        self.write_pipeline({
            "words": {"run": [*PRINT, "{v}", "k={v}"], "out": "words"},
            "shell": {"run": "printf '%s|' {v} \"{v}\" '{v}' > {out}", "shell": True, "out": "shell $(touch hurt) 'x"},
            "each": {"run": [*PRINT, "{w}", "{shell.out}"], "foreach": {"w": [HOSTILE, "--x", "é\u2028"]}, "out": "each/{w}"}},
            params={"v": HOSTILE})
        self.run_pipeline()
        self.assertEqual(f"{HOSTILE}\0k={HOSTILE}", (self.directory / "words").read_text())
        self.assertEqual(f"{HOSTILE}|" * 3, (self.directory / "shell $(touch hurt) 'x").read_text())
        self.assertTrue((self.directory / "each" / HOSTILE).read_text().startswith(HOSTILE + "\0artifacts/shell-"))
        self.tandem("pipeline", "graph", "pipeline.yaml", "--out", "graph.svg")
        picture = xml.etree.ElementTree.parse(self.directory / "graph.svg")
        self.assertEqual(5, len(picture.findall("{http://www.w3.org/2000/svg}path")) + 2)
        self.tandem("pipeline", "graph", "pipeline.yaml")
        self.assertEqual([], list(self.directory.rglob("hurt")))

    def test_conditions_on_metrics(self):
        def write(limit):
            self.write_pipeline({
                "evaluate": {"run": ["echo", '{"eval_loss": 2.05, "sets": {"a": 3}}'], "out": "eval.json"},
                "export": {"run": "cp {evaluate.out} {out}", "when": f"evaluate.eval_loss < {limit} and evaluate.sets.a == 3",
                           "out": "export.json"},
                "after": {"run": "echo after", "needs": ["export"]}})
        write(2.1)
        self.run_pipeline()
        self.assertTrue((self.directory / "export.json").exists())
        write(2)
        result = self.run_pipeline()
        self.assertIn("export: skipped: evaluate.eval_loss < 2 and evaluate.sets.a == 3 does not hold (evaluate.eval_loss is 2.05)", result.err)
        self.assertIn("after: skipped: export is", result.err)
        self.assertFalse((self.directory / "export.json").is_symlink(), "a link to what is not of this pipeline now")
        self.write_pipeline({"a": {"run": "echo 1", "out": "a"}, "b": {"run": "echo", "when": "a.loss < 1"}})
        err = self.run_pipeline(expect=FAILED).err
        self.assertIn("when: a has no metric 'loss'", err)
        self.assertNotIn("its log is", err, "it was never begun")

    def test_retries_and_timeouts(self):
        self.write_pipeline({
            "flaky": {"run": "echo try >> tries; test $(wc -l < tries) -ge 3 && echo good > {out}", "shell": True, "out": "good", "retries": 2},
            "slow": {"run": "sleep 600", "timeout": "0.2s"}})
        result = self.run_pipeline("--keep-going", expect=FAILED)
        self.assertEqual("good\n", (self.directory / "good").read_text())
        self.assertIn("slow: failed: took longer than its timeout of 0.20 s", result.err)
        self.assertEqual({"flaky": "done", "slow": "failed"}, self.states())

    def test_a_failure_names_the_step_its_log_and_what_it_said(self):
        self.write_pipeline({
            "good": {"run": "true"},
            "bad": {"run": "echo first; echo 'the reason' >&2; exit 3", "shell": True, "out": "never"},
            "needy": {"run": "cat {bad.out}"}, "other": {"run": "true"}})
        result = self.run_pipeline(expect=FAILED)
        self.assertIn("    the reason\n", result.err)
        last = result.err.splitlines()[-1]
        self.assertRegex(last, r"^tandem: error: pipeline.yaml: bad failed: exit code 3 after .*; its log is artifacts/bad-\w{16}/log$")
        self.assertIn("needy: not run: bad failed", result.err)
        log = (self.directory / last.split("its log is ")[1]).read_text()
        self.assertIn("the reason\n", log)
        self.assertEqual(["bad", "other"], self.ran(self.run_pipeline("--keep-going", expect=FAILED)))
        self.write_pipeline({"a": {"run": "true {out}", "out": "o"}})
        self.assertIn("ended well, but did not write {out}", self.run_pipeline(expect=FAILED).err)

    def test_refusals_change_nothing(self):
        (self.directory / "mine").write_text("precious")
        for steps, parts in (
                ({"a": {"run": "true", "needs": ["b"]}, "b": {"run": "true", "needs": ["a"]}}, ["circle", "a -> b", "b -> a"]),
                ({"a": {"run": "cat {in}", "in": ["none.txt"]}}, ["a: in: 'none.txt': no such file"]),
                ({"a": {"run": "true", "in": ["."]}}, ["a: in: '.' holds the store ('artifacts')"]),
                ({"a": {"run": "true", "in": [str(self.directory)]}}, ["holds the store"]),
                ({"a": {"run": "true", "out": "x/y"}, "b": {"run": "true", "in": [str(self.directory / "x")]}}, ["holds what a writes"]),
                ({"a": {"run": "true", "out": "x"}, "b": {"run": "true", "out": "x/y"}}, ["b writes 'x/y'", "what a writes"]),
                ({"a": {"run": "true", "out": "mine"}}, ["a: out: 'mine' is there already"]),
                ({"a": {"run": "no-such-program-here"}}, ["there is no program 'no-such-program-here'"]),
                ({"a": {"run": "true", "retry": 1}}, ["a.retry: no such key", "retries"]),
                ({"a": {"run": "true", "on": "mars"}}, ["on: expected local, slurm or kubernetes"])):
            with self.subTest(parts=parts):
                self.write_pipeline(steps)
                self.refuse(BAD_USAGE, ["pipeline.yaml", *parts], "pipeline", "run", "pipeline.yaml")
        self.refuse(BAD_USAGE, ["none.yaml: no such file"], "pipeline", "run", "none.yaml")
        self.chain()
        self.refuse(BAD_USAGE, ["--param leter", "letter"], "pipeline", "run", "pipeline.yaml", "--param", "leter=x")

    def test_one_runner_at_a_time_and_ctrl_c(self):
        self.write_pipeline({"a": {"run": "trap 'exit 9' TERM; touch begun; while :; do sleep 0.01; done", "shell": True}, "b": {"run": "true", "needs": ["a"]}})
        first = self.start("pipeline", "run", "pipeline.yaml")
        self.wait_for((self.directory / "begun").exists, "the first step")
        self.assertIn(f"process {first.pid} works in it", self.run_pipeline(expect=FAILED).err)
        self.assertEqual({"a": "running", "b": "to do"}, self.states())
        first.send_signal(signal.SIGINT)
        self.assertEqual(INTERRUPTED, first.wait(60))
        self.assertIn(b"a: stopped after", first.stderr.read())
        self.assertEqual({"a": "stopped", "b": "to do"}, self.states())

    def test_what_a_killed_runner_started_is_gone(self):
        """Grandchildren too, before the next runner begins."""
        self.write_pipeline({"a": {"run": "(while :; do echo x >> ticks; sleep 0.01; done) & touch begun; wait", "shell": True}})
        first = self.start("pipeline", "run", "pipeline.yaml")
        self.wait_for(lambda: (self.directory / "ticks").exists() and (self.directory / "begun").exists(), "the first step")
        first.kill()
        first.wait()
        self.write_pipeline({"b": {"run": "cp ticks {out}", "out": "seen"}})
        self.run_pipeline()
        time.sleep(0.1)
        self.assertEqual((self.directory / "seen").read_bytes(), (self.directory / "ticks").read_bytes())

    def test_a_thousand_steps(self):
        steps = {f"s{i}": {"run": "true", "needs": [f"s{i // 2}"] if i else []} for i in range(1000)}
        self.write_pipeline(steps)
        begin = time.monotonic()
        self.assertEqual(1000, len(self.ran(self.run_pipeline("--jobs", "2"))))
        ran = time.monotonic() - begin
        begin = time.monotonic()
        self.assertEqual([], self.ran(self.run_pipeline()))
        print(f"1,000 steps: run in {ran:.2f} s, and in {time.monotonic() - begin:.2f} s when nothing was to do", file=sys.stderr)


if __name__ == "__main__":
    tandem_run.main()
