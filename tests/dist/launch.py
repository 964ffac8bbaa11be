"""`tandem launch` with real processes: the environment of ranks, their output, failures, restarts, signals.

The programs are small shell scripts, so that what is tested is the launcher alone. On several nodes (network.py) each
has a launcher, and they share the ranks.
"""

import contextlib
import fcntl
import hashlib
import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import time
import urllib.request

import network  # first: it finds the others
import launchers
import tandem_run
from tandem_run import BAD_DATA, BAD_USAGE, DONE, FAILED, INTERRUPTED, free_port

VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK",
             "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT",
             "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RUN_ID", "OMP_NUM_THREADS")
SECRETS = ("TANDEM_SECRET", "TANDEM_SECRET_FILE", "TANDEM_INSECURE")
DEADLINE_S = 60

# Every flag of `torchrun --help` (torch 2.11), and newer ones.
TORCHRUN_FLAGS = (
    "--help", "--nnodes", "--nproc-per-node", "--rdzv-backend", "--rdzv-endpoint", "--rdzv-id", "--rdzv-conf",
    "--standalone", "--max-restarts", "--monitor-interval", "--start-method", "--event-log-handler", "--role", "--module",
    "--no-python", "--run-path", "--log-dir", "--redirects", "--tee", "--log-line-prefix-template",
    "--local-ranks-filter", "--duplicate-stdout-filters", "--duplicate-stderr-filters", "--node-rank", "--master-addr",
    "--master-port", "--local-addr", "--logs-specs", "--numa-binding", "--signals-to-handle", "--shutdown-timeout",
    "--virtual-local-rank", "--print-completion")

# Writes its environment to env-<rank>-<restarts>, whole or not at all.
SHOW = ("env > .env-$RANK && mv .env-$RANK env-$RANK-$TORCHELASTIC_RESTART_COUNT")
SAVE_ON_SIGNAL = "trap 'touch saved-$RANK; exit 75' INT TERM; touch up-$RANK; while true; do sleep 0.02; done"


def wait_for(condition, what):
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not happen within {DEADLINE_S} s")
        time.sleep(0.01)


def is_alive(pid):
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


class LaunchTest(network.NodesTest):
    def setUp(self):
        super().setUp()
        self.environment = {key: value for key, value in os.environ.items()
                            if key not in VARIABLES + SECRETS}
        self.environment["TMPDIR"] = str(self.directory / "tmp")
        (self.directory / "tmp").mkdir()
        self.num_launches = 0

    def launch(self, *arguments, expect=DONE):
        """By one launcher."""
        return self.result(self.agent(*arguments), expect)

    def launch_ranks(self, num_ranks, *arguments, expect=DONE):
        """One result for each node."""
        return self.results(self.agents(num_ranks, *arguments), expect)

    def agents(self, num_ranks, *arguments):
        """Starts one launcher on each node."""
        self.num_launches += 1
        return [self.agent("--nproc-per-node", share, *self.place(node, self.num_launches), *arguments, node=node)
                for node, share in enumerate(self.shares(num_ranks))]

    def agent(self, *arguments, node=0, **options):
        """Starts a launcher, which ends with the test at the latest."""
        process = subprocess.Popen(self.at(node, tandem_run.program(), "launch", *arguments), text=True,
                                   errors="replace", cwd=self.directory, env=self.environment,
                                   **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE,
                                      "stderr": subprocess.PIPE, **options})
        for stream in (process.stdout, process.stderr):
            if stream:
                self.addCleanup(stream.close)
        self.addCleanup(process.wait)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        return process

    def results(self, agents, expect=DONE):
        return [self.result(agent, expect) for agent in agents]

    def result(self, agent, expect=DONE):
        out, err = agent.communicate(timeout=DEADLINE_S)
        result = launchers.told(agent.returncode, out or "", err or "")
        if expect is not None:
            self.assertEqual(expect, result.code, result)
        return result

    def exists(self, name):
        return (self.directory / name).exists()

    def shown(self, rank, restarts=0, names=VARIABLES):
        """The environment that SHOW wrote."""
        lines = (self.directory / f"env-{rank}-{restarts}").read_text().splitlines()
        pairs = dict(line.split("=", 1) for line in lines if "=" in line)
        return {name: pairs.get(name) for name in names}

    def log(self, rank, directory="logs"):
        """Lines of a rank's log without the launcher's own."""
        lines = (self.directory / directory / f"rank-{rank}.log").read_text().splitlines()
        return [line for line in lines if not line.startswith("--- ")]


