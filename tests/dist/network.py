"""Nodes for tests: network namespaces with addresses and host names of their own, joined by a switch.

A namespace lives as long as the process that holds it, which ends with the test even if that is killed, so nothing
is left behind. Nodes share the file system and the kernel, but no network: what passes between two of them crosses
a cable that can be pulled.
"""

import functools
import os
import re
import shutil
import subprocess
import tempfile
import time
import unittest

import ranks
import tandem_run
from ranks import num_processes

KINDS = ("--net", "--uts", "--mount")
TOOLS = {"ip": "iproute2", "unshare": "util-linux", "nsenter": "util-linux", "mount": "mount", "hostname": "hostname"}
DEADLINE_S = 120  # for what happens soon: past it, something hangs
STORE_PORT = 2379


def run(*command):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          timeout=DEADLINE_S)
    if done.returncode != 0:
        raise OSError(f"{' '.join(map(str, command))}: {done.stderr.strip()}")


SETUP = 'hostname "$0" && mount --bind "$1" /etc/hosts && ip link set lo up && echo up && exec cat'


class Namespace:
    def __init__(self, name, hosts=()):
        with tempfile.NamedTemporaryFile("w") as file:
            # As Debian's installer has it: under its own name a machine finds its loopback only.
            file.writelines(f"{line}\n" for line in ("127.0.0.1 localhost", f"127.0.1.1 {name}", *hosts))
            file.flush()
            self.holder = subprocess.Popen(["unshare", *KINDS, "sh", "-c", SETUP, name, file.name], text=True,
                                           stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            if self.holder.stdout.readline() != "up\n":
                _, error = self.holder.communicate()
                raise OSError(error.strip())

    def enter(self, *command):
        """The command line that runs a command there."""
        return ["nsenter", f"--target={self.holder.pid}", *KINDS, "--", *map(str, command)]

    def ip(self, *arguments):
        run(*self.enter("ip", *arguments))

    def close(self):
        self.holder.communicate()


class Switch(Namespace):
    """Has an address itself, for what outlives any node."""

    address = "10.99.0.254"

    def __init__(self):
        super().__init__("switch")
        self.ip("link", "add", "bridge", "type", "bridge")
        self.ip("address", "add", f"{self.address}/24", "dev", "bridge")
        self.ip("link", "set", "bridge", "up")


class Node(Namespace):
    """node-0 is 10.99.0.1, and so on."""

    def __init__(self, number, num_nodes, switch):
        hosts = [f"10.99.0.{other + 1} node-{other}" for other in range(num_nodes) if other != number]
        super().__init__(f"node-{number}", hosts)
        self.address = f"10.99.0.{number + 1}"
        self.switch, self.port = switch, f"port-{number}"
        switch.ip("link", "add", self.port, "type", "veth", "peer", "name", "eth0", "netns", self.holder.pid)
        switch.ip("link", "set", self.port, "master", "bridge", "up")
        self.ip("address", "add", f"{self.address}/24", "dev", "eth0")
        self.ip("link", "set", "eth0", "up")

    def cut(self, inside=False):
        """Pulls the cable or, inside, turns off the node's own end of it."""
        self.set_link("down", inside)

    def join(self, inside=False):
        self.set_link("up", inside)

    def set_link(self, state, inside):
        if inside:
            self.ip("link", "set", "eth0", state)
        else:
            self.switch.ip("link", "set", self.port, state)


class Network:
    def __init__(self, num_nodes):
        missing = [f"{tool} (package {package})" for tool, package in TOOLS.items() if not shutil.which(tool)]
        if missing:
            raise OSError(f"{', '.join(missing)} not found")
        self.switch = Switch()
        self.nodes = [Node(number, num_nodes, self.switch) for number in range(num_nodes)]

    def close(self):
        for namespace in (*self.nodes, self.switch):
            namespace.close()


class Agents:
    """The launchers of one launch, one for each node, and what they and their ranks have said."""

    def __init__(self, logs):
        self.logs = logs
        self.processes, self.told, self.starts = {}, {}, {}  # by node

    def add(self, node, told, start):
        self.told[node], self.starts[node] = told, start
        self.processes[node] = start()

    def start_again(self, node):
        self.processes[node] = self.starts[node]()

    def errors(self, node):
        return self.told[node].read_text(errors="replace")

    def are_running(self):
        return any(process.poll() is None for process in self.processes.values())

    def log(self, rank):
        path = self.logs / f"rank-{rank}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def pid(self, rank):
        """Of the last attempt."""
        return int(re.findall(r"^--- .*, rank \d+, pid (\d+)$", self.log(rank), re.M)[-1])

    def wait(self):
        """Their exit codes."""
        return [process.wait(tandem_run.DEADLINE_S) for process in self.processes.values()]


class NodesTest(ranks.RanksTest):
    """Every launch is one of several nodes, which share its ranks equally."""

    num_nodes = 2
    backend = "etcd"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        try:
            cls.network = Network(cls.num_nodes)
        except OSError as error:
            raise unittest.SkipTest(f"network namespaces cannot be made here (root can): {error}") from error
        cls.addClassCleanup(cls.network.close)
        if not shutil.which("etcd"):
            raise unittest.SkipTest("etcd not found (package etcd-server)")
        cls.start_etcd()

    @classmethod
    def start_etcd(cls):
        folder = tandem_run.temporary_directory()
        cls.addClassCleanup(folder.cleanup)
        client, peer = f"http://{Switch.address}:{STORE_PORT}", f"http://{Switch.address}:{STORE_PORT + 1}"
        server = subprocess.Popen(
            cls.network.switch.enter("etcd", "--data-dir", folder.name, "--listen-client-urls", client,
                                     "--advertise-client-urls", client, "--listen-peer-urls", peer,
                                     "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}",
                                     "--log-level", "error", "--unsafe-no-fsync"),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        cls.addClassCleanup(server.wait)
        cls.addClassCleanup(server.kill)

    def rendezvous(self):
        """The flags by which nodes find each other."""
        self.num_launches += 1
        endpoint = {"etcd": f"{Switch.address}:{STORE_PORT}", "static": "node-0:29400",
                    "file": self.directory / "meet"}[self.backend]
        return ("--rdzv-backend", self.backend, "--rdzv-endpoint", endpoint,
                "--rdzv-id", f"{self.directory.name}-{self.num_launches}")

    def start_node(self, node, told, arguments, env):
        with open(told, "ab") as file:
            process = subprocess.Popen(self.network.nodes[node].enter(tandem_run.program(), "launch", *arguments),
                                       cwd=self.directory, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                       stderr=file, env={**os.environ, **(env or {})})
        self.addCleanup(process.wait)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        return process

    def start_nodes(self, num_ranks, *arguments, nodes=None, env=None):
        """`arguments` are those of the launcher and the program's. All nodes start unless `nodes` says which; the
        launchers end with the test at the latest."""
        flags = ("--nnodes", self.num_nodes, "--nproc-per-node", num_ranks // self.num_nodes,
                 "--monitor-interval", 0.1, *self.rendezvous(), "--log-dir", self.logs())
        agents = Agents(self.logs())
        for node in range(self.num_nodes) if nodes is None else nodes:
            told = self.directory / f"told-{self.num_launches}-{node}"
            start = functools.partial(self.start_node, node, told, (*flags, "--node-rank", node, *arguments), env)
            agents.add(node, told, start)
        return agents

    def launch(self, content, command, *arguments, expect=tandem_run.DONE, env=None):
        """As RanksTest.launch, on all nodes."""
        agents = self.start_nodes(num_processes(content), command, *arguments, env=env)
        codes = agents.wait()
        told = "\n".join(agents.errors(node)[-2000:] for node in range(self.num_nodes))
        self.assertEqual([expect] * self.num_nodes, codes, told)
        return agents

    def train_on_one_node(self, content, run, *arguments):
        """By the usual way, without a network."""
        path = self.write_config(content, f"{run}.yaml")
        super().launch(content, "train", path, "--run-dir", self.directory / run, *arguments)
        return self.directory / run

    def wait_for(self, condition, what):
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            self.assertLess(time.monotonic(), deadline, f"waited in vain for {what}")
            time.sleep(0.005)
