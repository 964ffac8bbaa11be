"""Pipelines whose steps are jobs of a real Slurm's. Run by scripts/test --cluster."""

import os
import subprocess

import cluster_pipeline
import slurm_run
import tandem_run
from tandem_run import FAILED

PRINT = ["/usr/bin/python3", "-c", "import sys; sys.stdout.write(''.join(word + chr(0) for word in sys.argv[1:]))"]
WAIT = ("echo up > up; while [ ! -e go ]; do sleep 0.1; done; cat up > {out}; echo once >> runs")


class SlurmPipeline(cluster_pipeline.ClusterPipeline, slurm_run.SlurmTest):
    keys = {"on": "slurm"}

    def setUp(self):
        super().setUp()
        self.place = self.directory / "it's a place"
        self.place.mkdir()

    def run_there(self, *arguments, **options):
        return self.at_switch(*arguments, **options)

    def start_there(self, *arguments):
        process = subprocess.Popen(self.network.switch.enter(tandem_run.program(), *arguments), cwd=self.directory, text=True,
                                   env={**os.environ, **self.environment}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        return process

    def test_five_steps_give_what_they_give_here(self):
        here = self.directory / "here"
        here.mkdir()
        self.check_five_steps(here)
        self.assertRegex(self.told()["train"]["host"], r"^node-\d$")

    def test_hostile_words_reach_the_program_as_they_are(self):
        self.check_hostile(PRINT)

    def test_a_killed_runner_finds_its_job_again(self):
        steps = {"a": {"run": WAIT, "shell": True, "out": "a.txt"}}
        self.check_killed_runner(steps, lambda: (self.place / "up").exists(), lambda: (self.place / "go").touch())
        self.assertEqual("once\n", (self.place / "runs").read_text())

    def test_an_interrupted_pipeline_cancels_its_jobs(self):
        self.write_steps({"a": {"run": WAIT, "shell": True, "out": "a.txt"}})
        process = self.start_there("pipeline", "run", self.place / "pipeline.yaml")
        self.wait_for(lambda: (self.place / "up").exists(), "the step to run")
        process.terminate()
        self.assertEqual(tandem_run.INTERRUPTED, process.wait(tandem_run.DEADLINE_S))
        self.cluster.wait(lambda: not self.cluster.command("squeue", "-h"), "the job to be gone")

    def test_failures_are_tried_again_and_timeouts_end_jobs(self):
        self.write_steps({"a": {"run": "echo try >> tries; test $(wc -l < tries) = 2 && echo ok > {out}", "shell": True, "out": "a.txt", "retries": 1},
                          "b": {"run": "sleep 1000", "timeout": "3s"}})
        result = self.go("--keep-going", expect=FAILED)
        self.assertIn("b failed: took longer than its timeout", result.err)
        self.assertEqual("ok\n", (self.place / "a.txt").read_text())
        self.cluster.wait(lambda: not self.cluster.command("squeue", "-h"), "the job to be gone")

    def test_a_preempted_step_goes_on(self):
        content = self.settings(300)
        content["parallel"] = {"strategy": "single"}
        content["data"] = {**content["data"], "eval_samples": 6}
        self.write_config(content, "it's a place/base.yaml")
        self.write_steps({"a": {"run": "tandem train base.yaml --run-dir {out}", "in": ["base.yaml"], "out": "run"}}, slurm={"partition": "main"})
        process = self.start_there("pipeline", "run", self.place / "pipeline.yaml")
        self.wait_for(lambda: any(path.read_text().count("\n") >= 20 for path in self.place.glob("artifacts/a-*/run/metrics.jsonl")), "steps", 0.1)
        urgent = self.cluster.command("sbatch", "--parsable", "--partition=urgent", f"--nodes={slurm_run.NODES}", "--exclusive", "--output=/dev/null",
                                      "--wrap", "sleep 3")
        self.wait_for_end(urgent)
        self.assertEqual(0, process.wait(tandem_run.DEADLINE_S), process.stderr.read())
        alone = self.directory / "alone"
        self.tandem("train", self.place / "base.yaml", "--run-dir", alone)
        self.assert_equal_runs(alone, self.place / "run")

    def test_what_slurm_refuses_is_told(self):
        self.write_steps({"a": {"run": "true", "slurm": {"partition": "nowhere"}}})
        result = self.go(expect=FAILED)
        self.assertIn("invalid partition", result.err)


if __name__ == "__main__":
    slurm_run.network.main()
