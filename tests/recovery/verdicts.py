"""One rank gets SIGTERM or SIGSTOP from somebody, at any moment: the launcher names that rank and no other. And one is
stopped, or computes for ever in a kernel, while the others would wait for minutes: the launcher names it, the command and
the block within seconds.

A few hits of each kind; with `--all` every rank of 2, 3 and 4 at every moment, several times over, and a table of how often
the right one was named; with `--tries N` that many stops and endless loops with default settings, and how long the
verdicts took.
"""

import argparse
import json
import os
import pathlib
import random
import re
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "dist"))

import kill  # noqa: E402
import ranks  # noqa: E402
import tandem_run  # noqa: E402
from ranks import GPT2, config, mesh  # noqa: E402
from tandem_run import DONE, FAILED, INTERRUPTED  # noqa: E402

STEPS = 40
TIMEOUT_S = 2  # of the ranks, for each other
TERM, STOP = signal.SIGTERM, signal.SIGSTOP
STARTING, COMPILING, STEPPING, SAVING, ENDING = MOMENTS = "starting", "compiling", "stepping", "saving", "ending"
HEADING = re.compile(r"^--- .*, rank \d+, pid (\d+)$", re.M)

_all = False
_tries = 0


class Hit:
    """A launch, the rank that is hit, and when."""

    def __init__(self, test, number, moment, num_ranks, rank, rng):
        self.test, self.number, self.moment, self.num_ranks, self.rank, self.rng = (
            test, number, moment, num_ranks, rank, rng)
        test.num_hits += 1
        content = config(GPT2, parallel={**mesh("fsdp", data=num_ranks), "timeout": TIMEOUT_S},
                         train={"steps": STEPS, "batch": 2 * num_ranks, "micro_batch": 1}, checkpoint={"every": 2})
        self.run = test.directory / f"run-{test.num_hits}"
        self.launchers = test.start_ranks(num_ranks, *test.train_command(content, self.run.name),
                                          env={"TANDEM_CONNECT_TIMEOUT_S": str(TIMEOUT_S), **test.environment})

    def __str__(self):
        return f"{self.number.name} to rank {self.rank} of {self.num_ranks} while {self.moment}"

    def pids(self):
        found = [HEADING.search(self.launchers.log(rank)) for rank in range(self.num_ranks)]
        return [int(match[1]) for match in found] if all(found) else []

    def num_rows(self):
        return kill.num_lines(self.run / "metrics.jsonl")

    def is_there(self):
        """The moment has come."""
        if not self.pids() or self.moment == STARTING:
            return bool(self.pids())
        if self.moment == COMPILING:
            return kill.is_caught_by(self.pids()[self.rank], TERM)
        if self.moment == ENDING:
            return self.num_rows() >= STEPS - 1
        if self.moment == SAVING and not any((self.run / "checkpoints").glob(".tmp-*")):
            return False
        return self.num_rows() >= self.rows

    def strike(self):
        """Tells whether the run was still there."""
        self.rows = self.rng.randint(1, STEPS // 2)
        if not self.test.wait_until(self.launchers, self.is_there, f"{self}: its moment"):
            return False
        time.sleep(self.rng.uniform(0, {STARTING: 0.05, COMPILING: 0.02}.get(self.moment, 0.005)))
        self.pid = self.pids()[self.rank]
        try:
            os.kill(self.pid, self.number)
        except ProcessLookupError:
            return False
        return True

    def is_over(self):
        """The launch has ended, or nobody is left who could miss the stopped rank."""
        if self.launchers.poll() is not None:
            return True
        others = set(range(self.num_ranks)) - {self.rank}
        return self.number == STOP and all("ended with exit code 0" in self.launchers.log(rank) for rank in others)

    def verdict(self):
        """None where nobody had to be named; else what node 0 said, and whether that is right."""
        if not self.strike():
            self.launchers.wait()
            return None
        self.test.wait_for(self.is_over, f"{self}: the end")
        if self.number == STOP and self.launchers.poll() is None:
            os.kill(self.pid, signal.SIGCONT)
        codes = set(self.launchers.wait())
        if codes == {DONE}:
            return None
        texts = [self.launchers.errors(node) for node in self.launchers.processes]
        return texts[0], all(self.is_right(codes, text) for text in texts)

    def is_right(self, codes, text):
        told = [line for line in text.splitlines()
                if re.match(r"tandem launch: (another node|ranks? [\d, -]+ (was|were|is|are|failed))|"
                            r"tandem: error: ranks? [\d, -]+ (was|were|is|are|failed) ", line) and "kill -CONT" not in line]
        if not told:
            return False
        if self.number == STOP:
            return codes == {FAILED} and f"rank {self.rank} was stopped (SIGSTOP)" in told[-1]
        # Another that dies of the launcher's SIGTERM, before it listens, has saved nothing, nor lost anything.
        if codes in ({INTERRUPTED}, {128 + TERM}):
            return all(f"rank {self.rank} was interrupted" in line for line in told)
        # It had not begun to listen.
        return codes == {FAILED} and f"rank {self.rank} failed with signal 15 (SIGTERM)" in told[0]


class Verdicts(ranks.RanksTest, kill.StoppedRuns):
    def setUp(self):
        super().setUp()
        self.num_hits = 0
        (self.directory / "tmp").mkdir()
        self.environment = {"TMPDIR": str(self.directory / "tmp")}

    def check(self, number, times, cases):
        """`cases` are (moment, num_ranks, rank)."""
        rng = random.Random(number)
        named, wrong = {}, []
        for moment, num_ranks, rank in cases:
            for _ in range(times):
                hit = Hit(self, number, moment, num_ranks, rank, rng)
                verdict = hit.verdict()
                if verdict is None:
                    continue
                right, hits = named.get(moment, (0, 0))
                named[moment] = right + verdict[1], hits + 1
                if not verdict[1]:
                    wrong.append(f"{hit}:\n{verdict[0]}")
        if _all:
            for moment, (right, hits) in named.items():
                print(f"{number.name} while {moment}: {right} of {hits} named right", flush=True)
        self.assertEqual([], wrong, "\n".join(wrong[:5]))
        self.assertTrue(named, "no signal met a run in time")

    def everywhere(self):
        return [(moment, num_ranks, rank) for moment in MOMENTS for num_ranks in (2, 3, 4) for rank in range(num_ranks)]

    def test_a_rank_that_got_sigterm(self):
        some = [(moment, 2 + number % 2, number % 2) for number, moment in enumerate(MOMENTS)]
        self.check(TERM, *((4, self.everywhere()) if _all else (2, some)))

    def test_a_rank_that_was_stopped(self):
        some = [(STARTING, 2, 0), (STEPPING, 3, 2), (SAVING, 2, 1)]
        self.check(STOP, *((2, self.everywhere()) if _all else (1, some)))


MESHES = {"ddp": mesh("ddp", data=2), "fsdp": mesh("fsdp", data=3), "tensor": mesh(tensor=2),
          "pipeline": mesh(pipeline=2), "all": mesh("fsdp", data=2, pipeline=2)}
LARGE_MESHES = {"ddp on 8": mesh("ddp", data=8), "fsdp on 6": mesh("fsdp", data=6), "tensor on 4": mesh(tensor=4),
                "pipeline on 4": mesh(pipeline=4), "all on 8": mesh("fsdp", data=2, tensor=2, pipeline=2)}
PATIENCE_S = 240  # a loop has to have had a core for two seconds, and shares it with whatever else is tested
COMMAND = re.compile(r"in (\w+)(?: of block (\d+))? \((?:pass \d+ of \d+|update|evaluation|gather), command (\d+) of (\d+)\)")
PLACE = rf"({COMMAND.pattern}|while it [a-z ]+(, in step \d+)?|between commands, in step \d+|in [a-z_]+ .*?|at its end)"
FAULT = re.compile(r"^fault: loops in (\w+) of block (-?\d+) \(command (\d+) of (\d+)\)$", re.M)


class Hindrance:
    """A launch of which one rank is stopped, or computes for ever, with default settings."""

    def __init__(self, test, number, rng):
        meshes = {**MESHES, **LARGE_MESHES} if _tries else MESHES
        self.test, self.name = test, rng.choice(list(meshes))
        self.loops = number % 2 == 1
        content = config(GPT2, parallel=meshes[self.name], checkpoint={"every": 20},
                         train={"steps": 100000, "batch": 24 if _tries else 12, "micro_batch": 1, "eval_every": 50})
        self.num_ranks = ranks.num_processes(content)
        self.rank, self.run = rng.randrange(self.num_ranks), test.directory / f"hindered-{number}"
        self.rows, self.early = rng.randint(0, 30), rng.random() < 0.2
        fault = f"loop:{self.rank}:{rng.randint(1, 30)}:{rng.randrange(10000)}" if self.loops else ""
        self.delay = rng.uniform(0, 0.5)
        self.launchers = test.start_ranks(self.num_ranks, *test.train_command(content, self.run.name),
                                          env={"TANDEM_TEST_FAULT": fault, **test.environment})

    def __str__(self):
        return f"{'a loop in' if self.loops else 'SIGSTOP to'} rank {self.rank} of {self.num_ranks} ({self.name})"

    def fault(self):
        return FAULT.search(self.launchers.log(self.rank))

    def is_time(self):
        if self.loops:
            return self.fault() is not None
        known = len(re.findall(HEADING, "".join(map(self.launchers.log, range(self.num_ranks))))) == self.num_ranks
        return known and (self.early or kill.num_lines(self.run / "metrics.jsonl") >= self.rows)

    def wait_for(self, condition, what):
        deadline = time.monotonic() + PATIENCE_S
        while True:
            over = time.monotonic() > deadline or self.launchers.poll() is not None
            if condition():  # the last thing that launchers do may have made it true
                return
            if over:
                self.test.fail(f"{self}: waited in vain for {what}:\n{self.errors()}")
            time.sleep(0.02)

    def strike(self):
        self.wait_for(self.is_time, "its moment")
        if not self.loops:
            time.sleep(self.delay)
            os.kill(self.launchers.pid(self.rank), STOP)

    def errors(self):
        return "".join(map(self.launchers.errors, self.launchers.processes))

    def line(self):
        found = re.search(r"^tandem launch: (rank \d+ on \S+ is (?:stopped|stuck) .*)$", self.errors(), re.M)
        return found and found[1]

    def wait(self):
        """How long the rank had hindered the others when it was named, in seconds."""
        self.wait_for(self.line, "a verdict")
        return float(re.search(r" for ([\d.]+) s", self.line())[1])

    def wrong(self):
        """What is wrong with the verdict; empty where it is right."""
        codes = set(self.launchers.wait())
        line, kind = self.line(), "stuck" if self.loops else "stopped"
        if codes != {FAILED} or self.errors().count(f" is {kind} ") != 1:
            return f"{self}: exit codes {codes}:\n{self.errors()}"
        if not re.fullmatch(rf"rank {self.rank} on \S+ is {kind} {PLACE} for [\d.]+ s(; ranks? [\d, -]+ waits? for it)?", line):
            return f"{self}: {line}"
        if self.loops:
            name, block, index, of = self.fault().groups()
            place = f"in {name}{'' if block == '-1' else f' of block {block}'} ("
            if place not in line or f"command {index} of {of})" not in line:
                return f"{self}: {self.fault()[0]}, but: {line}"
        return self.wrong_files(line, kind) if self.run.is_dir() else ""

    def wrong_files(self, line, kind):
        events = [json.loads(text) for text in (self.run / "events.jsonl").read_text().splitlines()]
        # Who is slow beside it is another matter.
        told = [event for event in events if event["type"] == "verdict" and event["kind"] != "slow"]
        if [event["message"] for event in told] != [line]:
            return f"{self}: events {told}, but: {line}"
        hang = json.loads((self.run / told[0]["file"]).read_text())
        places = {place["rank"]: place for place in hang["ranks"]}
        if hang["verdict"] != line or sorted(places) != list(range(self.num_ranks)) or not places[self.rank]["threads"]:
            return f"{self}: {told[0]['file']}: {hang}"
        at = COMMAND.search(line)
        if at and (hang["command"], hang["block"], hang["index"], hang["commands"]) != (
                at[1], at[2] and int(at[2]), int(at[3]), int(at[4])):
            return f"{self}: {hang}, but: {line}"
        return ""


class Hindered(ranks.RanksTest, kill.StoppedRuns):
    def setUp(self):
        super().setUp()
        (self.directory / "tmp").mkdir()
        self.environment = {"TMPDIR": str(self.directory / "tmp")}

    def test_who_hinders_the_others_is_named_with_its_command(self):
        rng, seconds, wrong = random.Random(7), [], []
        for first in range(0, _tries or 4, 2):
            some = [Hindrance(self, number, rng) for number in range(first, first + 2)]
            for each in some:
                each.strike()
            seconds += [each.wait() for each in some]
            wrong += list(filter(None, (each.wrong() for each in some)))
            if _tries:
                print(f"{len(seconds) - len(wrong)} of {len(seconds)} named right, after {max(seconds):.1f} s at most, "
                      f"{sum(seconds) / len(seconds):.1f} in the mean", flush=True)
        self.assertEqual([], wrong, "\n".join(wrong[:5]))

    def start_with(self, fault, parallel, *flags):
        content = config(GPT2, parallel=parallel, train={"steps": 100000, "batch": 4, "micro_batch": 1}, checkpoint={"every": 5})
        return self.start_ranks(2, *flags, *self.train_command(content, "run"),
                                env={"TANDEM_TEST_FAULT": fault, **self.environment})

    def test_where_a_message_is_lost_and_all_wait_it_is_told_what_each_waits_for(self):
        launchers = self.start_with("lose:0:3:4", mesh(pipeline=2), "--stuck-after", 1)
        self.assertEqual({FAILED}, set(launchers.wait()))
        self.assertIn("fault: loses a message", launchers.log(0))
        place = r"in \w+(?: of block \d)? \(pass 1 of 1, command \d+ of \d+\)"
        self.assertRegex(launchers.errors(0), "(?m)^tandem launch: all ranks wait in collectives for [0-9.]+ s, and nothing moves: "
                         f"rank 0 {place} for rank 1; rank 1 {place} for rank 0$")
        self.assertRegex(launchers.errors(0), "(?m)^tandem: error: all ranks wait in collectives")
        event = tandem_run.read_events(self.directory / "run", "verdict")[-1]
        self.assertEqual("waiting", event["kind"])
        self.assertTrue((self.directory / "run" / event["file"]).exists())

    def test_told_to_end_a_launcher_does_not_wait_for_a_rank_that_cannot(self):
        launchers = self.start_with("loop:1:3:40", mesh("ddp", data=2))
        self.wait_for(lambda: FAULT.search(launchers.log(1)), "the loop")
        for process in launchers.processes.values():
            process.send_signal(TERM)
        self.assertEqual({FAILED}, set(launchers.wait()))  # of minutes of grace it needs seconds
        self.assertRegex(launchers.errors(0), r"(?m)^tandem launch: rank 1 on \S+ is stuck in .*; rank 0 waits for it$")

    def test_after_a_verdict_the_run_goes_on_to_the_same_bits(self):
        content = config(GPT2, parallel=mesh("ddp", data=2), train={"steps": 30, "batch": 4, "micro_batch": 1},
                         checkpoint={"every": 5})
        self.train(content, "whole")
        launchers = self.start_ranks(2, "--max-restarts", 1, *self.train_command(content, "went-on"),
                                     env={"TANDEM_TEST_FAULT": "loop:1:12:40", **self.environment})
        self.assertEqual({DONE}, set(launchers.wait()), launchers.errors(0))
        self.assertIn("; restarting all ranks (1 of 1)", launchers.errors(0))
        self.assert_equal_runs(self.directory / "whole", self.directory / "went-on")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--tries", type=int, default=0)
    known, sys.argv[1:] = parser.parse_known_args()
    _all, _tries = known.all, known.tries
    ranks.main()
