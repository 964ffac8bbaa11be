"""A bit that turns in one rank's memory or arithmetic (checkpoint.replay): the rank and the tensor are named, the evidence
is kept, and the run goes on from a checkpoint that was proven, to the bits of one that nobody disturbed.

With `--tries N`, N random flips of each kind, and how many were found."""

import argparse
import json
import pathlib
import random
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "dist"))

import ranks  # noqa: E402
from ranks import GPT2, config, mesh  # noqa: E402
from tandem_run import BAD_USAGE, DONE  # noqa: E402

EVERY, STEPS = 4, 16
TURNED = "fault: turned a bit"
REPLICAS = r"step (\d+): rank (\d+) has not the bits of (\S+) in (\S+) that the others have"
TWICE = r"step (\d+): rank (\d+) \(.*\) took the step twice from the same state and got other bits in (\S+) in (\S+)"

_tries = 0


def content(data, every=EVERY, **parallel):
    return config(GPT2, parallel=mesh("ddp", data=data, **parallel), train={"steps": STEPS, "batch": 12, "micro_batch": 2},
                  checkpoint={"every": 5, "replay": every})


class Corruption(ranks.RanksTest):
    def undisturbed(self, data):
        return self.train(content(data, every=0), f"whole-{data}")

    def hit(self, name, data, rank, step, number):
        """Trains with a bit turned, and a restart allowed; returns what the launcher said, and what ranks did."""
        path = self.write_config(content(data), f"{name}.yaml")
        launchers = self.start_ranks(data, "--max-restarts", 1, "train", path, "--run-dir", self.directory / name,
                                     env={"TANDEM_TEST_FAULT": f"flip:{rank}:{step}:{number}"})
        codes = launchers.wait()
        logs = "".join(map(launchers.log, range(data)))
        self.assertEqual([DONE], codes, logs)
        self.assertIn(TURNED, logs)
        return launchers.errors(0) + logs

    def assert_named(self, told, pattern, rank, step, run):
        found = re.search(pattern, told)
        self.assertTrue(found, told)
        self.assertEqual(rank, int(found[2]), told)
        self.assertLessEqual(step, int(found[1]))
        self.assertLess(int(found[1]), step + EVERY)
        kept = run / "corruption" / f"step-{found[1]}-rank-{rank}"
        self.assertEqual(f"{found[3]} in {found[4]}", json.loads(kept.with_suffix(".json").read_text())["tensor"])
        self.assertGreater(kept.with_suffix(".bin").stat().st_size, 0)

    def test_taking_steps_twice_changes_nothing(self):
        self.assert_equal_runs(self.undisturbed(2), self.train(content(2), "proven"))
        self.assertFalse((self.directory / "proven" / "corruption").exists())

    def test_a_weight_that_changes_by_itself(self):
        rng, whole = random.Random(3), self.undisturbed(3)
        for number in range(_tries or 1):
            rank, step = rng.randrange(3), rng.choice([step for step in range(1, STEPS) if step % EVERY])
            run = self.directory / f"weight-{number}"
            told = self.hit(run.name, 3, rank, step, 0)
            self.assert_named(told, REPLICAS, rank, step, run)
            self.assert_equal_runs(whole, run)
        if _tries:
            print(f"{_tries} of {_tries} weights found, the rank and the tensor named", flush=True)

    def test_a_number_that_is_computed_wrongly(self):
        rng, whole, found = random.Random(4), self.undisturbed(2), 0
        for number in range(_tries or 1):
            rank, step = rng.randrange(2), EVERY * rng.randint(1, STEPS // EVERY)
            run = self.directory / f"value-{number}"
            told = self.hit(run.name, 2, rank, step, -rng.randint(1, 40))
            if "restarting" in told:
                self.assert_named(told, TWICE, rank, step, run)
                found += 1
            self.assert_equal_runs(whole, run)  # what was not found has changed nothing
        self.assertGreater(found, 0)
        if _tries:
            print(f"{found} of {_tries} numbers found, the rank named; the others changed no result", flush=True)

    def test_nothing_to_go_back_to_is_refused(self):
        path = self.write_config(config(GPT2, checkpoint={"every": 0, "replay": 2}))
        self.refuse(BAD_USAGE, ("checkpoint.replay", "checkpoint.every"), "train", path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--tries", type=int, default=0)
    known, sys.argv[1:] = parser.parse_known_args()
    _tries = known.tries
    ranks.main()
