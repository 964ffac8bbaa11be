"""How long a run is, how its batches grow, what it evaluates, which checkpoint it keeps and when it ends: the same on every
strategy, and after a resume."""

import json
import os
import re

import ranks
import tandem_run
from ranks import GPT2, RanksTest, config, mesh
from tandem_run import BAD_USAGE, checkpoint, read_events, read_metrics, read_summary

STEADY = {"schedule": "constant", "warmup": 2}  # so that a shorter run is the beginning of a longer one
CONTEXT = GPT2["context"]


def numbers(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


class Ramp(RanksTest):
    TRAIN = {**STEADY, "steps": 7, "batch": 16, "micro_batch": 2, "batch_ramp": [[3, 4], [5, 8]]}

    def ramp(self, parallel=None, **train):
        return config(GPT2, parallel=parallel or mesh(), train={**self.TRAIN, **train})

    def test_batches_grow_and_every_strategy_sees_the_same(self):
        ddp = self.train(self.ramp(mesh("ddp", 2)), "ddp")
        samples = [int(row["tokens"]) // CONTEXT for row in read_metrics(ddp)]
        self.assertEqual([4, 8, 12, 20, 28, 44, 60], samples)
        for strategy in ("zero1", "zero2", "fsdp"):
            with self.subTest(strategy=strategy):
                self.assert_equal_runs(ddp, self.train(self.ramp(mesh(strategy, 2)), strategy))
        once = self.train(self.ramp(mesh("ddp", 2, sync="step")), "once")
        self.assert_close_runs(ddp, once, 1e-5)
        self.assert_close_runs(ddp, self.train(self.ramp(), "alone"), 1e-5)

    def test_a_resumed_run_goes_on_in_the_ramp(self):
        whole = self.train(self.ramp(), "whole")
        for stop in (2, 4, 6):
            with self.subTest(stop=stop):
                run = self.train(self.ramp(steps=stop), f"part-{stop}")
                self.train(self.ramp(), f"part-{stop}")
                self.assert_equal_runs(whole, run)


class LossTerms(RanksTest):
    TERMS = {"label_smoothing": 0.1, "z_loss": 0.01}

    def terms(self, parallel=None, memory=None, model=GPT2, **train):
        train = {**STEADY, "steps": 4, "batch": 8, "micro_batch": 2, "eval_every": 4, **self.TERMS, **train}
        return config(model, parallel=parallel or mesh(), memory=memory or {}, train=train)

    def test_the_same_bits_whoever_computes_them(self):
        ddp = self.train(self.terms(mesh("ddp", 2)), "ddp")
        for strategy in ("zero2", "fsdp"):
            self.assert_equal_runs(ddp, self.train(self.terms(mesh(strategy, 2)), strategy))
        alone = self.train(self.terms(), "alone")
        self.assert_close_runs(ddp, alone, 1e-5)
        self.assert_equal_runs(alone, self.train(self.terms(memory={"recompute": "full"}), "recomputed"))
        self.assert_equal_runs(alone, self.train(self.terms(mesh(pipeline=2)), "pipeline"))
        part = self.train(self.terms(steps=2, eval_every=0), "part")
        self.train(self.terms(), "part")
        self.assert_equal_runs(alone, part)

    def test_only_the_loss_of_training_has_them(self):
        """Before the first step: the loss of a model that knows nothing is log(vocab) about, and Z too."""
        plain = numbers(self.train(self.terms(label_smoothing=0, z_loss=0, lr=0), "plain"))
        both = numbers(self.train(self.terms(lr=0), "both"))
        self.assertEqual(plain[-1]["eval_loss"], both[-1]["eval_loss"])
        added = both[0]["loss"] - plain[0]["loss"]
        self.assertAlmostEqual(0.01 * plain[0]["loss"] ** 2, added, delta=0.02)
        chunked = {**GPT2, "vocab": 9000}  # whose loss works in chunks
        for run, more in (("whole", {}), ("chunked", {"memory": {"scratch": "1MiB"}})):
            self.train({**self.terms(model=chunked, steps=2, eval_every=0), **more}, run)
        self.assert_close_runs(self.directory / "whole", self.directory / "chunked", 1e-5)

    def test_a_split_vocabulary_is_refused(self):
        self.refuse(BAD_USAGE, ["train.label_smoothing: the loss of a split vocabulary is plain cross-entropy", "parallel.tensor = 1"],
                    "plan", self.write_config(self.terms()), "--set", "parallel.tensor=2")


class Length(RanksTest):
    def test_tokens_and_epochs_are_steps(self):
        text = self.directory / "book.txt"
        text.write_text("It was the best of times, it was the worst of times. " * 40)
        content = config(GPT2, data={"train": str(text)}, train={"batch": 8, "micro_batch": 4, "warmup": 0})
        del content["train"]["steps"]
        by_epochs = self.write_config({**content, "train": {**content["train"], "epochs": 2}}, "epochs.yaml")
        told = self.tandem("explain", by_epochs).out
        steps = int(re.search(r"^train.steps +(\d+) +derived from train.epochs", told, re.M)[1])
        run = self.directory / "run"
        self.tandem("train", by_epochs, "--run-dir", run)
        rows = read_metrics(run)
        self.assertEqual(steps, len(rows))
        self.assertEqual("1", rows[-2]["epoch"])  # the second, up to the step that fills the last batch
        windows = 8 * (steps - 1) / 2
        self.assertLess(windows, 40 * 53 / CONTEXT)
        by_tokens = self.write_config({**content, "train": {**content["train"], "tokens": 8 * CONTEXT * 5 + 1}}, "tokens.yaml")
        self.assertRegex(self.tandem("explain", by_tokens).out, r"(?m)^train.steps +6 +derived from train.tokens")
        self.refuse(BAD_USAGE, ["--set train.tokens", "is 6 steps, but train.steps is 7", "keep one"], "plan",
                    self.write_config(content), "--set", f"train.tokens={8 * CONTEXT * 6}", "--set", "train.steps=7")


class Evaluations(RanksTest):
    def test_sets_with_names_have_a_loss_each(self):
        text = self.directory / "book.txt"
        text.write_text("Call me Ishmael. Some years ago, never mind how long precisely. " * 60)
        sets = [{"path": "builtin:stories", "name": "stories"}, {"path": str(text), "name": "book"}]
        train = {**STEADY, "steps": 4, "batch": 8, "micro_batch": 2, "eval_every": 2, "eval_at_start": True}
        content = config(GPT2, data={"eval": sets}, train=train, checkpoint={"best": "eval_loss/book"})
        run = self.train(content, "run")
        rows = [row for row in numbers(run) if "eval_loss" in row]
        self.assertEqual([2, 4], [row["step"] for row in rows])
        for row in rows:  # of both sets as many samples
            self.assertAlmostEqual(row["eval_loss"], (row["eval_loss/stories"] + row["eval_loss/book"]) / 2, 5)
        at_start = read_events(run, "eval")[0]
        self.assertEqual(0, at_start["step"])
        self.assertGreater(at_start["eval_loss/book"], rows[0]["eval_loss/book"])
        best = self.directory / "run" / "checkpoints" / "best"
        self.assertEqual("step-00000004", os.readlink(best))
        result = json.loads(self.tandem("evaluate", best, "--samples", 16, "--json").out)
        self.assertAlmostEqual(rows[-1]["eval_loss/book"], result["eval_loss/book"], 5)
        both = [self.train({**content, "parallel": mesh(strategy, 2)}, strategy) for strategy in ("ddp", "fsdp")]
        self.assert_equal_runs(*both)
        self.assertEqual(*[[row.get("eval_loss/book") for row in numbers(one)] for one in both])

    def test_the_best_checkpoint_stays(self):
        """Good steps up to the sixth, then such that undo all of them."""
        train = {"schedule": "points", "points": [[0, 0.002], [6, 0.002], [7, 1]], "lr": 1.0, "warmup": 0, "clip": 1.0,
                 "steps": 12, "batch": 4, "micro_batch": 2, "eval_every": 3}
        content = config(GPT2, train=train, checkpoint={"every": 2, "keep": 1, "best": "eval_loss"})
        run = self.train(content, "run")
        losses = {row["step"]: row["eval_loss"] for row in numbers(run) if "eval_loss" in row}
        self.assertEqual(6, min(losses, key=losses.get))
        folder = run / "checkpoints"
        self.assertEqual({"step-00000006", "step-00000012", "best", "latest"}, set(os.listdir(folder)))
        self.assertEqual("step-00000006", os.readlink(folder / "best"))
        part = self.train({**content, "train": {**train, "steps": 9}}, "part")
        self.train(content, "part")
        self.assert_equal_runs(run, part)
        self.assertEqual({"step-00000006", "step-00000012", "best", "latest"}, set(os.listdir(part / "checkpoints")))
        self.tandem("inspect", folder / "best", "--compare", part / "checkpoints" / "best")
        self.tandem("export", folder / "best", self.directory / "exported")

    def test_patience_ends(self):
        """Without a learning rate nothing ever gets better."""
        train = {**STEADY, "lr": 0, "steps": 20, "batch": 4, "micro_batch": 2, "eval_every": 2, "patience": 3}
        content = config(GPT2, train=train, checkpoint={"every": 5})
        run = self.train(content, "run")
        self.assertEqual(8, len(read_metrics(run)))
        self.assertEqual(8, read_summary(run)["steps"])
        event = read_events(run, "early_stop")[0]
        self.assertEqual((8, 2), (event["step"], event["best_step"]))
        self.assertTrue(checkpoint(run, 8).is_dir())
        again = self.tandem("train", self.write_config(content), "--run-dir", run)
        self.assertIn("raise train.patience to go on", again.err)
        self.assertEqual(8, len(read_metrics(run)))
        # Killed after two of the three, and gone on with: the third counts.
        part = self.train({**content, "train": {**train, "steps": 6}}, "part")
        self.train(content, "part")
        self.assert_equal_runs(run, part)
        ranks = self.train({**content, "parallel": mesh("fsdp", 2)}, "ranks")
        self.assertEqual(8, len(read_metrics(ranks)))
        self.train({**content, "train": {**train, "patience": 4}}, "run")
        self.assertEqual(10, len(read_metrics(run)))


if __name__ == "__main__":
    ranks.main()
