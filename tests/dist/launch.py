"""`tandem launch` with real processes: the environment of ranks and their output here, the rest of it in launch_*.py,
whose classes this suite runs too.
"""

import contextlib
import hashlib
import os
import pty
import re
import time

import network  # first: it finds the others
import tandem_run
from launch_failures import Failures, Signals
from launch_nodes import EtcdNodes, FileNodes, LostLaunchers, StaticNodes
from launch_torchrun import Torchrun
from launching import DEADLINE_S, SECRETS, SHOW, LaunchTest, joined
from tandem_run import BAD_USAGE, FAILED

# unittest finds them here as if they were this file's own.
ALSO_RUN = (Failures, Signals, EtcdNodes, FileNodes, LostLaunchers, StaticNodes, Torchrun)


class Ranks(LaunchTest):
    def test_ranks_find_torchruns_variables(self):
        self.environment["RANK"] = "77"
        self.launch_ranks(4, "--rdzv-id", "job", "--max-restarts", 2, "sh", "-c", SHOW)
        ports = set()
        share = 4 // self.num_nodes
        for rank in range(4):
            shown = self.shown(rank)
            ports.add(shown.pop("MASTER_PORT"))
            self.assertEqual({"RANK": str(rank), "LOCAL_RANK": str(rank % share), "WORLD_SIZE": "4",
                              "LOCAL_WORLD_SIZE": str(share), "GROUP_RANK": str(rank // share),
                              "GROUP_WORLD_SIZE": str(self.num_nodes), "ROLE_RANK": str(rank),
                              "ROLE_WORLD_SIZE": "4", "MASTER_ADDR": self.address(0),
                              "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "2",
                              "TORCHELASTIC_RUN_ID": "job", "OMP_NUM_THREADS": "1"}, shown)
        self.assertEqual(1, len(ports))
        self.assertGreater(int(ports.pop()), 1023)

    def test_a_subcommand_runs_tandem_itself(self):
        path = self.write_config(tandem_run.config(tandem_run.MLP))
        out, _ = joined(self.launch_ranks(2, "explain", path, "--set", "train.lr=0.5"))
        self.assertEqual(1, len(re.findall(r"^train\.lr\s+0\.5\s+--set", out, re.M)))

    def test_rank_0_is_shown_as_it_is_and_the_others_are_kept(self):
        results = self.launch_ranks(2, "--log-dir", "logs", "sh", "-c",
                                    "echo out $RANK; echo err $RANK >&2; printf 'no newline'")
        self.assertEqual(("out 0\nno newline", "err 0\n"), joined(results))
        for rank in (0, 1):
            self.assertEqual(sorted([f"out {rank}", f"err {rank}", "no newline"]), sorted(self.log(rank)))

    def test_tee_shows_every_rank_with_its_number(self):
        script = "echo out; echo err >&2"
        for tee, out, err in ((0, [], []), (1, ["[rank 0] out", "[rank 1] out"], []),
                              (2, [], ["[rank 0] err", "[rank 1] err"]),
                              (3, ["[rank 0] out", "[rank 1] out"], ["[rank 0] err", "[rank 1] err"])):
            with self.subTest(tee=tee):
                printed = joined(self.launch_ranks(2, "--tee", tee, "sh", "-c", script))
                self.assertEqual((out, err), tuple(sorted(text.splitlines()) for text in printed))


class OneLauncher(LaunchTest):
    one_node_only = "what a launcher does by itself"

    def test_torchruns_spelling_and_given_master(self):
        self.launch("--nproc_per_node=1", "--master_addr", "localhost", "--master_port=29123", "--", "sh", "-c", SHOW)
        shown = self.shown(0)
        self.assertEqual(("localhost", "29123", None),
                         (shown["MASTER_ADDR"], shown["MASTER_PORT"], shown["OMP_NUM_THREADS"]))

    def test_every_launch_has_a_secret_of_its_own(self):
        secrets = set()
        for _ in range(2):
            result = self.launch("--nproc-per-node", 2, "--log-dir", "logs", "--tee", 3, "sh", "-c",
                                 f"{SHOW}; cat /proc/$PPID/cmdline /proc/self/cmdline; exit $RANK", expect=FAILED)
            secret, other = (self.shown(rank, names=SECRETS)["TANDEM_SECRET"] for rank in (0, 1))
            self.assertRegex(secret, "^[0-9a-f]{64}$")
            self.assertEqual(secret, other)
            secrets.add(secret)
            for text in (result.out, result.err, *((self.directory / "logs" / f"rank-{rank}.log").read_text()
                                                   for rank in (0, 1))):
                self.assertNotIn(secret, text)
        self.assertEqual(2, len(secrets))
        self.environment["TANDEM_SECRET_FILE"] = str(self.secret_file())
        self.launch("sh", "-c", SHOW)
        given = self.shown(0, names=SECRETS)["TANDEM_SECRET"]
        self.assertEqual(hashlib.sha256(self.secret_file().read_bytes().strip()).hexdigest(), given)

    def test_a_python_file_runs_under_python(self):
        (self.directory / "hello.py").write_text("import os, sys; print(os.environ['RANK'], sys.argv[1:])")
        self.assertEqual("0 ['--tee', '2']\n", self.launch("hello.py", "--tee", "2").out)

    def test_temporary_logs_stay_only_after_a_failure(self):
        self.launch("--nproc-per-node", 2, "true")
        self.assertEqual([], list((self.directory / "tmp").iterdir()))
        result = self.launch("--nproc-per-node", 2, "sh", "-c", "echo trouble $RANK; exit 1", expect=FAILED)
        kept = list((self.directory / "tmp").iterdir())
        self.assertEqual(1, len(kept))
        self.assertIn(str(kept[0]), result.err)
        self.assertEqual(["trouble 1"], self.log(1, kept[0]))

    def test_logs_of_a_killed_launcher_go_with_the_next_launch(self):
        agent = self.agent("sh", "-c", "touch up; sleep 100")
        self.wait_for(lambda: self.exists("up"), "the start of the rank")
        living = self.agent("sh", "-c", "touch living; while ! [ -e go ]; do sleep 0.02; done; echo it goes on; exit 1")
        self.wait_for(lambda: self.exists("living"), "the start of the rank")
        agent.kill()
        agent.wait()
        self.assertEqual(2, len(list((self.directory / "tmp").iterdir())))
        self.launch("true")
        own, = (self.directory / "tmp").iterdir()
        (self.directory / "go").touch()
        self.result(living, FAILED)
        self.launch("true")
        self.assertEqual(["it goes on"], self.log(0, own))  # kept on purpose

    def test_rank_0_draws_on_a_terminal_and_its_log_keeps_what_stood_last(self):
        try:
            own, other = pty.openpty()
        except OSError as error:
            self.skipTest(f"this machine gives no pseudo terminals: {error}")
        agent = self.agent("--nproc-per-node", 2, "--log-dir", "logs", "sh", "-c",
                           r"[ -t 2 ] && printf '\rstep 1\rstep 2\n' >&2", stdout=other, stderr=other)
        os.close(other)
        shown = b""
        while b"step 2" not in shown:
            shown += os.read(own, 1000)
        self.assertIn(b"\rstep 1\rstep 2", shown)
        agent.wait(DEADLINE_S)
        os.close(own)
        self.assertEqual(["step 2"], self.log(0))
        self.assertEqual([], self.log(1))

    def test_a_slow_terminal_shows_the_last_lines_too(self):
        try:
            own, other = pty.openpty()
        except OSError as error:
            self.skipTest(f"this machine gives no pseudo terminals: {error}")
        self.addCleanup(os.close, own)
        self.agent("--log-dir", "logs", "sh", "-c", "seq 12000", stdout=other, stderr=other)
        os.close(other)
        shown = b""
        with contextlib.suppress(OSError):  # at its end
            while part := os.read(own, 4096):
                shown += part
                time.sleep(0.1)
        lines = [str(number) for number in range(1, 12001)]
        self.assertEqual(lines[-1], shown.decode().split()[-1])
        self.assertEqual(lines, self.log(0))

    def test_a_reader_that_goes_away_does_not_end_the_ranks(self):
        reader, writer = os.pipe()
        agent = self.agent("--nproc-per-node", 2, "sh", "-c",
                           "touch up-$RANK; while ! [ -e closed ]; do sleep 0.01; done; "
                           "echo line; echo line; sleep 0.1; echo line; touch done-$RANK", stdout=writer)
        os.close(writer)
        self.wait_for(lambda: self.exists("up-0"), "the start of rank 0")
        os.close(reader)
        (self.directory / "closed").touch()
        self.result(agent)
        self.assertTrue(self.exists("done-0") and self.exists("done-1"))

    def test_bad_usage_is_one_line(self):
        for parts, *arguments in ((["no program"], "--nproc-per-node", 2),
                                  (["--nproc-per-node", "'x'"], "--nproc-per-node", "x", "true"),
                                  (["'--nproc-per-nod'", "'--nproc-per-node'"], "--nproc-per-nod", 2, "true"),
                                  (["--nnodes", "'3:2'"], "--nnodes", "3:2", "true"),
                                  (["--rdzv-endpoint"], "--nnodes", 2, "true"),
                                  (["DIR"], "--nnodes", 2, "--rdzv-backend", "file", "true"),
                                  (["--tee", "'7'"], "--tee", "7", "true"),
                                  (["'flie'", "'file'"], "--rdzv-backend", "flie", "true"),
                                  (["no-such-program", "cannot be started"], "no-such-program")):
            with self.subTest(arguments=arguments):
                self.assert_one_line_error(self.launch(*arguments, expect=None), BAD_USAGE, *parts)


if __name__ == "__main__":
    network.main()
