"""parallel.elastic: data: ranks are killed, the run goes on with those that are left, and later with all of them again.
Each sample is trained on once and in its place, and the run equals one that nobody disturbed.

One loss by default; `--losses N` for more, of up to two ranks at once, at random moments, and for sums in the mesh's order.
"""

import argparse
import os
import pathlib
import random
import re
import signal
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "dist"))

import kill  # noqa: E402
import ranks  # noqa: E402
import tandem_run  # noqa: E402
from ranks import GPT2, LLAMA, config  # noqa: E402

RANKS = 4
RETURN_S = 1
STEPS_EACH = 300  # of a run for each loss: enough for ranks to go and come back
LOSS_BOUND = 1e-5
HEADING = re.compile(r"^--- .* attempt (\d+) on .*, rank \d+, pid (\d+)$", re.M)
parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
parser.add_argument("--losses", type=int, default=1)
known, sys.argv[1:] = parser.parse_known_args()


class ElasticRuns(ranks.RanksTest, kill.StoppedRuns):
    one_node_only = "the launcher of one node decides how many ranks there are"

    def content(self, model, precision, reproducible, steps, **train):
        return config(model, precision=precision, checkpoint={"every": 20, "keep": 2},
                      parallel={"strategy": "fsdp", "elastic": "data", "reproducible": reproducible, "timeout": 20},
                      train={"steps": steps, "batch": 16, "micro_batch": 2, "warmup": 5, "eval_every": 100, "clip": 0.5,
                             **train})

    def pids(self, launchers):
        """{rank: pid} of the attempt that runs."""
        found = {}
        for rank in range(RANKS):
            for match in HEADING.finditer(launchers.log(rank)):
                found.setdefault(int(match[1]), {})[rank] = int(match[2])
        return found[max(found)] if found else {}

    def rows(self, run):
        return kill.num_lines(run / "metrics.jsonl")

    def wait_for_line(self, launchers, line, before):
        """Until the launcher has said it once more. False where the run ended before."""
        return self.wait_until(launchers, lambda: launchers.errors(0).count(line) > before, line)

    def lose(self, launchers, run, rng, count):
        """Kills ranks after some more steps, and waits until all are there again. False where the run ended before."""
        rows = self.rows(run) + rng.randint(2, 30)
        if not self.wait_until(launchers, lambda: self.rows(run) >= rows, "steps"):
            return False
        fewer, all_again = f"going on with {RANKS - count} of {RANKS} ranks", f"going on with {RANKS} ranks"
        before = [launchers.errors(0).count(line) for line in (fewer, all_again)]
        for pid in rng.sample(sorted(self.pids(launchers).values()), count):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                return False
        return self.wait_for_line(launchers, fewer, before[0]) and self.wait_for_line(launchers, all_again, before[1])

    def check(self, content, losses, seed):
        """An undisturbed run, and one whose ranks go and come back."""
        rng = random.Random(seed)
        command = ("launch", "--nproc-per-node", RANKS, *self.train_command(content, "undisturbed"))
        self.tandem(*command)
        run = self.directory / "run"
        launchers = self.start_ranks(RANKS, "--max-restarts", 1000, "--return-after", RETURN_S,
                                     *self.train_command(content, run.name))
        met = 0
        while met < losses and self.lose(launchers, run, rng, rng.choice((1, 1, 2))):
            met += 1
        result = launchers.results()[0]
        self.assertEqual(tandem_run.DONE, result.code, result)
        self.assertEqual(losses, met, f"the run was over too soon: {result}")
        self.assertEqual([], [*(run / "checkpoints").glob(".tmp*")])
        return self.directory / "undisturbed", run

    def test_the_same_bits(self):
        content = self.content(GPT2, "fp32", "layout", STEPS_EACH * (known.losses + 1))
        self.assert_equal_runs(*self.check(content, known.losses, 1))

    @unittest.skipUnless(known.losses > 1, "with --losses")
    def test_the_same_samples_within_rounding(self):
        content = self.content(LLAMA, "fp32", "mesh", STEPS_EACH * (known.losses + 1), lr=3e-5)
        whole, run = self.check(content, known.losses, 2)
        self.assert_close_runs(whole, run, LOSS_BOUND, without=("grad_norm",))
        self.assertEqual(tandem_run.read_samples(whole), tandem_run.read_samples(run))


class AfterElasticRuns(ranks.RanksTest):
    one_node_only = "one node is enough"

    def test_other_commands_take_its_run_and_its_config(self):
        content = config(GPT2, parallel={"strategy": "fsdp", "elastic": "data"},
                         train={"steps": 4, "batch": 8, "micro_batch": 2}, checkpoint={"every": 2})
        path = self.write_config(content)
        run = self.directory / "run"
        train = lambda ranks, file, *more: self.tandem(*(("launch", "--nproc-per-node", ranks) if ranks else ()), "train", file, "--run-dir", run, *more)
        train(2, path)
        for words in (("evaluate", run), ("sample", run, "--tokens", "3"), ("inspect", run, "--verify"), ("info", run), ("status", run),
                      ("export", run, self.directory / "out"), ("explain", run / "config.yaml"), ("evaluate", run, "--set", "data.eval_samples=16"),
                      ("bench", run / "config.yaml", "--steps", "1"), ("sweep", run / "config.yaml", "--grid", "train.lr=1e-3", "--dir", "sweep")):
            with self.subTest(command=words[0]):
                self.tandem(*words)
        # Its own config, with other ranks than it had.
        train(3, run / "config.yaml", "--set", "train.steps=6")
        train(None, run / "config.yaml", "--set", "train.steps=8")
        self.assertEqual(1, tandem_run.read_summary(run)["world_size"])
        self.assertEqual(list(range(1, 9)), [int(row["step"]) for row in tandem_run.read_metrics(run)])

    def test_a_plan_is_told_for_how_many_ranks(self):
        path = self.write_config(config(GPT2, parallel={"strategy": "fsdp", "elastic": "data"}, train={"batch": 8, "micro_batch": 2}))
        for ranks_given in (1, 4):
            plan = self.tandem("plan", path, "--set", f"parallel.data={ranks_given}").out
            self.assertIn(f"data {ranks_given} (fsdp)" if ranks_given > 1 else "", plan)


class Refusals(ranks.RanksTest):
    one_node_only = "no rank is started"

    def test_what_is_not_elastic(self):
        content = config(GPT2, parallel={"strategy": "single", "elastic": "data"})
        self.refuse(tandem_run.BAD_USAGE, ["use parallel.strategy = ddp"], "plan", self.write_config(content))


if __name__ == "__main__":
    ranks.main()