def joined(results):
    """What all launchers have printed, as (stdout, stderr)."""
    return "".join(result.out for result in results), "".join(result.err for result in results)


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
        wait_for(lambda: self.exists("up"), "the start of the rank")
        living = self.agent("sh", "-c", "touch living; while ! [ -e go ]; do sleep 0.02; done; echo it goes on; exit 1")
        wait_for(lambda: self.exists("living"), "the start of the rank")
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
        wait_for(lambda: self.exists("up-0"), "the start of rank 0")
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


class Torchrun(LaunchTest):
    """Flags that are torchrun's own."""

    one_node_only = "what a launcher does by itself"

    def run_python(self, *flags, expect=DONE):
        (self.directory / "hello.py").write_text("import os, sys; print(os.environ['RANK'], __name__, sys.argv[1:])")
        return self.launch(*flags, expect=expect)

    def test_every_flag_is_taken_or_listed_with_a_reason(self):
        shown = self.launch("--help").out
        page = (tandem_run.REPOSITORY / "docs" / "launch.md").read_text()
        missing = re.search(r"## From torchrun\n.*?(?=\n## )", page, re.S)[0]
        for flag in TORCHRUN_FLAGS:
            with self.subTest(flag=flag):
                taken = re.search(rf"{flag}\b(?!.*refused)", shown)
                self.assertTrue(taken or re.search(rf"\| `{flag[2:]}` \|", missing), flag)
        for flag, value in (("--logs-specs", "x"), ("--numa-binding", "node"), ("--event-log-handler", "console"),
                            ("--start-method", "thread")):
            self.assert_one_line_error(self.launch(flag, value, "true", expect=None), BAD_USAGE, flag)

    def test_python_in_all_its_ways(self):
        for flags in (("hello.py", "x"), ("-m", "hello", "x"), ("--module", "hello", "x"), ("--run-path", "hello.py", "x"),
                      ("--run_path", "--no_python", "hello.py", "x")):
            with self.subTest(flags=flags):
                self.assertEqual("0 __main__ ['x']\n", self.run_python(*flags).out)
        (self.directory / "plain.py").write_text("#!/bin/sh\necho plain $1\n")
        (self.directory / "plain.py").chmod(0o755)
        self.assertEqual("plain x\n", self.launch("--no-python", "./plain.py", "x").out)
        self.assert_one_line_error(self.run_python("-m", "--no-python", "hello", expect=None), BAD_USAGE, "--no-python")
        self.environment["PYTHON_EXEC"] = "echo"
        self.assertEqual("-u hello.py x\n", self.run_python("hello.py", "x").out)

    def test_the_environment_of_a_role_and_of_a_virtual_local_rank(self):
        self.environment["CUDA_VISIBLE_DEVICES"] = "4,7"
        script = "echo $LOCAL_RANK $CUDA_VISIBLE_DEVICES $ROLE_NAME $TORCHELASTIC_ERROR_FILE > of-$RANK"
        self.launch("--nproc-per-node", 2, "--log-dir", "logs", "--role", "trainer", "--virtual-local-rank", "sh", "-c", script)
        for rank, device in enumerate((4, 7)):
            self.assertEqual(["0", str(device), "trainer", str(self.directory / "logs" / f"rank-{rank}.error.json")],
                             (self.directory / f"of-{rank}").read_text().split())

    def test_torchruns_variables_are_defaults(self):
        self.environment.update(PET_NPROC_PER_NODE="3", PET_ROLE="one", PET_NO_PYTHON="1")
        self.launch("--role", "two", "sh", "-c", "echo $ROLE_NAME > of-$RANK")
        self.assertEqual(["two\n"] * 3, [(self.directory / f"of-{rank}").read_text() for rank in range(3)])

    def show(self, *flags):
        result = self.launch("--nproc-per-node", 3, *flags, "sh", "-c", "echo out $RANK; echo err $RANK >&2")
        return [sorted(text.splitlines()) for text in (result.out, result.err)]

    def test_what_is_shown(self):
        for flags, out, err in (
                (("-t", "3", "--local-ranks-filter", "1"), ["[rank 1] out 1"], ["[rank 1] err 1"]),
                (("--tee", "1:3,2:1"), ["[rank 1] out 1", "[rank 2] out 2", "out 0"], ["[rank 1] err 1", "err 0"]),
                (("-r", "3"), [], []),
                (("-r3",), [], []),
                (("--redirects", "0:1"), [], ["err 0"]),
                (("--local_ranks_filter=2",), ["out 2"], ["err 2"]),
                (("--local-ranks-filter", "1,2"), ["[rank 1] out 1", "[rank 2] out 2"], ["[rank 1] err 1", "[rank 2] err 2"]),
                (("-t", "1", "--role", "r", "--log-line-prefix-template", "${role_name}${local_rank}/${rank}: "),
                 ["r0/0: out 0", "r1/1: out 1", "r2/2: out 2"], [])):
            with self.subTest(flags=flags):
                self.assertEqual([out, err], self.show(*flags))

    def test_lines_with_chosen_words_are_kept_once_more(self):
        self.show("--log-dir", "logs", "--duplicate-stdout-filters", "t 1,no", "--duplicate_stderr_filters", "err")
        kept = [sorted((self.directory / "logs" / f"filtered_{name}.log").read_text().splitlines())
                for name in ("stdout", "stderr")]
        self.assertEqual([["[rank 1] out 1"], [f"[rank {rank}] err {rank}" for rank in range(3)]], kept)

    def test_more_signals_are_passed_on_and_end_the_launch(self):
        script = "trap 'touch told-$RANK; exit 75' USR1; touch up-$RANK; while true; do sleep 0.02; done"
        agent = self.agent("--nproc-per-node", 2, "--signals-to-handle", "SIGTERM,SIGUSR1", "sh", "-c", script)
        wait_for(lambda: self.exists("up-0") and self.exists("up-1"), "the start of the ranks")
        agent.send_signal(signal.SIGUSR1)
        self.result(agent, INTERRUPTED)
        self.assertTrue(self.exists("told-0") and self.exists("told-1"))

    def test_a_shutdown_has_a_limit(self):
        script = "[ $RANK = 1 ] && { while ! [ -e up ]; do sleep 0.01; done; exit 1; }; trap '' TERM; touch up; " \
                 "while true; do sleep 0.02; done"
        result = self.launch("--nproc-per-node", 2, "--shutdown-timeout", "0.1", "sh", "-c", script, expect=FAILED)
        self.assertIn("rank 0 did not stop on SIGTERM and had to be killed", result.err)

    def test_rendezvous_settings(self):
        result = self.launch("--rdzv-conf", "timeout=9,read_timeout=3", "true")
        self.assertIn("--rdzv-conf: read_timeout has no meaning here", result.err)
        agent = self.agent("--nnodes", 2, "--node-rank", 0, "--rdzv-endpoint", f"127.0.0.1:{free_port()}",
                           "--insecure", "--rdzv_conf", "join_timeout=0.4", "true")
        self.assert_one_line_error(self.result(agent, None), FAILED, "only 1 of 2 nodes joined within 0.4 s")


