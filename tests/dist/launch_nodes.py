"""`tandem launch` on two nodes: how they meet, and what becomes of one without the other.
"""

import shutil
import signal
import subprocess
import time
import urllib.request

import network  # first: it finds the others
from launching import SAVE_ON_SIGNAL, SECRETS, SHOW, LaunchTest, is_alive
from tandem_run import BAD_DATA, BAD_USAGE, DONE, FAILED, INTERRUPTED, free_port


class TwoNodes:
    """Two launchers, on one machine or on two nodes; subclasses say how they meet."""

    def meeting(self):
        raise NotImplementedError

    def nodes(self, script, *arguments, ranks=(1, 1), own=((), ())):
        return [self.agent("--nnodes", 2, "--nproc-per-node", ranks[node], "--rdzv-id", self.directory.name,
                           *self.meeting(), "--monitor-interval", 0.1, *arguments, *own[node], "sh", "-c", script,
                           node=node)
                for node in (0, 1)]

    def test_ranks_of_both_nodes_are_one_world(self):
        self.results(self.nodes(SHOW, ranks=(1, 2)), DONE)
        shown = [self.shown(rank) for rank in range(3)]
        self.assertEqual(["3"] * 3, [each["WORLD_SIZE"] for each in shown])
        self.assertEqual(["2"] * 3, [each["GROUP_WORLD_SIZE"] for each in shown])
        groups = [each["GROUP_RANK"] for each in shown]
        self.assertIn(groups, (["0", "1", "1"], ["0", "0", "1"]))  # in order of joining
        self.assertEqual([str(groups.count(group)) for group in groups],
                         [each["LOCAL_WORLD_SIZE"] for each in shown])
        self.assertEqual(1, len({(each["MASTER_ADDR"], each["MASTER_PORT"]) for each in shown}))
        self.assertEqual({self.directory.name}, {each["TORCHELASTIC_RUN_ID"] for each in shown})
        secrets = {self.shown(rank, names=SECRETS)["TANDEM_SECRET"] for rank in range(3)}
        self.assertEqual(1, len(secrets))
        self.assertRegex(secrets.pop(), "^[0-9a-f]{64}$")

    def test_a_failure_on_one_node_restarts_both(self):
        shown = "while [ ! -e shown-0 ]; do sleep 0.05; done"  # else the other is stopped before it has shown
        script = (f"{SHOW}; [ $RANK = 0 ] && touch shown-0; "
                  f"[ $RANK = 1 ] && [ $TORCHELASTIC_RESTART_COUNT = 0 ] && {{ {shown}; echo it broke >&2; exit 1; }}; "
                  "[ $TORCHELASTIC_RESTART_COUNT = 0 ] && sleep 100; exit 0")
        for result in self.results(self.nodes(script, "--max-restarts", 2), DONE):
            self.assertIn("rank 1 failed with exit code 1: it broke; restarting all ranks (1 of 2)", result.err)
        self.assertEqual([("0", "0"), ("1", "1")],
                         [(self.shown(rank, 1)["RANK"], self.shown(rank, 0)["GROUP_RANK"]) for rank in (0, 1)])

    def test_a_final_failure_ends_both_with_its_code(self):
        script = ("[ $RANK = 1 ] && { touch $TANDEM_FINAL_FILE; echo 'tandem: error: bad shard' >&2; exit 4; }; "
                  "sleep 100")
        for result in self.results(self.nodes(script, "--max-restarts", 2), BAD_DATA):
            self.assertIn("bad shard", result.err)
        self.results(self.nodes("[ $RANK = 0 ] && exit 1; sleep 100"), FAILED)

    def test_a_signal_to_one_node_interrupts_both(self):
        agents = self.nodes(SAVE_ON_SIGNAL)
        self.wait_for(lambda: self.exists("up-0") and self.exists("up-1"), "the start of the ranks")
        agents[1].send_signal(signal.SIGTERM)
        self.results(agents, INTERRUPTED)
        self.assertTrue(self.exists("saved-0") and self.exists("saved-1"))

    def test_the_node_without_rank_0_says_where_it_stands(self):
        agents = self.nodes("true", ranks=(2, 2))
        told = [self.result(agent).about_its_node for agent in agents]
        self.assertEqual(1, told.count(""))
        place, end = "".join(told).splitlines()
        self.assertRegex(place, r"node 1 of 2: ranks 2, 3 of 4 on .*; what they print is in /.*, and node 0 \(.*\) shows rank 0")
        self.assertRegex(end, "node 1 of 2: all ranks have ended well")

    def come_late(self, script, *flags):
        """A node that comes when another, which may have one more, has begun: both, when it waits."""
        flags = ("--nnodes", "1:2", "--rdzv-id", f"late-{self.directory.name}", *self.meeting(), "--rdzv-conf",
                 "last_call_timeout=0", "--monitor-interval", 0.1, *flags, "sh", "-c", script)
        first = self.agent(*flags)
        self.wait_for(lambda: self.exists("up-0"), "the start of the first node's rank")
        with open(self.directory / "late", "wb") as told:
            late = self.agent(*flags, node=1, stderr=told)
        self.wait_for(lambda: "waiting for its next restart" in (self.directory / "late").read_text(), "the second node")
        (self.directory / "go").touch()
        return first, late

    def test_a_late_node_ends_well_with_a_launch_that_did_without_it(self):
        first, late = self.come_late("touch up-$RANK; while ! [ -e go ]; do sleep 0.02; done")
        self.results((first, late))
        self.assertIn("ended well without this node", (self.directory / "late").read_text())

    def test_a_late_node_is_let_in_at_the_next_restart(self):
        script = (f"{SHOW}; touch up-$RANK; while ! [ -e go ]; do sleep 0.02; done; "
                  "[ $TORCHELASTIC_RESTART_COUNT = 0 ] && exit 1; exit 0")
        self.results(self.come_late(script, "--max-restarts", 1))
        self.assertEqual(["2", "2"], [self.shown(rank, 1)["WORLD_SIZE"] for rank in (0, 1)])

    def test_a_node_that_is_done_waits_for_the_other(self):
        agents = self.nodes(f"[ $RANK = 1 ] && while ! [ -e go ]; do sleep 0.02; done; {SHOW}")
        self.wait_for(lambda: self.exists("env-0-0"), "the end of rank 0")
        time.sleep(0.3)
        self.assertEqual([None, None], [agent.poll() for agent in agents])
        (self.directory / "go").touch()
        self.results(agents, DONE)

    def test_a_missing_node_is_counted(self):
        agent = self.agent("--nnodes", 2, "--rdzv-id", self.directory.name, *self.meeting(), "--rdzv-timeout", 0.5,
                           "--node-rank", 0, "true")
        self.assert_one_line_error(self.result(agent, None), FAILED, "only 1 of 2 nodes joined within 0.5 s")


