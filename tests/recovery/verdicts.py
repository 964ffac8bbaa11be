"""One rank gets SIGTERM or SIGSTOP from somebody, at any moment: the launcher names that rank and no other.

A few hits of each kind; with `--all` every rank of 2, 3 and 4 at every moment, several times over, and a table of how often
the right one was named.
"""

import argparse
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
from ranks import GPT2, config, mesh  # noqa: E402
from tandem_run import DONE, FAILED, INTERRUPTED  # noqa: E402

STEPS = 40
TIMEOUT_S = 2  # of the ranks, for each other
TERM, STOP = signal.SIGTERM, signal.SIGSTOP
STARTING, COMPILING, STEPPING, SAVING, ENDING = MOMENTS = "starting", "compiling", "stepping", "saving", "ending"
HEADING = re.compile(r"^--- .*, rank \d+, pid (\d+)$", re.M)

_all = False


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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--all", action="store_true")
    known, sys.argv[1:] = parser.parse_known_args()
    _all = known.all
    ranks.main()
