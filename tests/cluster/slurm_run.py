"""What the suites on a real Slurm share: one cluster of three nodes (slurm_cluster.py) for all tests of a file."""

import os
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "dist"))
import network
import slurm_cluster
import tandem_run
from tandem_run import LLAMA, config

NODES = 3
SECONDS = 150  # for a job on a busy machine

_cluster = None


def shared_cluster():
    global _cluster
    if _cluster is None:
        if slurm_cluster.missing():
            raise unittest.SkipTest(f"Slurm is not installed ({', '.join(slurm_cluster.missing())}): scripts/setup --cluster")
        net = network.shared_network(NODES)
        folder = tandem_run.temporary_directory()
        _cluster = slurm_cluster.SlurmCluster(net, folder.name)
        unittest.addModuleCleanup(folder.cleanup)
        unittest.addModuleCleanup(_cluster.close)
    return _cluster


class SlurmTest(network.NodesTest):
    num_nodes = NODES

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cluster = shared_cluster()

    def setUp(self):
        super().setUp()
        self.environment = {**self.cluster.environment, "XDG_STATE_HOME": str(self.directory / "state"),
                            "TANDEM_CONNECT_TIMEOUT_S": "60"}
        self.addCleanup(self.cancel_all)

    def cancel_all(self):
        self.cluster.command("scancel", "--user", "root")
        self.cluster.wait(lambda: not self.cluster.command("squeue", "-h") and self.cluster.idle() == NODES,
                          "the queue to be empty")

    def at_switch(self, *arguments, expect=0):
        """tandem as on a login node."""
        done = subprocess.run(self.network.switch.enter(tandem_run.program(), *arguments), cwd=self.directory,
                              env={**os.environ, **self.environment}, capture_output=True, text=True, timeout=SECONDS,
                              stdin=subprocess.DEVNULL)
        result = tandem_run.Result(done.returncode, done.stdout, done.stderr)
        if expect is not None:
            self.assertEqual(expect, result.code, result)
        return result

    def submit(self, *arguments):
        return self.at_switch("submit", "--slurm", "--ranks-per-node", "1", *arguments).out.strip()

    def output(self, job):
        files = list(self.directory.glob(f"slurm-{job}.out"))
        return files[0].read_text(errors="replace") if files else ""

    def wait_for_end(self, job, state="COMPLETED"):
        ended = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED")
        self.cluster.wait(lambda: self.cluster.show(job)["JobState"] in ended, f"the end of job {job}", SECONDS)
        self.assertEqual(state, self.cluster.show(job)["JobState"], self.output(job))

    def steps(self, run):
        path = self.directory / run / "metrics.jsonl"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def wait_for_steps(self, run, steps):
        self.cluster.wait(lambda: self.steps(run) >= steps, f"step {steps} of {run}", SECONDS)

    def settings(self, steps, **train):
        return config({**LLAMA, "layers": 2}, train={"steps": steps, "batch": 6, "micro_batch": 2, "schedule": "constant", **train},
                      parallel={"strategy": "fsdp"}, checkpoint={"every": 1000000})

    def undisturbed(self, content):
        """The same mesh on one node, without Slurm."""
        path = self.write_config(content, "alone.yaml")
        self.tandem("launch", "--nproc-per-node", NODES, "train", path, "--run-dir", "alone")
        return self.directory / "alone"
