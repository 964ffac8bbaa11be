"""`tandem launch`: ranks that fail, restarts, signals.
"""

import fcntl
import os
import re
import signal

import network  # first: it finds the others
import tandem_run
from launching import SAVE_ON_SIGNAL, SHOW, LaunchTest, is_alive, joined
from tandem_run import BAD_DATA, BAD_USAGE, FAILED, INTERRUPTED


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
        self.wait_for(lambda: not is_alive(int((self.directory / "pid").read_text())), "the end of the child")

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
        self.wait_for(lambda: self.exists("pid-0") and self.exists("pid-1"), "the start of the ranks")
        pids = [int((self.directory / f"pid-{rank}").read_text()) for rank in (0, 1)]
        self.assertTrue(all(is_alive(pid) for pid in pids))
        for agent in agents:
            agent.kill()
        self.wait_for(lambda: not any(is_alive(pid) for pid in pids), "the end of the ranks")


class Signals(LaunchTest):
    """To one launcher, the last one."""

    def start_and_signal(self, number, *arguments, script=SAVE_ON_SIGNAL):
        agents = self.agents(2, *arguments, "sh", "-c", script)
        self.wait_for(lambda: self.exists("up-0") and self.exists("up-1"), "the start of the ranks")
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
        self.wait_for(lambda: self.exists("told-0") and self.exists("told-1"), "the first signal")
        for agent in agents:
            agent.send_signal(signal.SIGINT)
        self.results(agents, 128 + signal.SIGINT)

    def test_grace_is_limited(self):
        self.results(self.start_and_signal(signal.SIGTERM, "--grace", 0.2, script="trap '' TERM; touch up-$RANK; "
                                           "while true; do sleep 0.02; done"), 128 + signal.SIGTERM)

    def test_one_rank_that_was_interrupted_interrupts_all(self):
        agents = self.agents(2, "sh", "-c", "echo $$ > pid-$RANK; " + SAVE_ON_SIGNAL)
        self.wait_for(lambda: self.exists("up-0") and self.exists("up-1"), "the start of the ranks")
        os.kill(int((self.directory / "pid-1").read_text()), signal.SIGTERM)
        self.results(agents, INTERRUPTED)
        self.assertTrue(self.exists("saved-0"))


if __name__ == "__main__":
    network.main()
