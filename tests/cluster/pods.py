"""What an Indexed Job of `tandem submit --kubernetes` does when pods go: the words and variables of its manifest, run as processes on
two nodes by the rules of a Job: a pod that fails is made anew with its number, until all have ended well.

No Kubernetes is needed, and none is shown to work (tests/cluster/kubernetes.py does that): nodes are network namespaces whose
names are those that the headless service would give. Run by scripts/test --cluster.
"""

import os
import pathlib
import secrets
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "dist"))
import network
import ranks
import tandem_run
from ranks import LLAMA, RanksTest, config, mesh
from submissions import read_yaml

STEPS, SECONDS, RETRIES = 60, 200, 12


class Pods:
    """The pods of one job. Each is made anew a moment after it failed, as Kubernetes does (its back-off is longer)."""

    def __init__(self, test, job, config_path, run):
        self.test, self.failures, self.outputs = test, 0, {}
        container = job["spec"]["template"]["spec"]["containers"][0]
        self.words = [str(config_path) if word.endswith("/config.yaml") else word for word in container["args"]] + ["--run-dir", str(run)]
        secret = test.directory / "secret"  # what the volume holds
        secret.touch(0o600)
        secret.write_text(secrets.token_hex(32))
        self.variables = {variable["name"]: str(secret) for variable in container["env"] if variable["name"] == "TANDEM_SECRET_FILE"}
        self.codes = {index: None for index in range(job["spec"]["completions"])}
        self.processes = {}
        for index in self.codes:
            self.start(index)

    def start(self, index):
        output = self.test.directory / f"pod-{index}.log"
        with open(output, "ab") as log:
            self.processes[index] = subprocess.Popen(
                self.test.at(index, tandem_run.program(), *self.words), cwd=self.test.directory, stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, env={**os.environ, **self.variables, "PET_NODE_RANK": str(index), "TANDEM_CONNECT_TIMEOUT_S": "30"})
        process = self.processes[index]
        self.test.addCleanup(process.wait)
        self.test.addCleanup(lambda: process.poll() is None and process.kill())

    def reconcile(self):
        """Whether all have ended well."""
        for index, process in self.processes.items():
            code = process.poll()
            if code is None or self.codes[index] == 0:
                continue
            self.codes[index] = code
            if code != 0:
                self.failures += 1
                time.sleep(0.5)
                self.start(index)
        return all(code == 0 for code in self.codes.values())

    def logs(self):
        return "".join(f"--- pod {index}\n{(self.test.directory / f'pod-{index}.log').read_text(errors='replace')[-3000:]}"
                       for index in self.codes)


class Disruptions(RanksTest):
    num_nodes = 2

    def setUp(self):
        super().setUp()
        # As in pods: the own name is the own address, the others' come from the service. The file is each node's own.
        hosts = "127.0.0.1 localhost\n" + "".join(f"{node.address} run-{number}.run run-{number}\n"
                                                  for number, node in enumerate(self.network.nodes))
        for node in self.network.nodes:
            before = subprocess.run(node.enter("cat", "/etc/hosts"), capture_output=True, text=True, check=True).stdout
            self.write_hosts(node, hosts)
            self.addCleanup(self.write_hosts, node, before)

    def write_hosts(self, node, text):
        network.run(*node.enter("sh", "-c", 'printf %s "$0" > /etc/hosts', text))

    def disturb(self, index, how):
        content = config(LLAMA, parallel={**mesh("fsdp", data=2), "timeout": 20}, checkpoint={"every": 1},
                         train={"steps": STEPS, "batch": 96, "micro_batch": 1})
        path = self.write_config(content)
        *_, job = read_yaml(self.tandem("submit", "--kubernetes", "--dry-run", "--image", "a", "--nodes", 2, "--secret", "meet", "--name",
                                        "run", "--grace", 20, path).out)
        alone = self.train_on_one_node(content, "alone")
        run = self.directory / "run"
        pods = Pods(self, job, path, run)
        metrics = run / "metrics.jsonl"
        self.wait_for(lambda: metrics.exists() and metrics.read_bytes().count(b"\n") >= 4, "steps")
        pods.processes[index].send_signal(how)
        deadline = time.monotonic() + SECONDS
        while not pods.reconcile():
            self.assertLess(time.monotonic(), deadline, pods.logs())
            self.assertLess(pods.failures, RETRIES, pods.logs())
            time.sleep(0.1)
        self.assertGreaterEqual(pods.failures, 1)
        self.assert_equal_runs(alone, run)
        return pods

    def test_evicted(self):
        """SIGTERM and time to save."""
        self.disturb(1, signal.SIGTERM)

    def test_the_first_pod_evicted(self):
        self.disturb(0, signal.SIGTERM)

    def test_lost(self):
        """As with a node that is gone."""
        self.disturb(1, signal.SIGKILL)

    def test_the_first_pod_lost(self):
        self.disturb(0, signal.SIGKILL)


if __name__ == "__main__":
    ranks.main()
