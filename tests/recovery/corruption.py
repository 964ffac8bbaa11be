"""A bit that turns in one rank's memory or arithmetic (checkpoint.replay): the rank and the tensor are named, the evidence
is kept, and the run goes on from a checkpoint that was proven, to the bits of one that nobody disturbed.

A few settings; with `--tries N` all of them, N random flips of each kind in each, and how many were found."""

import argparse
import json
import pathlib
import random
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "dist"))

import ranks  # noqa: E402
from ranks import GPT2, LLAMA, RESNET, config, mesh  # noqa: E402
from tandem_run import BAD_USAGE, DONE  # noqa: E402

EVERY, STEPS = 4, 16
TURNED = "fault: turned a bit"
REPLICAS = r"step (\d+): rank (\d+) has not the bits of (\S+) in (\S+) that the others have"
TWICE = r"step (\d+): rank (\d+) \(.*\) took the step twice from the same state and got other bits in (\S+) in (\S+)"
SEALED = r"step (\d+): rank (\d+) \(.*\) finds other bits in (\S+) in (\S+) than the update before has left there"

SETTINGS = {
    "ddp": (GPT2, mesh("ddp", data=3), "fp32"),
    "zero1": (GPT2, mesh("zero1", data=2), "fp32"),
    "fsdp": (GPT2, mesh("fsdp", data=3), "fp32"),
    "tensor": (GPT2, mesh(tensor=2), "fp32"),
    "pipeline": (GPT2, mesh(pipeline=2), "fp32"),
    "all": (GPT2, mesh("fsdp", data=2, tensor=2), "fp32"),
    "ddp bf16": (GPT2, mesh("ddp", data=2), "bf16"),
    "llama fsdp bf16": (LLAMA, mesh("fsdp", data=2), "bf16"),
    "llama pipeline": (LLAMA, mesh(pipeline=2), "fp32"),
    "resnet ddp": (RESNET, mesh("ddp", data=2), "fp32"),
    "resnet fsdp bf16": (RESNET, mesh("fsdp", data=2), "bf16"),
}
SOME = ("llama fsdp bf16", "pipeline")

_tries = 0


def content(name, every=EVERY):
    model, parallel, precision = SETTINGS[name]
    return config(model, parallel=parallel, precision=precision, train={"steps": STEPS, "batch": 12, "micro_batch": 2},
                  checkpoint={"every": 5, "replay": every})


class Corruption(ranks.RanksTest):
    def setUp(self):
        super().setUp()
        self.num_hits = 0

    def undisturbed(self, name):
        run = self.directory / f"whole-{name.replace(' ', '-')}"
        return run if run.exists() else self.train(content(name, every=0), run.name)

    def hit(self, name, fault, rank, step, number):
        """Trains with a bit turned, and a restart allowed; returns the run, and what the launcher and the ranks said."""
        self.num_hits += 1
        run = self.directory / f"hit-{self.num_hits}"
        made = content(name)
        launchers = self.start_ranks(ranks.num_processes(made), "--max-restarts", 1, "train",
                                     self.write_config(made, f"{run.name}.yaml"), "--run-dir", run,
                                     env={"TANDEM_TEST_FAULT": f"{fault}:{rank}:{step}:{number}"})
        codes = launchers.wait()
        logs = "".join(map(launchers.log, range(ranks.num_processes(made))))
        self.assertEqual([DONE], codes, logs)
        self.assertIn(TURNED, logs)
        told = launchers.errors(0) + logs
        self.assert_equal_runs(self.undisturbed(name), run)  # whether it was found, or changed nothing
        return run, told

    def assert_named(self, told, pattern, rank, step, run):
        found = re.search(pattern, told)
        self.assertTrue(found, told)
        self.assertEqual(rank, int(found[2]), told)
        self.assertLessEqual(step, int(found[1]))
        self.assertLess(int(found[1]), step + EVERY)
        kept = run / "corruption" / f"step-{found[1]}-rank-{rank}"
        self.assertEqual(f"{found[3]} in {found[4]}", json.loads(kept.with_suffix(".json").read_text())["tensor"])
        self.assertGreater(kept.with_suffix(".bin").stat().st_size, 0)

    def rank_of(self, name, rng):
        return rng.randrange(ranks.num_processes(content(name)))

    def test_taking_steps_twice_changes_nothing(self):
        for name in SETTINGS if _tries else SOME:
            with self.subTest(setting=name):
                run = f"proven-{name.replace(' ', '-')}"
                self.assert_equal_runs(self.undisturbed(name), self.train(content(name), run))
                self.assertFalse((self.directory / run / "corruption").exists())

    def test_states_in_fewer_bits_are_proven_where_ranks_have_parts_of_them(self):
        for strategy in ("zero1", "fsdp"):
            for kind in ("bf16", "int8"):
                with self.subTest(strategy=strategy, kind=kind):
                    made = config(GPT2, parallel=mesh(strategy, data=2), checkpoint={"every": 5, "replay": 2},
                                  train={"steps": 6, "batch": 12, "micro_batch": 2, "optimizer_state": kind})
                    self.train(made, f"{strategy}-{kind}")

    def test_a_weight_or_a_state_that_changes_by_itself(self):
        rng = random.Random(3)
        for name in SETTINGS if _tries else SOME:
            for number in range(_tries or 1):
                with self.subTest(setting=name, number=number):
                    rank, step = self.rank_of(name, rng), rng.randint(2, STEPS)
                    run, told = self.hit(name, "rust", rank, step, rng.randrange(10000))
                    self.assert_named(told, SEALED, rank, step, run)
            if _tries:
                print(f"{name}: {_tries} weights and states tried", flush=True)

    def test_a_replica_that_is_updated_wrongly(self):
        rng = random.Random(5)
        for number in range(_tries or 1):
            rank, step = rng.randrange(3), rng.choice([step for step in range(1, STEPS) if step % EVERY])
            run, told = self.hit("ddp", "bend", rank, step, rng.randint(1, 4))
            self.assert_named(told, REPLICAS, rank, step, run)

    def test_a_number_that_is_computed_wrongly(self):
        rng = random.Random(4)
        for name in SETTINGS if _tries else SOME:
            found = 0
            for number in range(_tries or 2):
                with self.subTest(setting=name, number=number):
                    rank, step = self.rank_of(name, rng), EVERY * rng.randint(1, STEPS // EVERY)
                    run, told = self.hit(name, "flip", rank, step, -rng.randint(1, 40))
                    if "restarting" in told:
                        self.assert_named(told, TWICE, rank, step, run)
                        found += 1
            if _tries:
                print(f"{name}: {found} of {_tries} numbers found, the rank named; the others changed no result", flush=True)
            self.assertGreater(found, 0)

    def test_nothing_to_go_back_to_is_refused(self):
        path = self.write_config(config(GPT2, checkpoint={"every": 0, "replay": 2}))
        self.refuse(BAD_USAGE, ("checkpoint.replay", "checkpoint.every"), "train", path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--tries", type=int, default=0)
    known, sys.argv[1:] = parser.parse_known_args()
    _tries = known.tries
    ranks.main()