class StaticNodes(TwoNodes, LaunchTest):
    def setUp(self):
        super().setUp()
        self.port = free_port()

    def meeting(self):
        return "--rdzv-endpoint", f"{self.address(0)}:{self.port}", "--rdzv-secret-file", self.secret_file()

    def test_the_old_way_with_node_ranks_and_a_master(self):
        flags = ("--master-addr", self.address(0), "--master-port", self.port, "--rdzv-secret-file", self.secret_file())
        agents = [self.agent("--nnodes", 2, "--node-rank", node, *flags, "sh", "-c", SHOW, node=node)
                  for node in (1, 0)]
        self.results(agents, DONE)
        for rank in (0, 1):
            shown = self.shown(rank)
            self.assertEqual((str(self.port), str(rank)), (shown["MASTER_PORT"], shown["GROUP_RANK"]))

    def test_nodes_without_a_secret_are_refused(self):
        place = ("--nnodes", 2, "--node-rank", 0, *self.meeting()[:2])
        self.assert_one_line_error(self.launch(*place, "true", expect=None), BAD_USAGE, "--rdzv-secret-file: missing",
                                   "--insecure")
        for mode, text, part in ((0o640, "what no stranger knows", "chmod 600"), (0o600, "", "16 characters"),
                                 (0o600, "abc\n", "16 characters")):
            file = self.directory / f"secret-{part[:2]}-{len(text)}"
            file.write_text(text)
            file.chmod(mode)
            refused = self.launch(*place, "--rdzv-secret-file", file, "true", expect=None)
            self.assert_one_line_error(refused, BAD_USAGE, f"secret file {file}", part)
            if text:
                self.assertNotIn(text.strip(), refused.err)

    def test_nodes_without_a_secret_may_meet_if_told_so(self):
        place = ("--nnodes", 2, *self.meeting()[:2], "--insecure")
        agents = [self.agent(*place, "--node-rank", node, "sh", "-c", SHOW, node=node) for node in (0, 1)]
        self.results(agents, DONE)
        for rank in (0, 1):
            self.assertEqual(("", None, "1"), tuple(self.shown(rank, names=SECRETS).values()))

    def test_a_node_with_another_secret_is_refused(self):
        first = self.agent("--nnodes", 2, "--node-rank", 0, *self.meeting(), "true")
        other = self.directory / "other"
        other.touch(0o600)
        other.write_text("what a stranger may know")
        second = self.agent("--nnodes", 2, "--node-rank", 1, *self.meeting()[:2], "--rdzv-secret-file", other, "true",
                            node=1)
        self.assert_one_line_error(self.result(second, None), FAILED, f"{self.address(0)}:{self.port}",
                                   "another secret")
        self.assertIsNone(first.poll())

    def test_a_port_in_use_and_a_store_that_is_down(self):
        with self.listener(0) as self.port:
            result = self.launch("--nnodes", 2, "--node-rank", 0, *self.meeting(), "true", expect=None)
            self.assert_one_line_error(result, FAILED, str(self.port), "in use")
        agent = self.agent("--nnodes", 2, "--node-rank", 1, "--rdzv-timeout", 0.5, *self.meeting(), "true", node=1)
        self.assert_one_line_error(self.result(agent, None), FAILED, str(self.port), "node 0")


