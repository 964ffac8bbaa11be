"""Nodes for tests: network namespaces with addresses and host names of their own, joined by a switch.

A namespace lives as long as the process that holds it, which ends with the test even if that is killed, so nothing
is left behind. Nodes share the file system and the kernel, but no network: what passes between two of them crosses
a cable that can be pulled.

A test file is run as `x.py --tandem PATH [--nodes N [--whole]] [unittest arguments]`. One node is this machine as it is; the
tests of a file share their nodes, and an etcd at the switch.
"""

import argparse
import contextlib
import functools
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
import tandem_run  # noqa: E402

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
        """The command line that runs a command there, in the working directory of who runs it."""
        return ["nsenter", f"--target={self.holder.pid}", *KINDS, "--wd=.", "--", *map(str, command)]

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


# Tests give up on a store after a second or so: it answers before they begin.
WAIT_FOR_HEALTH = """
import sys, time, urllib.request
begun = time.monotonic()
while True:
    try:
        urllib.request.urlopen(sys.argv[1] + "/health", timeout=5)
        break
    except OSError as error:
        if time.monotonic() - begun > 30:
            sys.exit(f"etcd did not start: {error}")
        time.sleep(0.05)
"""


class Network:
    """Nodes, and a switch with an etcd."""

    store = f"{Switch.address}:{STORE_PORT}"

    def __init__(self, num_nodes):
        missing = [f"{tool} (package {package})" for tool, package in TOOLS.items() if not shutil.which(tool)]
        if missing:
            raise OSError(f"{', '.join(missing)} not found")
        if not shutil.which("etcd"):
            raise OSError("etcd (package etcd-server) not found")
        self.switch = Switch()
        self.nodes = [Node(number, num_nodes, self.switch) for number in range(num_nodes)]
        self.folder = tandem_run.temporary_directory()
        client, peer = f"http://{self.store}", f"http://{Switch.address}:{STORE_PORT + 1}"
        self.etcd = subprocess.Popen(
            self.switch.enter("etcd", "--data-dir", self.folder.name, "--listen-client-urls", client,
                              "--advertise-client-urls", client, "--listen-peer-urls", peer,
                              "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}",
                              "--log-level", "error", "--unsafe-no-fsync"),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        subprocess.run(self.switch.enter(sys.executable, "-c", WAIT_FOR_HEALTH, client), check=True)

    def close(self):
        self.etcd.kill()
        self.etcd.wait()
        self.folder.cleanup()
        for namespace in (*self.nodes, self.switch):
            namespace.close()


_num_nodes = 1
_whole = False
_networks = {}  # by number of nodes


def shared_network(num_nodes):
    """Made for the first test that asks, and closed after the last one of its module: a file may run those of others."""
    if num_nodes not in _networks:
        try:
            _networks[num_nodes] = Network(num_nodes)
        except OSError as error:
            raise unittest.SkipTest(f"nodes cannot be made here (root can): {error}") from error
        unittest.addModuleCleanup(lambda: _networks.pop(num_nodes).close())
    return _networks[num_nodes]


def on_several_nodes():
    return _num_nodes > 1


class NodesTest(tandem_run.TandemTest):
    num_nodes = None  # as many as the command line says
    backend = "etcd"
    one_node_only = ""  # why the tests of a class say nothing about several nodes

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if cls.num_nodes is None:
            cls.num_nodes = _num_nodes
        if cls.num_nodes > 1:
            if cls.one_node_only:
                raise unittest.SkipTest(cls.one_node_only)
            cls.network = shared_network(cls.num_nodes)

    def at(self, node, *command):
        """The command line that runs a command on a node."""
        return self.network.nodes[node].enter(*command) if self.num_nodes > 1 else [*map(str, command)]

    def address(self, node):
        return self.network.nodes[node].address if self.num_nodes > 1 else "127.0.0.1"

    def place(self, node, number):
        """A launcher's flags for its place among the nodes of the test's launch with this number."""
        if self.num_nodes == 1:
            return ()
        endpoint = {"etcd": self.network.store, "static": "node-0:29400", "file": self.directory / "meet"}[self.backend]
        secret = ("--rdzv-secret-file", self.secret_file()) if self.backend == "static" else ()
        return ("--nnodes", self.num_nodes, "--node-rank", node, "--monitor-interval", 0.1,
                "--rdzv-backend", self.backend, "--rdzv-endpoint", endpoint,
                "--rdzv-id", f"{self.directory.name}-{number}", *secret)

    def secret_file(self):
        path = self.directory / "secret"
        if not path.exists():
            path.touch(0o600)
            path.write_text("what no stranger knows\n")
        return path

    @contextlib.contextmanager
    def listener(self, node):
        """Another program's server on a node; its port."""
        serve = ("import socket, sys; s = socket.create_server(('', 0)); print(s.getsockname()[1], flush=True); "
                 "sys.stdin.read()")
        with subprocess.Popen(self.at(node, "python3", "-c", serve), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              text=True) as server:
            yield int(server.stdout.readline())

    def shares(self, num_ranks):
        """How many ranks each node has: the same number, and the first ones what is left over."""
        return [(num_ranks + self.num_nodes - 1 - node) // self.num_nodes for node in range(self.num_nodes)]


def one_node_will_do(test):
    """For tests of a step's arithmetic, which knows no nodes: each message they send, another test sends between nodes."""
    @functools.wraps(test)
    def run(self):
        if self.num_nodes > 1 and not _whole:
            self.skipTest("arithmetic knows no nodes; --whole runs it there too")
        test(self)
    return run


def main():
    global _num_nodes, _whole
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--whole", action="store_true", help="on several nodes also what only one_node_will_do")
    known, sys.argv[1:] = parser.parse_known_args()
    _num_nodes, _whole = known.nodes, known.whole
    tandem_run.main()
