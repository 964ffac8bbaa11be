"""`tandem submit --kubernetes` on a real cluster: pods train as a user without rights on a root file system that cannot be written to.

The cluster is one that you have (kind, k3s, or any other for tests), named by the environment; without, the suite is skipped:

    TANDEM_TEST_KUBECONFIG  its kubeconfig, with a token or certificates
    TANDEM_TEST_IMAGE       an image of this program that its nodes have: scripts/image packs one, `ctr images import` takes it
    TANDEM_TEST_FOLDER      a folder that this machine and all nodes share: runs are written there
"""

import json
import os
import pathlib
import ssl
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "dist"))
import ranks
import tandem_run
from ranks import LLAMA, RanksTest, config, mesh
from submissions import read_yaml

CONFIG, IMAGE, FOLDER = (os.environ.get(f"TANDEM_TEST_{name}") for name in ("KUBECONFIG", "IMAGE", "FOLDER"))
USER = 65532  # of the pods
SECONDS = 240


class Api:
    """As much of a client as the tests need beside tandem's own."""

    def __init__(self, path):
        (content,) = read_yaml(pathlib.Path(path).read_text())
        cluster, user = content["clusters"][0]["cluster"], content["users"][0]["user"]
        self.server, self.token = cluster["server"], user.get("token")
        self.context = ssl.create_default_context(cafile=cluster.get("certificate-authority"))
        if "client-certificate" in user:
            self.context.load_cert_chain(user["client-certificate"], user["client-key"])

    def ask(self, method, path, body=None):
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {self.token}"} if self.token else {})}
        request = urllib.request.Request(self.server + path, json.dumps(body).encode() if body else None, headers, method=method)
        try:
            with urllib.request.urlopen(request, context=self.context, timeout=30) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise AssertionError(f"{method} {path}: {error.read().decode()}") from error


class Kubernetes(RanksTest):
    one_node_only = "its nodes are the cluster's"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if not (CONFIG and IMAGE and FOLDER):
            raise unittest.SkipTest("TANDEM_TEST_KUBECONFIG, TANDEM_TEST_IMAGE and TANDEM_TEST_FOLDER name no cluster")
        cls.api = Api(CONFIG)

    def setUp(self):
        super().setUp()
        self.shared = pathlib.Path(tempfile.mkdtemp(prefix="tandem-", dir=FOLDER))
        os.chown(self.shared, USER, USER)
        self.name = self.shared.name.replace("_", "-").lower()
        self.env = {"KUBECONFIG": CONFIG, "XDG_STATE_HOME": str(self.directory / "state")}
        self.addCleanup(self.remove_all)
        claim = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
        self.api.ask("POST", "/api/v1/persistentvolumes", {
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": self.name},
            "spec": {**claim, "capacity": {"storage": "1Gi"}, "hostPath": {"path": str(self.shared)},
                     "persistentVolumeReclaimPolicy": "Retain"}})
        self.api.ask("POST", "/api/v1/namespaces/default/persistentvolumeclaims", {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": self.name},
            "spec": {**claim, "volumeName": self.name, "resources": {"requests": {"storage": "1Gi"}}}})

    def remove_all(self):
        for path in (f"/apis/batch/v1/namespaces/default/jobs/{self.name}?propagationPolicy=Background",
                     f"/api/v1/namespaces/default/persistentvolumeclaims/{self.name}", f"/api/v1/persistentvolumes/{self.name}"):
            self.api.ask("DELETE", path)

    def content(self, steps, batch):
        return config(LLAMA, parallel=mesh("fsdp", data=2), checkpoint={"every": 1}, train={"steps": steps, "batch": batch,
                                                                                             "micro_batch": 1})

    def submit(self, content):
        path = self.write_config(content)
        self.tandem("submit", "--kubernetes", "--image", IMAGE, "--name", self.name, "--nodes", 2, "--claim", f"{self.name}:/work",
                    "--cpus-per-node", 1, "--grace", 20, "--shm", "64Mi", path, "--run-dir", "run", env=self.env)
        return self.shared / "run"

    def status(self):
        return json.loads(self.tandem("status", self.name, "--json", env=self.env).out)

    def wait_for_end(self):
        deadline = time.monotonic() + SECONDS
        while (status := self.status())["state"] not in ("Complete", "Failed"):
            self.assertLess(time.monotonic(), deadline, f"{status}\n{self.tandem('logs', self.name, env=self.env).out}")
            time.sleep(1)
        self.assertEqual("Complete", status["state"], status)
        return status

    def test_two_pods_give_the_local_curve(self):
        content = self.content(steps=8, batch=8)
        local = self.train_on_one_node(content, "local")
        run = self.submit(content)
        self.assertIn("step 8", self.tandem("logs", self.name, "--follow", env=self.env).out)
        self.wait_for_end()
        self.assert_equal_runs(local, run)
        pod = self.api.ask("GET", f"/api/v1/namespaces/default/pods?labelSelector=app.kubernetes.io/instance%3D{self.name}")["items"][0]
        self.assertTrue(pod["spec"]["securityContext"]["runAsNonRoot"])
        self.assertIn("is cancelled", self.tandem("cancel", self.name, env=self.env).out)
        deadline = time.monotonic() + SECONDS
        while self.api.ask("GET", f"/api/v1/namespaces/default/configmaps/{self.name}"):
            self.assertLess(time.monotonic(), deadline, "the config outlives its job")
            time.sleep(0.5)

    def test_a_deleted_pod_comes_back_and_the_run_goes_on(self):
        content = self.content(steps=60, batch=96)
        local = self.train_on_one_node(content, "local")
        for index in (1, 0):  # the second of them is where the nodes meet
            with self.subTest(index=index):
                run = self.submit(content)
                metrics = run / "metrics.jsonl"
                self.wait_for(lambda: metrics.exists() and metrics.read_bytes().count(b"\n") >= 3, "steps")
                (pod,) = [pod for pod in self.status()["pods"] if pod["index"] == index]
                self.api.ask("DELETE", f"/api/v1/namespaces/default/pods/{pod['name']}")
                status = self.wait_for_end()
                self.assertNotIn(pod["name"], [one["name"] for one in status["pods"]])
                self.assert_equal_runs(local, run)
                self.tandem("cancel", self.name, env=self.env)
                self.wait_for(lambda: self.api.ask("GET", f"/apis/batch/v1/namespaces/default/jobs/{self.name}") is None, "the end")
                run.rename(self.shared / f"run-{index}")


if __name__ == "__main__":
    ranks.main()