class FileNodes(TwoNodes, LaunchTest):
    def meeting(self):
        return "--rdzv-backend", "file", "--rdzv-endpoint", "meet"

    def test_an_id_can_be_used_again(self):
        for _ in range(2):
            self.results(self.nodes(SHOW), DONE)
            (self.directory / "env-0-0").unlink()

    def test_nodes_that_contradict_each_other(self):
        for result in self.results(self.nodes("true", own=(("--node-rank", 0), ("--node-rank", 0))), None):
            self.assert_one_line_error(result, BAD_USAGE, "--node-rank 0", "two nodes")


class LostLaunchers(LaunchTest):
    """Two launchers, of which one is killed. The other misses it after ten seconds and more: all wait at once."""

    def start_two(self, script, *flags):
        return [self.agent("--monitor-interval", 0.1, *flags, "--node-rank", node, "sh", "-c", script, node=node)
                for node in (0, 1)]

    def start_with_a_static_store(self, name):
        script = f"echo $$ > pid-{name}-$RANK; touch up-{name}-$RANK; while true; do sleep 0.1; done"
        agents = self.start_two(script, "--nnodes", 2, "--rdzv-endpoint", f"{self.address(0)}:{free_port()}",
                                "--rdzv-secret-file", self.secret_file())
        self.wait_for(lambda: self.exists(f"up-{name}-0") and self.exists(f"up-{name}-1"), "the start of the ranks")
        return agents

    def test_the_other_misses_it(self):
        loses_a_node = self.start_with_a_static_store("node")
        loses_the_store = self.start_with_a_static_store("store")
        script = f"{SHOW}; [ $TORCHELASTIC_RESTART_COUNT = 0 ] && sleep 100; exit 0"
        goes_on = self.start_two(script, "--nnodes", "1:3", "--rdzv-id", "job", "--max-restarts", 1,
                                 "--rdzv-backend", "file", "--rdzv-endpoint", "meet")
        self.wait_for(lambda: self.exists("env-0-0") and self.exists("env-1-0"), "the start of the ranks")
        for agent in (loses_a_node[1], loses_the_store[0], goes_on[1]):
            agent.kill()
        with self.subTest("the ranks end with it"):
            self.assertIn("node 1", self.result(loses_a_node[0], FAILED).err)
            self.assertFalse(is_alive(int((self.directory / "pid-node-0").read_text())))
        with self.subTest("a lost store stops the ranks"):
            self.assertIn("the store is lost", self.result(loses_the_store[1], FAILED).err)
        with self.subTest("a launch that can do without it goes on, though fewer have come than could"):
            self.assertIn("is gone", self.result(goes_on[0]).err)
            self.assertEqual("1", self.shown(0, 1)["WORLD_SIZE"])


class EtcdNodes(TwoNodes, LaunchTest):
    def setUp(self):
        super().setUp()
        if self.num_nodes > 1:
            self.store = self.network.store
            return
        if not shutil.which("etcd"):
            self.skipTest("etcd is not installed")
        self.store, peer = (f"127.0.0.1:{free_port()}" for _ in range(2))
        client, peers = f"http://{self.store}", f"http://{peer}"
        server = subprocess.Popen(
            ["etcd", "--data-dir", str(self.directory / "etcd"), "--listen-client-urls", client,
             "--advertise-client-urls", client, "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers,
             "--initial-cluster", f"default={peers}", "--log-level", "error", "--unsafe-no-fsync"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        self.wait_for(lambda: is_healthy(client), "the start of etcd")

    def meeting(self):
        return "--rdzv-backend", "etcd", "--rdzv-endpoint", self.store


def is_healthy(url):
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=1) as answer:
            return b"true" in answer.read()
    except OSError:
        return False


if __name__ == "__main__":
    network.main()