class Failures(LaunchTest):
    def test_the_first_failure_comes_first_and_the_others_are_stopped(self):
        script = "[ $RANK = 2 ] && { echo first >&2; echo no such shard >&2; exit 9; }; sleep 100"
        for result in self.launch_ranks(4, "--log-dir", "logs", "sh", "-c", script, expect=FAILED):
            lines = result.err.splitlines()
            self.assertEqual("tandem: error: rank 2 failed with exit code 9: no such shard", lines[0])
            self.assertIn("logs", lines[-1])
        self.assertEqual(["[rank 2] first", "[rank 2] no such shard"], lines[1:3])  # of the last node, where it ran

    def test_a_killed_rank_is_the_cause_and_those_that_missed_it_come_after(self):
        script = ("[ $RANK = 1 ] && { echo $$ > pid; sleep 100; }; while ! [ -s pid ]; do sleep 0.01; done; "
                  "[ $RANK = 0 ] && kill -9 $(cat pid); echo rank 1 is gone >&2; exit 1")
        first, *others = self.launch_ranks(3, "--tee", 0, "sh", "-c", script, expect=FAILED)
        lines = first.err.splitlines()
        if not others:
            self.assertTrue(lines[0].startswith("tandem: error: rank 1 failed with signal 9 (SIGKILL)"), lines)
            self.assertIn("after it ranks 0, 2 failed with exit code 1: rank 1 is gone", lines[1])
        for result in others:  # whichever node is quicker says what it knows
            self.assertRegex(result.err, r"^tandem: error: rank (1 failed with signal 9|2 .*: rank 1 is gone)")
            self.assertEqual(lines[0], result.err.splitlines()[0])

    def test_a_rank_that_ignores_sigterm_is_killed_with_its_children(self):
        script = ("[ $RANK = 1 ] && { while ! [ -e pid ]; do sleep 0.01; done; exit 1; }; trap '' TERM; "
                  "sh -c \"trap '' TERM; echo \\$\\$ > pid; while true; do sleep 0.1; done\" & wait; wait")
        _, told = joined(self.launch_ranks(2, "sh", "-c", script, expect=FAILED))
        self.assertIn("rank 0 did not stop on SIGTERM and had to be killed", told)
        wait_for(lambda: not is_alive(int((self.directory / "pid").read_text())), "the end of the child")

    def test_all_ranks_are_started_again_up_to_max_restarts(self):
        shown = "while [ ! -e env-0-$TORCHELASTIC_RESTART_COUNT ]; do sleep 0.01; done"  # before it may be stopped
        script = (f"{SHOW}; [ $RANK = 1 ] && [ $TORCHELASTIC_RESTART_COUNT -lt 2 ] && {{ {shown}; exit 1; }}; exit 0")
        for result in self.launch_ranks(2, "--max-restarts", 2, "--log-dir", "logs", "sh", "-c", script):
            self.assertIn("restarting all ranks (1 of 2)", result.err)
            self.assertIn("restarting all ranks (2 of 2)", result.err)
        for restarts in range(3):
            for rank in (0, 1):
                self.assertEqual(str(restarts), self.shown(rank, restarts)["TORCHELASTIC_RESTART_COUNT"])
        self.assertEqual(3, (self.directory / "logs" / "rank-1.log").read_text().count(" attempt "))

        for result in self.launch_ranks(2, "--max-restarts", 1, "sh", "-c", script, expect=FAILED):
            self.assertIn("tandem: error: rank 1 failed with exit code 1", result.err)

    def test_bad_config_memory_and_data_are_not_started_again(self):
        for code in (2, 3, 4):
            with self.subTest(code=code):
                script = (f"echo x >> starts-{code}; touch $TANDEM_FINAL_FILE; "
                          f"echo 'tandem: error: it is bad' >&2; exit {code}")
                for result in self.launch_ranks(3, "--max-restarts", 5, "sh", "-c", script, expect=code):
                    self.assertEqual("tandem: error: it is bad\n", result.err)
                self.assertEqual(3, (self.directory / f"starts-{code}").read_text().count("x"))
                self.assertEqual([], list((self.directory / "tmp").iterdir()))

    def test_another_programs_2_3_and_4_are_failures_like_any_other(self):
        for code in (2, 3, 4):
            with self.subTest(code=code):
                script = f"echo $TORCHELASTIC_RESTART_COUNT >> starts-{code}; echo it said so; exit {code}"
                for result in self.launch_ranks(2, "--max-restarts", 1, "sh", "-c", script, expect=FAILED):
                    self.assertIn("restarting all ranks (1 of 1)", result.err)
                    self.assertRegex(result.err, rf"tandem: error: ranks? [01, ]+ failed with exit code {code}")
                    self.assertIn("the ranks' output is in", result.err)
                self.assertEqual({"0", "1"}, set((self.directory / f"starts-{code}").read_text().split()))

    def test_what_tandem_refuses_under_another_program_is_final_too(self):
        script = f"echo x >> starts; {tandem_run.program()} train no-such.yaml"
        for result in self.launch_ranks(2, "--max-restarts", 3, "sh", "-c", script, expect=None):
            self.assert_one_line_error(result, result.code, "no-such.yaml")
        self.assertEqual(2, (self.directory / "starts").read_text().count("x"))

    def test_an_error_file_says_why_a_rank_failed(self):
        script = ("[ $RANK = 1 ] || sleep 100; printf %s '{\"message\": {\"message\": \"ValueError: no\", "
                  "\"extraInfo\": {\"py_callstack\": \"x\"}}}' > $TORCHELASTIC_ERROR_FILE; echo bye >&2; exit 1")
        for result in self.launch_ranks(2, "sh", "-c", script, expect=FAILED):
            self.assertEqual("tandem: error: rank 1 failed with exit code 1: ValueError: no",
                             next(line for line in result.err.splitlines() if "error" in line))

    def test_an_error_of_tandem_on_every_rank_is_shown_once(self):
        for arguments in ((), ("--tee", 0)):
            for result in self.launch_ranks(3, *arguments, "train", "no-such.yaml", expect=None):
                self.assert_one_line_error(result, result.code, "no-such.yaml")
                self.assertIn(result.code, (BAD_USAGE, BAD_DATA))

    def config_of_four(self):
        return self.write_config(tandem_run.config(tandem_run.MLP, parallel={"strategy": "fsdp", "data": 4},
                                                   train={"batch": 12, "micro_batch": 3}, checkpoint={"every": 3}))

    def start_where_only_rank_0_fails(self, run_dir, expect):
        first, *others = self.launch_ranks(4, "train", self.config_of_four(), "--run-dir", run_dir, "--set",
                                           "train.steps=9", expect=expect)
        for result in others:
            self.assertRegex(result.err, rf"^tandem: error: rank 0 failed with exit code {expect}: {run_dir}")
        return first.err.splitlines()

    def test_what_rank_0_alone_refuses_is_told_once(self):
        (self.directory / "locked").mkdir()
        lock = os.open(self.directory / "locked", os.O_RDONLY)
        self.addCleanup(os.close, lock)
        fcntl.flock(lock, fcntl.LOCK_EX)
        for _ in range(3):
            line, = self.start_where_only_rank_0_fails("locked", BAD_USAGE)
            self.assertTrue(line.startswith("tandem: error: locked: another process is training there"), line)

    def test_what_rank_0_alone_fails_with_is_told_once_and_before_all_else(self):
        self.launch_ranks(4, "train", self.config_of_four(), "--run-dir", "run")
        plan = self.directory / "run" / "plan.json"  # which rank 0 writes
        plan.unlink()
        (plan / "x").mkdir(parents=True)
        for _ in range(6):  # the others may end first
            *_, shown, told, missed, logs = self.start_where_only_rank_0_fails("run", FAILED)
            self.assertTrue(shown.startswith("tandem: error: run/plan.json: cannot write"), shown)
            self.assertEqual("tandem launch: rank 0 failed with exit code 1", told)
            others = "ranks 1-3" if self.num_nodes == 1 else "rank 1"
            self.assertEqual(f"tandem launch: after it {others} failed for want of a peer", missed)
            self.assertIn("output is in", logs)

    def test_a_rank_that_cannot_save_is_told_and_not_those_that_wait_for_it(self):
        script = (f"trap '' XFSZ; [ $RANK = 1 ] && ulimit -f 8; "
                  f"exec {tandem_run.program()} train {self.config_of_four()} --run-dir run-$TORCHELASTIC_RUN_ID")
        for number in range(4):  # the others may end first
            first, *others = self.launch_ranks(4, "--rdzv-id", number, "sh", "-c", script, expect=FAILED)
            cause = rf"tandem: error: rank 1 failed with exit code 1: run-{number}/checkpoints/.*: checkpoint not saved"
            told = [line for line in first.err.splitlines() if re.match(r"tandem: error: rank|tandem launch: ", line)]
            self.assertRegex(told[0], cause, first.err)
            self.assertRegex(told[1], "^tandem launch: after it ranks? [0-9, ]+ failed for want of a peer$")
            self.assertIn("output is in", told[2])
            for result in others:
                self.assertRegex(result.err.splitlines()[0], cause)
            logs = [(self.directory / f"run-{number}" / "logs" / f"rank-{rank}.log").read_text() for rank in range(4)]
            for rank, log in enumerate(logs):
                self.assertRegex(log.splitlines()[0], rf"Z rank {rank} of 4 on .*, process [0-9]+$")
                stopped = "" if rank == 1 else "|interrupted"  # by the launcher, before it knew
                self.assertRegex(log.splitlines()[-1], f"Z (error: .*checkpoint not saved{stopped})")

    def test_no_rank_outlives_a_killed_launcher(self):
        agents = self.agents(2, "sh", "-c",
                             "echo $$ > .pid-$RANK && mv .pid-$RANK pid-$RANK; while true; do sleep 0.1; done")
        wait_for(lambda: self.exists("pid-0") and self.exists("pid-1"), "the start of the ranks")
        pids = [int((self.directory / f"pid-{rank}").read_text()) for rank in (0, 1)]
        self.assertTrue(all(is_alive(pid) for pid in pids))
        for agent in agents:
            agent.kill()
        wait_for(lambda: not any(is_alive(pid) for pid in pids), "the end of the ranks")


