"""How long a run is, how its batches grow, what it evaluates, which checkpoint it keeps and when it ends: the same on every
strategy, and after a resume."""

import json
import os
import re

import ranks
import tandem_run
from ranks import GPT2, RanksTest, config, mesh
from tandem_run import BAD_DATA, BAD_USAGE, checkpoint, read_events, read_metrics, read_summary

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


class Groups(RanksTest):
    GROUPS = [{"match": "blocks.1.*.weight", "frozen": True}, {"match": "embed.*", "lr": 0.25, "decay": 0},
              {"match": "blocks.2.*", "lr": 2, "decay": 3}]
    FROZEN = "blocks.1.up.weight"

    def groups(self, parallel=None, precision="bf16", groups=GROUPS, **others):
        train = {**STEADY, "steps": 4, "batch": 8, "micro_batch": 2, "groups": groups, **others.pop("train", {})}
        return config(GPT2, parallel=parallel or mesh(), precision=precision, train=train,
                      checkpoint={"every": 2}, **others)

    def test_every_strategy_has_the_same_bits_and_leaves_the_frozen_ones(self):
        ddp = self.train(self.groups(mesh("ddp", 2)), "ddp")
        for strategy in ("zero1", "zero2", "fsdp"):
            with self.subTest(strategy=strategy):
                self.assert_equal_runs(ddp, self.train(self.groups(mesh(strategy, 2)), strategy))
        alone = self.train(self.groups(), "alone")
        self.assert_equal_runs(alone, self.train(self.groups(mesh(pipeline=2)), "pipeline"))
        self.assert_equal_runs(alone, self.train(self.groups(memory={"recompute": "full"}), "recomputed"))
        self.assert_equal_runs(alone, self.train(self.groups(memory={"offload": ["optimizer"]}), "offloaded"))
        differ = self.tandem("inspect", checkpoint(alone, 2), "--compare", checkpoint(alone, 4), "--all", expect=None)
        self.assertIn("\nblocks.0.up.weight ", differ.out)
        self.assertNotIn(f"\n{self.FROZEN} ", differ.out)
        self.assertNotIn(f"moment1:{self.FROZEN}", (checkpoint(alone, 4) / "manifest.json").read_text())
        self.tandem("export", alone, self.directory / "exported")

    def test_a_resumed_run_goes_on_on_any_mesh_and_may_not_thaw(self):
        whole = self.train(self.groups(mesh("fsdp", 2)), "whole")
        self.train(self.groups(mesh("fsdp", 2), train={"steps": 2}), "part")
        self.assert_equal_runs(whole, self.train(self.groups(mesh("zero1", 2)), "part"))
        faster = [{**group, "lr": 3} if "lr" in group else group for group in self.GROUPS]
        self.train(self.groups(groups=faster, train={"steps": 6}), "part")
        self.refuse(BAD_DATA, ["train.groups", "it has another optimizer's state"], "train",
                    self.write_config(self.groups(groups=[], train={"steps": 8})), "--run-dir", self.directory / "part")

    def test_the_plan_falls_by_what_is_frozen(self):
        def sizes(groups):
            told = self.tandem("plan", self.write_config(self.groups(groups=groups)), "--json").out
            return json.loads(told)["planned_bytes"]
        before, after = sizes([]), sizes([{"match": "blocks.*.weight", "frozen": True}])
        for arena in ("gradients", "optimizer", "master"):
            self.assertLess(after[arena], 0.3 * before[arena])
        self.assertEqual(before["weights"], after["weights"])

    def test_patterns_that_match_nothing_are_refused(self):
        self.refuse(BAD_USAGE, ["train.groups: 'embd.*' matches no parameter", "'embed."], "plan",
                    self.write_config(self.groups(groups=[{"match": "embd.*", "frozen": True}])))


class Dropout(RanksTest):
    def dropout(self, parallel=None, rate=0.2, model=GPT2, **others):
        train = {**STEADY, "steps": 4, "batch": 8, "micro_batch": 2, "eval_every": 4, **others.pop("train", {})}
        return config({**model, "dropout": rate}, parallel=parallel or mesh(), train=train, checkpoint={"every": 2}, **others)

    def test_the_same_elements_whoever_drops_them(self):
        alone = self.train(self.dropout(), "alone")
        for name, content in (("recomputed", self.dropout(memory={"recompute": "full"})),
                              ("pipeline", self.dropout(mesh(pipeline=2)))):
            self.assert_equal_runs(alone, self.train(content, name))
        ddp = self.train(self.dropout(mesh("ddp", 2)), "ddp")
        self.assert_equal_runs(ddp, self.train(self.dropout(mesh("fsdp", 2)), "fsdp"))
        for run, content in ((ddp, None), ("tensor", self.dropout(mesh(tensor=2))), ("whole", self.dropout(train={"micro_batch": 8}))):
            other = run if content is None else self.train(content, run)
            self.assert_close_runs(alone, other, 1e-5)  # with other elements dropped the loss differs by far more
        self.train(self.dropout(train={"steps": 2, "eval_every": 0}), "part")
        self.assert_equal_runs(alone, self.train(self.dropout(), "part"))

    def test_evaluation_drops_nothing(self):
        still = {"lr": 0, "weight_decay": 0}
        plain = numbers(self.train(self.dropout(rate=0, train=still), "plain"))
        dropped = numbers(self.train(self.dropout(rate=0.5, train=still), "dropped"))
        self.assertEqual(plain[-1]["eval_loss"], dropped[-1]["eval_loss"])
        self.assertGreater(abs(plain[-1]["loss"] - dropped[-1]["loss"]), 1e-4)

    def test_rates_that_leave_nothing_are_refused(self):
        self.refuse(BAD_USAGE, ["model.dropout: expected a number of at least 0 and below 1, found '1'"], "plan",
                    self.write_config(self.dropout()), "--set", "model.dropout=1")


