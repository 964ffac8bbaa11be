"""What the suites on a real Kubernetes share: one cluster of two nodes (kube/kubernetes_cluster.py) for all tests of a file, with an image of
the program under test that scripts/image packs, and a volume for each test that this machine sees too."""

import json
import os
import pathlib
import subprocess
import sys
import time
import unittest

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent / "kube"), str(pathlib.Path(__file__).resolve().parents[1] / "dist")]
import binaries
import network
import ranks
import tandem_run
from kubernetes_cluster import KubernetesCluster

NODES = 2
USER = 65532  # of the pods
SECONDS = 400  # for a job on a busy machine

_cluster = None


def pack_image():
    """Its archive, and the name that it gives the image."""
    done = subprocess.run([tandem_run.REPOSITORY / "scripts/image"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise unittest.SkipTest(f"no image: {done.stderr.strip()}")
    words = done.stdout.split()
    return tandem_run.REPOSITORY / words[-1], words[2].rstrip(",")


def shared_cluster():
    global _cluster
    if _cluster is None:
        net = network.shared_network(NODES)
        archive, image = pack_image()
        folder = tandem_run.temporary_directory()
        unittest.addModuleCleanup(folder.cleanup)
        try:
            _cluster = KubernetesCluster(net, folder.name, [archive])
        except binaries.Unavailable as error:
            raise unittest.SkipTest(f"no Kubernetes here: {error}") from error
        _cluster.image = image
        unittest.addModuleCleanup(_cluster.close)
    return _cluster


class KubernetesTest(ranks.RanksTest):
    num_nodes = NODES

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cluster = shared_cluster()

    def setUp(self):
        super().setUp()
        self.directory.chmod(0o755)
        self.shared = self.directory / "shared"
        self.shared.mkdir()
        os.chown(self.shared, USER, USER)
        self.name = self.id().rsplit(".", 1)[-1].removeprefix("test_").replace("_", "-")[:40].strip("-")
        self.variables = {"KUBECONFIG": str(self.cluster.kubeconfig), "XDG_STATE_HOME": str(self.directory / "state")}
        self.make_claim()
        self.addCleanup(self.remove_all)

    def make_claim(self):
        claim = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
        self.cluster.apply(
            {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": self.name},
             "spec": {**claim, "capacity": {"storage": "1Gi"}, "hostPath": {"path": str(self.shared)}, "persistentVolumeReclaimPolicy": "Retain"}},
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": self.name, "namespace": "default"},
             "spec": {**claim, "volumeName": self.name, "resources": {"requests": {"storage": "1Gi"}}}})

    def remove_all(self):
        self.cluster.try_kubectl("delete", "jobs", "--all", "--wait=false")
        # A pod of a node that was lost waits for it: here nobody does.
        self.cluster.wait(lambda: not json.loads(self.cluster.kubectl("get", "pods", "-l", "app.kubernetes.io/name=tandem", "-o", "json"))["items"],
                          "pods to be gone")
        for kind in ("pvc", "pv"):
            self.cluster.try_kubectl("delete", kind, self.name, "--wait=false")

    def at_switch(self, *arguments, expect=tandem_run.DONE, env=None):
        """tandem as on a machine that reaches the cluster."""
        done = subprocess.run(self.cluster.net.switch.enter(tandem_run.program(), *arguments), cwd=self.directory,
                              env={**os.environ, **self.variables, **(env or {})}, capture_output=True, text=True, errors="replace",
                              timeout=SECONDS, stdin=subprocess.DEVNULL)
        result = tandem_run.Result(done.returncode, done.stdout, done.stderr)
        if expect is not None:
            self.assertEqual(expect, result.code, f"tandem {' '.join(map(str, arguments))}: {result}")
        return result

    def submit(self, content, *arguments, nodes=NODES):
        path = self.write_config(content)
        result = self.at_switch("submit", "--kubernetes", "--image", self.cluster.image, "--name", self.name, "--nodes", nodes,
                                "--grace", 20, "--shm", "64Mi", *arguments, path, "--run-dir", "run")
        self.assertEqual(self.name, result.out.strip())
        return self.shared / "run"

    def status(self):
        return json.loads(self.at_switch("status", self.name, "--json").out)

    def pod(self, index):
        """The one that is there now, not one that is about to go."""
        for pod in self.cluster.pods(f"app.kubernetes.io/instance={self.name}"):
            number = pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"]
            if number == str(index) and "deletionTimestamp" not in pod["metadata"]:
                return pod
        raise AssertionError(f"there is no pod {index}")

    def told(self):
        """All that is known of a job, for a failure's message."""
        pods = self.cluster.try_kubectl("get", "pods", "-o", "wide")
        logs = "".join(f"\n--- {pod['metadata']['name']}\n" + self.cluster.try_kubectl("logs", pod["metadata"]["name"], "--tail", "40")
                       for pod in self.cluster.pods(f"app.kubernetes.io/instance={self.name}"))
        return f"{pods}{logs}"

    def wait_for_end(self, state="Complete"):
        deadline = time.monotonic() + SECONDS
        while (status := self.status())["state"] not in ("Complete", "Failed"):
            if time.monotonic() > deadline:
                self.fail(f"{status}\n{self.told()}")
            time.sleep(1)
        self.assertEqual(state, status["state"], f"{status}\n{self.told()}")
        return status

    def num_steps(self, run):
        metrics = run / "metrics.jsonl"
        return metrics.read_bytes().count(b"\n") if metrics.exists() else 0

    def wait_for_steps(self, run, steps):
        deadline = time.monotonic() + SECONDS
        while self.num_steps(run) < steps:
            if time.monotonic() > deadline:
                self.fail(f"waited in vain for step {steps}\n{self.told()}")
            time.sleep(0.05)