class Signals(LaunchTest):
    """To one launcher, the last one."""

    def start_and_signal(self, number, *arguments, script=SAVE_ON_SIGNAL):
        agents = self.agents(2, *arguments, "sh", "-c", script)
        wait_for(lambda: self.exists("up-0") and self.exists("up-1"), "the start of the ranks")
        agents[-1].send_signal(number)
        return agents

    def test_ranks_save_their_work_and_75_is_passed_on(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(signal=number):
                for result in self.results(self.start_and_signal(number, "--max-restarts", 3), INTERRUPTED):
                    self.assertNotIn("error", result.err)
                self.assertTrue(self.exists("saved-0") and self.exists("saved-1"))
                for path in self.directory.glob("*-[01]"):
                    path.unlink()

    def test_ranks_that_die_of_the_signal_are_no_failure(self):
        script = "touch up-$RANK; sleep 100"
        self.results(self.start_and_signal(signal.SIGTERM, "--max-restarts", 3, script=script), 128 + signal.SIGTERM)

    def test_a_second_signal_kills(self):
        agents = self.start_and_signal(signal.SIGINT, script="trap 'touch told-$RANK' INT; touch up-$RANK; "
                                                             "while true; do sleep 0.02; done")
        wait_for(lambda: self.exists("told-0") and self.exists("told-1"), "the first signal")
        for agent in agents:
            agent.send_signal(signal.SIGINT)
        self.results(agents, 128 + signal.SIGINT)

    def test_grace_is_limited(self):
        self.results(self.start_and_signal(signal.SIGTERM, "--grace", 0.2, script="trap '' TERM; touch up-$RANK; "
                                           "while true; do sleep 0.02; done"), 128 + signal.SIGTERM)

    def test_one_rank_that_was_interrupted_interrupts_all(self):
        agents = self.agents(2, "sh", "-c", "echo $$ > pid-$RANK; " + SAVE_ON_SIGNAL)
        wait_for(lambda: self.exists("up-0") and self.exists("up-1"), "the start of the ranks")
        os.kill(int((self.directory / "pid-1").read_text()), signal.SIGTERM)
        self.results(agents, INTERRUPTED)
        self.assertTrue(self.exists("saved-0"))


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
        wait_for(lambda: self.exists("up-0") and self.exists("up-1"), "the start of the ranks")
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
        wait_for(lambda: self.exists("up-0"), "the start of the first node's rank")
        with open(self.directory / "late", "wb") as told:
            late = self.agent(*flags, node=1, stderr=told)
        wait_for(lambda: "waiting for its next restart" in (self.directory / "late").read_text(), "the second node")
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
        wait_for(lambda: self.exists("env-0-0"), "the end of rank 0")
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
        wait_for(lambda: self.exists(f"up-{name}-0") and self.exists(f"up-{name}-1"), "the start of the ranks")
        return agents

    def test_the_other_misses_it(self):
        loses_a_node = self.start_with_a_static_store("node")
        loses_the_store = self.start_with_a_static_store("store")
        script = f"{SHOW}; [ $TORCHELASTIC_RESTART_COUNT = 0 ] && sleep 100; exit 0"
        goes_on = self.start_two(script, "--nnodes", "1:3", "--rdzv-id", "job", "--max-restarts", 1,
                                 "--rdzv-backend", "file", "--rdzv-endpoint", "meet")
        wait_for(lambda: self.exists("env-0-0") and self.exists("env-1-0"), "the start of the ranks")
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
        wait_for(lambda: is_healthy(client), "the start of etcd")

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