class Ema(RanksTest):
    def ema(self, parallel=None, ema=0.5, **others):
        train = {**STEADY, "steps": 4, "batch": 8, "micro_batch": 2, "lr": 0.01, **({"ema": ema} if ema else {}), **others.pop("train", {})}
        return config(GPT2, parallel=parallel or mesh(), train=train, checkpoint={"every": 2}, **others)

    def test_every_strategy_keeps_the_same_average_and_goes_on_with_it(self):
        ddp = self.train(self.ema(mesh("ddp", 2), precision="bf16"), "ddp")
        self.assert_equal_runs(ddp, self.train(self.ema(mesh("fsdp", 2), precision="bf16"), "fsdp"))
        self.train(self.ema(mesh("zero1", 2), precision="bf16", train={"steps": 2}), "part")
        self.assert_equal_runs(ddp, self.train(self.ema(mesh("zero2", 2), precision="bf16"), "part"))
        self.assertIn('"ema:embed.weight"', (checkpoint(ddp, 4) / "manifest.json").read_text())
        self.refuse(BAD_DATA, ["train.ema", "it has another optimizer's state"], "train",
                    self.write_config(self.ema(ema=0, precision="bf16", train={"steps": 6})), "--run-dir", self.directory / "part")

    def test_it_is_evaluated_and_exported_by_choice(self):
        run, plain = self.train(self.ema(), "run"), self.train(self.ema(ema=0), "plain")
        self.assertEqual(read_metrics(run), read_metrics(plain))
        last = json.loads(self.tandem("evaluate", run, "--json").out)["eval_loss"]
        average = json.loads(self.tandem("evaluate", run, "--json", "--ema").out)["eval_loss"]
        self.assertNotEqual(last, average)
        self.tandem("export", run, self.directory / "average", "--ema")
        exported = json.loads(self.tandem("evaluate", self.directory / "average", "--json", "--set", "data.eval_samples=16").out)
        self.assertAlmostEqual(average, exported["eval_loss"], 6)
        for command in (["evaluate", plain, "--ema"], ["sample", plain, "--ema"], ["export", plain, self.directory / "none", "--ema"]):
            self.refuse(BAD_DATA, ["has no averages of its weights", "train.ema", "leave out --ema"], *command)
        self.refuse(BAD_USAGE, ["train.ema: expected a number of at least 0 and below 1"], "plan", self.write_config(self.ema()),
                    "--set", "train.ema=1")


    def evaluated(self, parallel=None, **others):
        train = {"steps": 6, "eval_every": 2, "eval_at_start": True, "ema_eval": True, **others.pop("train", {})}
        return self.ema(parallel, train=train, **others)

    def evaluations(self, run):
        return {row["step"]: (row["eval_loss"], row["eval_loss_ema"]) for row in numbers(run) if "eval_loss" in row}

    def test_training_evaluates_the_average_beside_the_weights_and_changes_no_bit(self):
        for precision in ("fp32", "bf16"):
            plain = self.train(self.ema(precision=precision, train={"steps": 6, "eval_every": 2}), f"plain-{precision}")
            run = self.train(self.evaluated(precision=precision), f"run-{precision}")
            self.assert_equal_runs(plain, run)
            losses = self.evaluations(run)
            self.assertEqual(sorted(losses), [2, 4, 6])
            for step, flags in ((6, ["--ema"]), (6, [])):
                told = json.loads(self.tandem("evaluate", checkpoint(run, step), "--json", "--samples", 16, *flags).out)["eval_loss"]
                self.assertAlmostEqual(told, losses[step][1 if flags else 0], delta=1e-6)
            self.assertNotEqual(*losses[6])
            first = [event for event in read_events(run) if event["type"] == "eval"][0]
            self.assertEqual((first["step"], "eval_loss_ema" in first), (0, False))

    def test_every_mesh_evaluates_the_same_average(self):
        one = self.train(self.evaluated(mesh("ddp", 2), precision="bf16"), "ddp")
        for strategy in ("zero1", "zero2", "fsdp"):
            run = self.train(self.evaluated(mesh(strategy, 2), precision="bf16"), strategy)
            self.assert_equal_runs(one, run)
            self.assertEqual(self.evaluations(one), self.evaluations(run))
        offloaded = self.train(self.evaluated(mesh("fsdp", 2), precision="bf16", memory={"offload": ["optimizer", "params"]}), "offload")
        self.assertEqual(self.evaluations(one), self.evaluations(offloaded))
        alone = self.train(self.evaluated(), "alone")
        pipeline = self.train(self.evaluated(mesh(pipeline=2)), "pipeline")
        self.assertEqual(self.evaluations(alone), self.evaluations(pipeline))
        tensor = self.train(self.evaluated(mesh(tensor=2)), "tensor")
        for step, (_, average) in self.evaluations(tensor).items():
            self.assertAlmostEqual(average, self.evaluations(alone)[step][1], delta=1e-4)

    def test_the_best_can_be_the_average_s(self):
        run = self.train({**self.evaluated(), "checkpoint": {"every": 2, "best": "eval_loss_ema"}}, "run")
        losses = {step: average for step, (_, average) in self.evaluations(run).items()}
        self.assertEqual((run / "checkpoints/best").resolve().name, checkpoint(run, min(losses, key=losses.get)).name)


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
