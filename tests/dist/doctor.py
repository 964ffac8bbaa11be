"""`tandem doctor`: what it says of this machine is what the machine says, and between nodes it finds the link that was slowed.

Nodes are network namespaces (network.py); a link is slowed with a token bucket (tc tbf) in one direction of one pair alone.
"""

import json
import os
import resource
import shutil
import subprocess
import unittest

import network
import ranks
import tandem_run
from ranks import RanksTest
from tandem_run import BAD_USAGE, DONE, FAILED, TandemTest

SLOW_BYTES = 5e6  # a second


class ThisNode(TandemTest):
    def report(self, *arguments, expect=DONE, limit=None):
        command = [tandem_run.program(), "doctor", "--json", "--disk", str(self.directory), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120,
                              preexec_fn=(lambda: resource.setrlimit(*limit)) if limit else None)
        self.assertEqual(expect, done.returncode, done.stdout + done.stderr)
        return json.loads(done.stdout)

    def test_figures_are_the_machines_own(self):
        node = self.report()["node"]
        self.assertEqual(len(os.sched_getaffinity(0)), node["processor"]["cores"])
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.assertEqual(soft, node["limits"]["open_files"])
        disk = os.statvfs("/dev/shm")
        self.assertEqual(disk.f_blocks * disk.f_frsize, node["memory"]["shm_bytes"])
        self.assertGreater(node["disk"]["write_bytes_per_s"], 0)
        chosen = node["network"]["chosen"]
        if chosen["interface"]:
            self.assertEqual("=" + chosen["interface"], node["network"]["settings"]["NCCL_SOCKET_IFNAME"])
            self.assertIn(chosen["address"], chosen["why"])
        self.assertEqual([], [path for path in self.directory.iterdir()])

    def test_what_would_break_a_run_is_1_and_says_what_to_do(self):
        report = self.report(expect=FAILED, limit=(resource.RLIMIT_NOFILE, (200, 200)))
        self.assertEqual([("limits", "ulimit -n 65536")],
                         [(found["about"], found["do"]) for found in report["findings"] if found["severity"] == "breaks"])

    def test_a_variable_that_names_no_interface(self):
        done = self.tandem("doctor", "--disk", self.directory, env={"NCCL_SOCKET_IFNAME": "nowhere9"}, expect=FAILED)
        self.assertIn("breaks  network: NCCL_SOCKET_IFNAME=nowhere9 names no interface that is up", done.out)

    def test_a_folder_that_is_not_there_and_a_cluster_of_one(self):
        self.refuse(BAD_USAGE, ["--disk", "missing", "no such folder"], "doctor", "--disk", self.directory / "missing")
        self.refuse(BAD_USAGE, ["--cluster", "tandem launch", "srun"], "doctor", "--cluster")


class Nodes(RanksTest):
    num_nodes = 3
    backend = "static"

    def slow_down(self, node, peer):
        """What `node` sends to `peer` takes a cable of its own with a narrow end; all else goes as before."""
        if not shutil.which("tc"):
            raise unittest.SkipTest("tc (package iproute2) not found")
        here, port = self.network.nodes[node], f"slow-{node}"
        switch = self.network.switch
        # Who has learnt the way over this cable forgets it, too.
        for other in self.network.nodes:
            self.addCleanup(other.ip, "neighbour", "flush", "dev", "eth0")
        switch.ip("link", "add", port, "type", "veth", "peer", "name", "eth1", "netns", here.holder.pid)
        self.addCleanup(switch.ip, "link", "delete", port)
        switch.ip("link", "set", port, "master", "bridge", "up")
        here.ip("link", "set", "eth1", "up")
        try:
            network.run(*here.enter("tc", "qdisc", "add", "dev", "eth1", "root", "tbf", "rate", f"{SLOW_BYTES * 8:.0f}bit", "burst",
                                    "64kb", "latency", "400ms"))
        except OSError as error:
            raise unittest.SkipTest(f"this kernel slows no links: {error}") from error
        here.ip("route", "add", f"{self.network.nodes[peer].address}/32", "dev", "eth1", "src", here.address)

    def doctor(self, *arguments, num_ranks=3, expect=DONE):
        results = self.start_ranks(num_ranks, "doctor", "--cluster", "--disk", self.directory, *arguments).results()
        self.assertEqual([expect] * 3, [result.code for result in results], "\n".join(map(str, results)))
        return results[0].out

    def test_a_slowed_link_is_found_and_both_ends_are_named(self):
        self.slow_down(1, 2)
        report = json.loads(self.doctor("--json"))
        self.assertEqual(["node-0", "node-1", "node-2"], [node["name"] for node in report["nodes"]])
        self.assertEqual("tcp", report["transport"])
        worst = report["slow_links"][0]
        self.assertEqual(("node-1", "node-2"), (worst["from"], worst["to"]), report["slow_links"])
        # A bucket lets no more through than it is filled with, but for what was in it.
        self.assertLess(worst["bytes_per_s"], 2 * SLOW_BYTES)
        (link,) = [found for found in report["findings"] if found["about"] == "link" and "node-1 (10.99.0.2) to node-2 (10.99.0.3)"
                   in found["what"]]
        self.assertEqual("slows", link["severity"])
        for row in range(3):
            self.assertIsNone(report["bytes_per_s"][row][row])
        text = self.doctor()
        self.assertIn("3 nodes over tcp", text)
        self.assertIn("link: from node-1 (10.99.0.2) to node-2 (10.99.0.3)", text)

    def test_several_ranks_of_a_node_are_one_end(self):
        report = json.loads(self.doctor("--json", num_ranks=6))
        self.assertEqual([0, 2, 4], [node["rank"] for node in report["nodes"]])
        self.assertEqual([], [found for found in report["findings"] if found["severity"] == "breaks"])


if __name__ == "__main__":
    ranks.main()
