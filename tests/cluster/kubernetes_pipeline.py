"""Pipelines whose steps are jobs of a real Kubernetes'. Run by scripts/test --cluster."""

import os
import subprocess

import cluster_pipeline
from kubernetes_run import USER, KubernetesTest, ranks, tandem_run
from tandem_run import BAD_USAGE, FAILED


class KubernetesPipeline(cluster_pipeline.ClusterPipeline, KubernetesTest):
    def setUp(self):
        super().setUp()
        self.place = self.shared
        self.keys = {"on": "kubernetes", "kubernetes": {"image": self.cluster.image, "claim": f"{self.name}:{self.shared}", "shm": "64Mi"}}

    def run_there(self, *arguments, **options):
        return self.at_switch(*arguments, **options)

    def start_there(self, *arguments):
        process = subprocess.Popen(self.cluster.net.switch.enter(tandem_run.program(), *arguments), cwd=self.directory, text=True,
                                   env={**os.environ, **self.variables}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        return process

    def test_five_steps_give_what_they_give_here(self):
        here = self.directory / "here"
        here.mkdir()
        self.check_five_steps(here)
        self.assertEqual(USER, (self.place / "export/a").stat().st_uid)
        self.cluster.wait(lambda: not self.cluster.pods("app.kubernetes.io/name=tandem"), "pods to be gone")

    def test_hostile_words_reach_the_program_as_they_are(self):
        """The image has one program: it is told to read a file of that name, and says so."""
        bad = cluster_pipeline.HOSTILE
        self.write_steps({"a": {"run": ["tandem", "explain", "{bad}"]}}, params={"bad": bad})
        self.go(expect=FAILED)
        (log,) = self.place.glob("artifacts/a-*/log")
        self.assertIn("touch hurt", log.read_text())
        self.assertEqual([], list(self.directory.rglob("hurt")))

    def test_a_killed_runner_finds_its_job_again(self):
        content = ranks.config(ranks.LLAMA, train={"steps": 300, "batch": 24, "micro_batch": 1}, checkpoint={"every": 1000})
        self.write_config(content, "shared/base.yaml")
        steps = {"a": {"run": "tandem train base.yaml --run-dir {out}", "in": ["base.yaml"], "out": "run"}}
        self.check_killed_runner(steps, lambda: any(path.read_text().count("\n") >= 5 for path in self.place.glob("artifacts/a-*/run/metrics.jsonl")),
                                 lambda: None)
        self.assertEqual([], tandem_run.read_events(self.place / "run", "resume"), "it was one run")

    def test_what_is_wrong_is_told_before_anything_runs(self):
        for kubernetes, part in (({"image": "a"}, "expected a claim"), ({"claim": f"{self.name}:{self.shared}"}, "kubernetes.image"),
                                 ({"image": "a", "claim": f"{self.name}:{self.shared}", "namespace": "x'y"}, "--namespace")):
            self.write_steps({"a": {"run": "tandem info"}}, kubernetes=kubernetes)
            result = self.go(expect=None)
            self.assertIn(result.code, (BAD_USAGE, FAILED), result)
            self.assertIn(part, result.err)


if __name__ == "__main__":
    ranks.main()
