"""tandem sweep: trials are ordinary runs, losers are stopped, and what was done is not done again."""

import json
import signal
import xml.etree.ElementTree

from pipeline_folder import PipelineTest, tandem_run
from tandem_run import BAD_USAGE, GPT2, INTERRUPTED, config

GRID = ("--grid", "train.lr=1e-6,2e-3,1e-5,1e-4")


class Sweep(PipelineTest):
    def sweep(self, *arguments, steps=40, **options):
        self.write_config(config(GPT2, train={"steps": steps}, checkpoint={"every": 1000}))
        return self.tandem("sweep", "config.yaml", "--dir", "sweep", *arguments, **options)

    def results(self):
        return json.loads((self.directory / "sweep/results.json").read_text())["trials"]

    def test_losers_are_stopped_and_the_best_is_the_plain_run(self):
        told = self.sweep(*GRID, "--jobs", "2")
        trials = self.results()
        self.assertEqual([1, 3], [trial["trial"] for trial in trials[:2]], told)
        self.assertEqual(["finished", "stopped", "stopped", "stopped"], [trial["state"] for trial in trials])
        self.assertEqual([40, 20, 10, 10], [trial["steps"] for trial in trials])
        self.tandem("train", "config.yaml", "--set", "train.lr=2e-3", "--run-dir", "plain")
        self.assert_equal_runs(self.directory / "plain", self.directory / "sweep/trial-001")
        self.tandem("train", "sweep/best.yaml", "--run-dir", "again")
        self.assert_equal_runs(self.directory / "plain", self.directory / "again")
        xml.etree.ElementTree.parse(self.directory / "sweep/sweep.svg")
        before = tandem_run.snapshot(self.directory / "sweep")
        self.assertEqual(told.out, self.sweep(*GRID, "--jobs", "2").out)
        self.assertEqual(before, {**tandem_run.snapshot(self.directory / "sweep"), "lock": before["lock"]}, "nothing runs twice")
        self.refuse(BAD_USAGE, ["sweep: has another sweep in it"], "sweep", "config.yaml", "--dir", "sweep", "--grid", "train.lr=1,2")

    def test_an_interrupted_one_goes_on(self):
        self.write_config(config(GPT2, train={"steps": 400}))
        words = ("sweep", "config.yaml", "--dir", "sweep", "--grid", "train.lr=2e-3,1e-6")
        process = self.start(*words)
        self.wait_for((self.directory / "sweep/trial-000/metrics.jsonl").exists, "the first trial")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(INTERRUPTED, process.wait(60))
        self.tandem(*words)
        self.assertEqual([(0, "finished"), (1, "stopped")], [(trial["trial"], trial["state"]) for trial in self.results()])

    def test_a_trial_that_cannot_run_is_out(self):
        told = self.sweep("--grid", "data.train=builtin:stories,none.txt", "--halving", "0", steps=4, expect=None)
        self.assertEqual(0, told.code, told)
        self.assertEqual([("finished", 0), ("failed", 1)], [(trial["state"], trial["trial"]) for trial in self.results()])
        self.assertIn("none.txt", self.results()[1]["note"])

    def test_a_trial_that_ends_by_patience_is_compared_by_what_it_reached(self):
        self.write_config(config(GPT2, train={"steps": 40, "eval_every": 4, "patience": 2, "min_delta": 0.05}))
        words = ("sweep", "config.yaml", "--dir", "sweep", "--grid", "train.lr=0,2e-3", "--halving", "0")
        told = self.tandem(*words)
        last, first = sorted(self.results(), key=lambda trial: trial["trial"])
        self.assertEqual((12, "finished", "ended by train.patience"), (last["steps"], last["state"], last["note"]), told)
        self.assertGreater(last["loss"], first["loss"])
        self.assertEqual(1, self.results()[0]["trial"])
        self.assertIn("12/40", told.out)
        before = tandem_run.snapshot(self.directory / "sweep")
        self.tandem(*words)
        self.assertEqual(before, {**tandem_run.snapshot(self.directory / "sweep"), "lock": before["lock"]}, "nothing runs twice")

    def test_refusals(self):
        self.write_config(config(GPT2))
        for words, parts in ((("--grid", "train.lrr=1,2"), ["train.lrr", "train.lr"]), (("--grid", "train.lr"), ["--grid train.lr: expected KEY=A,B"]),
                             (("--grid", "train.lr=1,2", "--halving", "1"), ["--halving 1"])):
            with self.subTest(words=words):
                self.refuse(BAD_USAGE, parts, "sweep", "config.yaml", *words)
        self.refuse(BAD_USAGE, ["--grid"], "sweep", "config.yaml")


if __name__ == "__main__":
    tandem_run.main()
