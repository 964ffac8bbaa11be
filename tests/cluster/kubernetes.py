"""`tandem submit --kubernetes` on a real Kubernetes of two nodes: pods train as a user without rights on a root file system that cannot be
written to, and a run goes on whatever becomes of its pods and nodes.

Skipped where there can be no such cluster (root and Debian's packages are needed). Run by scripts/test --cluster. The cluster is
Kubernetes 1.20, which does not know podFailurePolicy and podReplacementPolicy: kubernetes_schema.py looks after those.
"""

import base64
import json
import pathlib
import subprocess
import sys
import time

from kubernetes_run import NODES, USER, KubernetesTest, ranks, tandem_run
from ranks import LLAMA, config, mesh
from tandem_run import BAD_USAGE, FAILED, read_events

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "store"))
import s3_server  # noqa: E402


class Runs(KubernetesTest):
    def content(self, steps=8, data=2, **more):
        """Steps of about a tenth of a second, of which one in five is saved."""
        return config(LLAMA, parallel={**mesh("fsdp", data=data), "timeout": 20}, checkpoint={"every": 5, **more.pop("checkpoint", {})},
                      train={"steps": steps, "batch": 96, "micro_batch": 1, "schedule": "constant"}, **more)

    def claimed(self, content, **options):
        return self.submit(content, "--claim", f"{self.name}:/work", **options)

    def check_curve(self, pods):
        content = self.content(data=pods)
        local = self.train_on_one_node(content, "local")
        run = self.claimed(content, nodes=pods)
        self.assertIn("step", self.at_switch("logs", self.name, "--follow").out)
        status = self.wait_for_end()
        self.assertEqual(list(range(pods)), [pod["index"] for pod in status["pods"]])
        self.assertEqual({"node-0", "node-1"}, {pod["node"] for pod in status["pods"]})
        self.assert_equal_runs(local, run)
        self.assertEqual(pods, tandem_run.read_summary(run)["world_size"])

    def test_two_pods_give_the_local_curve(self):
        self.check_curve(2)
        for pod in self.cluster.pods(f"app.kubernetes.io/instance={self.name}"):
            self.assertTrue(pod["spec"]["securityContext"]["runAsNonRoot"])
        for path in (self.shared / "run").rglob("*"):
            self.assertEqual(USER, path.lstat().st_uid, path)
        self.assertIn("Complete", self.at_switch("status", self.name).out)
        self.assertIn("is cancelled", self.at_switch("cancel", self.name).out)
        for kind in ("configmap", "secret", "service", "job"):
            name = f"{self.name}-secret" if kind == "secret" else self.name
            self.cluster.wait(lambda kind=kind, name=name: self.cluster.get(kind, name) is None, f"the {kind} to go with its job")

    def test_four_pods_give_the_local_curve(self):
        self.check_curve(4)

    def test_status_logs_and_cancel_of_a_running_job(self):
        run = self.claimed(self.content(steps=100000))
        self.wait_for_steps(run, 3)
        status = self.status()
        self.assertEqual(("Running", [0, 1]), (status["state"], [pod["index"] for pod in status["pods"]]))
        follower = subprocess.Popen(self.cluster.net.switch.enter(tandem_run.program(), "logs", self.name, "--follow"), cwd=self.directory,
                                    env={**tandem_run.os.environ, **self.variables}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertIn("step", follower.stdout.readline() + follower.stdout.readline() + follower.stdout.readline() + follower.stdout.readline())
        self.at_switch("logs", self.name, "--node", 1)
        # Another job of this name is refused while this one is there, and leaves it alone.
        again = self.at_switch("submit", "--kubernetes", "--image", self.cluster.image, "--name", self.name, self.directory / "config.yaml",
                               "--set", "parallel.strategy=single", "--set", "parallel.data=1", expect=None)
        self.assertEqual(BAD_USAGE, again.code, again)
        self.assertIn("is cancelled", self.at_switch("cancel", self.name).out)
        follower.communicate(timeout=tandem_run.DEADLINE_S)
        self.cluster.wait(lambda: not self.cluster.pods(f"app.kubernetes.io/instance={self.name}"), "pods to end")
        steps = self.num_steps(run)
        saved = int((run / "checkpoints/latest").readlink().name.removeprefix("step-"))
        self.assertEqual(steps, saved, "pods had time to save")
        self.assertIn("has ended already", self.at_switch("cancel", self.name).out)

    def disturb(self, how, steps=200):
        """A run that is disturbed when it has a few steps; `how` is given the pod with index 1. Returns its directory."""
        content = self.content(steps)
        local = self.train_on_one_node(content, "local")
        run = self.claimed(content)
        self.wait_for_steps(run, 8)
        how(run)
        self.wait_for_end()
        self.assert_equal_runs(local, run)
        self.assertGreaterEqual(len(read_events(run, "resume")), 1)
        return run

    def replace(self, index):
        def how(_run):
            name = self.pod(index)["metadata"]["name"]
            self.cluster.kubectl("delete", "pod", name, "--wait=false")
            self.cluster.wait(lambda: self.cluster.get("pod", name) is None, "the pod to go")
        return how

    def test_a_deleted_pod_comes_back(self):
        self.disturb(self.replace(1))

    def test_the_first_pod_deleted(self):
        """Where the others meet."""
        self.disturb(self.replace(0))

    def test_a_drained_node(self):
        node = {}

        def drain(_run):
            node["name"] = self.pod(1)["spec"]["nodeName"]
            self.addCleanup(self.cluster.kubectl, "uncordon", node["name"])
            self.cluster.kubectl("drain", node["name"], "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=100s")
        run = self.disturb(drain)
        self.assertGreaterEqual(len(read_events(run, "interrupt")), 1, "SIGTERM and time to save")
        self.assertNotEqual(node["name"], self.pod(1)["spec"]["nodeName"])

    def number_of_node(self, index):
        return int(self.pod(index)["spec"]["nodeName"].removeprefix("node-"))

    def test_a_lost_node(self):
        def lose(_run):
            number = self.number_of_node(1)
            self.cluster.lose_node(number)

            def bring_back():
                self.cluster.start_node(number)
                self.cluster.wait(lambda: len(self.cluster.ready_nodes()) == NODES, "the node")
            self.addCleanup(bring_back)
        self.disturb(lose)

    def test_a_lost_kubelet(self):
        """Its pod runs on, and a second one with its number comes on another node."""
        def lose(_run):
            number = self.number_of_node(1)
            self.cluster.lose_kubelet(number)

            def bring_back():
                self.cluster.return_kubelet(number)
                self.cluster.wait(lambda: len(self.cluster.ready_nodes()) == NODES, "the node")
            self.addCleanup(bring_back)
            self.cluster.wait(lambda: len(self.cluster.ready_nodes()) < NODES, "the loss to be noticed")
        self.disturb(lose, steps=1500)

    def test_hostile_values_on_a_real_server(self):
        hostile = "it's \"here\" $(touch hit) `touch hit` ; # & | \\\nsecond: line"
        content = self.content(steps=2, data=1)
        content["parallel"] = {"strategy": "single"}
        path = self.write_config(content, "it's $(touch hit).yaml")
        result = self.at_switch("submit", "--kubernetes", "--image", self.cluster.image, "--name", hostile, "--claim", f"{self.name}:/work", path,
                                "--run-dir", hostile)
        name = result.out.strip()
        self.name, claim = name, self.name
        self.addCleanup(setattr, self, "name", claim)
        self.assertRegex(name, r"^[a-z][-a-z0-9]*$")
        self.wait_for_end()
        self.assertEqual(2, self.num_steps(self.shared / hostile))
        self.assertEqual([], list(self.shared.glob("**/hit")) + list(self.directory.glob("hit")))

    def test_what_the_server_refuses_is_said_and_nothing_is_left(self):
        path = self.write_config(self.content(data=2))
        for words, part in ((("--namespace", "nowhere"), "nowhere"), (("--service-account", "nobody", "--namespace", "nowhere"), "nowhere")):
            result = self.at_switch("submit", "--kubernetes", "--image", "a", "--name", self.name, "--nodes", 2, path, *words, expect=None)
            self.assertIn(result.code, (FAILED, BAD_USAGE))
            self.assert_one_line_error(result, result.code, part)
        for kind in ("configmap", "secret", "service", "job"):
            self.assertIsNone(self.cluster.get(kind, self.name))


class Stores(KubernetesTest):
    """S3 as a pod of the cluster; no volume: what pods had on their disks goes with them."""

    def setUp(self):
        super().setUp()
        self.store = self.start_s3()

    def start_s3(self):
        try:
            modules = s3_server.install(s3_server.cache_folder())
        except s3_server.Unavailable as error:
            self.skipTest(str(error))
        folders = {"usr": "/usr", "lib": "/lib", "lib64": "/lib64", "etc": "/etc", "modules": str(modules)}
        container = {"name": "s3", "image": "busybox:local", "command": ["/usr/bin/python3", "-c",
                     "from moto.server import main; main(['-H', '0.0.0.0', '-p', '9000'])"],
                     "env": [{"name": "PYTHONPATH", "value": "/modules"}, {"name": "INITIAL_NO_AUTH_ACTION_COUNT", "value": "3"},
                             {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"}],
                     "volumeMounts": [{"name": name, "mountPath": f"/{name}", "readOnly": True} for name in folders]}
        self.cluster.apply(
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "s3", "namespace": "default", "labels": {"app": "s3"}},
             "spec": {"hostname": "s3", "subdomain": "s3", "securityContext": {"runAsUser": USER, "runAsNonRoot": True}, "containers": [container],
                      "volumes": [{"name": name, "hostPath": {"path": path}} for name, path in folders.items()]}},
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s3", "namespace": "default"},
             "spec": {"clusterIP": "None", "selector": {"app": "s3"}}})
        self.addCleanup(self.cluster.kubectl, "delete", "pod,service", "s3", "--grace-period=0", "--force")
        self.cluster.wait(lambda: (self.cluster.get("pod", "s3") or {}).get("status", {}).get("podIP"), "S3's pod")
        self.endpoint = f"http://{self.cluster.get('pod', 's3')['status']['podIP']}:9000"
        made = {}

        def make_user():
            done = subprocess.run(self.cluster.net.switch.enter(s3_server.PYTHON, "-c", s3_server.MAKE_USER, self.endpoint, "bucket"),
                                  env={**tandem_run.os.environ, "PYTHONPATH": str(modules)}, capture_output=True, text=True, timeout=120)
            made["keys"] = done.stdout
            return done.returncode == 0
        self.cluster.wait(make_user, "S3")
        key, secret = json.loads(made["keys"])
        self.keys = {"AWS_ENDPOINT_URL": self.endpoint, "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret,
                     "AWS_EC2_METADATA_DISABLED": "true"}
        inside = {**self.keys, "AWS_ENDPOINT_URL": "http://s3.default.svc.cluster.local:9000"}
        data = {name: base64.b64encode(value.encode()).decode() for name, value in inside.items()}
        self.cluster.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s3-keys", "namespace": "default"}, "data": data})
        return "s3://bucket/run"

    def test_checkpoints_in_the_cluster_outlive_their_pods(self):
        content = config(LLAMA, parallel={**mesh("fsdp", data=2), "timeout": 20}, checkpoint={"every": 5, "store": self.store},
                         train={"steps": 200, "batch": 96, "micro_batch": 1, "schedule": "constant"})
        alone = {**content, "checkpoint": {"every": 5}}
        local = self.train_on_one_node(alone, "local")
        self.submit(content, "--env-secret", "s3-keys")

        def saved():
            listed = self.at_switch("inspect", f"{self.store}/latest", expect=None, env=self.keys)
            return listed.code == 0
        self.cluster.wait(saved, "a checkpoint in the store", 300)
        for index in (1, 0):  # both: no disk is left that knows of the run
            name = self.pod(index)["metadata"]["name"]
            self.cluster.kubectl("delete", "pod", name, "--wait=false", "--grace-period=0", "--force")
        self.wait_for_end()
        self.at_switch("inspect", f"{self.store}/latest", "--compare", local / "checkpoints/latest", env=self.keys)
        told = self.at_switch("logs", self.name).out + self.cluster.kubectl("get", "job", self.name, "-o", "json")
        for name in ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"):
            self.assertNotIn(self.keys[name], told)
        self.assertIn("resumed", self.at_switch("logs", self.name).out)


if __name__ == "__main__":
    ranks.main()
