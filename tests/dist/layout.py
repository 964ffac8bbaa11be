"""parallel.reproducible: layout: the same losses, norms and weights, bit for bit, on any number of data ranks.

A few meshes by default; `--long` for every number of ranks with every strategy, precision and family.
"""

import itertools
import sys
import unittest

import ranks
import tandem_run
from network import one_node_will_do
from ranks import GPT2, LLAMA, RanksTest, config, mesh
from tandem_run import RESNET_GROUP

BATCH, MICRO_BATCH = 16, 2  # eight micro-batches, which three ranks and five cannot share evenly
STEPS, CLIP = 4, 0.5
STRATEGIES = ("ddp", "zero1", "zero2", "fsdp")
FALLING = {"loss_scale": 2.0**26, "loss_scale_window": 2}
LONG = "--long" in sys.argv
if LONG:
    sys.argv.remove("--long")


def training(model, precision="fp32", strategy="single", data=1, memory=None, axes=None, **train):
    return config(model, precision=precision, parallel=mesh(strategy, data=data, reproducible="layout", **(axes or {})),
                  memory=memory or {}, checkpoint={"every": 2},
                  train={"steps": STEPS, "batch": BATCH, "micro_batch": MICRO_BATCH, "warmup": 1, "eval_every": 2,
                         "clip": CLIP, "schedule": "constant", **train})


class AnyNumberOfRanks(RanksTest):
    def check(self, model, precision, meshes, memory=None, axes=None, **train):
        name = f"{model['family']}-{precision}"
        alone = self.train(training(model, precision, memory=memory, axes=axes, **train), name)
        rows = tandem_run.read_metrics(alone)
        self.assertTrue(any(float(row["grad_norm"]) > CLIP for row in rows), "the norm must decide over weights")
        self.assertEqual(STEPS // 2, sum("eval_loss" in row for row in rows))
        for strategy, data in meshes:
            with self.subTest(model=model["family"], precision=precision, strategy=strategy, data=data):
                content = training(model, precision, strategy, data, memory, axes, **train)
                self.assert_equal_runs(alone, self.train(content, f"{name}-{strategy}-{data}"))
        return alone

    def test_gpt2_fp32(self):
        self.check(GPT2, "fp32", [("ddp", 2), ("fsdp", 3), ("zero2", 8)])

    @one_node_will_do
    def test_llama_bf16(self):
        self.check(LLAMA, "bf16", [("fsdp", 2), ("zero1", 3), ("ddp", 5)])

    @one_node_will_do
    def test_images(self):
        self.check(RESNET_GROUP, "fp32", [("ddp", 3), ("fsdp", 4)])

    @one_node_will_do
    def test_a_rank_without_work_in_a_step_of_few_micro_batches(self):
        self.check(LLAMA, "fp32", [("zero2", 3)], micro_batch=BATCH // 2)

    @unittest.skipUnless(LONG, "with --long")
    def test_everything(self):
        for model, precision in itertools.product((GPT2, LLAMA, RESNET_GROUP), ("fp32", "bf16")):
            self.check(model, precision, [*itertools.product(STRATEGIES, (1, 2, 3, 4, 8))])

    @unittest.skipUnless(LONG, "with --long")
    def test_what_else_a_config_may_ask_for(self):
        meshes = [("ddp", 2), ("zero1", 3), ("fsdp", 5)]
        self.check(GPT2, "fp16", meshes, **FALLING)
        self.check(LLAMA, "fp32", meshes, optimizer="lion")
        self.check(GPT2, "bf16", meshes, optimizer_state="int8")
        self.check(GPT2, "fp32", [("dp", 3), *meshes], ema=0.9)
        self.check(LLAMA, "bf16", meshes, memory={"recompute": "full"})
        self.check({**GPT2, "dropout": 0.1}, "fp32", meshes)
        self.check(GPT2, "fp32", meshes, batch_ramp=[[1, 4], [2, 10]])
        self.check(LLAMA, "bf16", [("fsdp", 2), ("zero1", 3)], axes={"tensor": 2})
        self.check(GPT2, "fp32", [("fsdp", 2), ("fsdp", 3)], memory={"offload": ["optimizer"]})


class OtherRanksOnTheWay(RanksTest):
    def go_on(self, numbers, model, precision):
        """Two steps on each number of ranks, in one run directory."""
        whole = self.train(training(model, precision, "ddp", numbers[0], steps=2 * len(numbers)), "whole")
        for number, (data, strategy) in enumerate(zip(numbers, itertools.cycle(STRATEGIES[::-1]))):
            run = self.train(training(model, precision, strategy, data, steps=2 * (number + 1)), "run")
        self.assert_equal_runs(whole, run)

    @one_node_will_do
    def test_four_then_three_then_one_then_four(self):
        self.go_on((4, 3, 1, 4), GPT2, "bf16")

    @unittest.skipUnless(LONG, "with --long")
    def test_eight_then_three_then_five(self):
        self.go_on((8, 3, 5), LLAMA, "fp32")


class Memory(RanksTest):
    one_node_only = "memory knows no nodes"

    def test_planned_is_allocated(self):
        for strategy, data in (("single", 1), ("fsdp", 3)):
            content = training(GPT2, "bf16", strategy, data)
            rows = self.bench(content)
            self.assertEqual(data, len(rows))
            for row in rows:
                self.assertEqual(row["planned"], row["allocated"])
        planned = {rank["rank"]: rank["planned_bytes"] for rank in self.plan(content)["ranks"]}
        self.assertEqual(planned, {row["rank"]: row["allocated"] for row in rows})


class Refusals(RanksTest):
    one_node_only = "no rank is started"

    def refuse_config(self, *parts, base=GPT2, **sections):
        content = training(base)
        for key, value in sections.items():
            content[key] = {**content[key], **value} if isinstance(value, dict) else value
        self.refuse(tandem_run.BAD_USAGE, parts, "plan", self.write_config(content))

    def test_what_cannot_be_had(self):
        self.refuse_config("parallel.pipeline", "use parallel.pipeline = 1", parallel={"pipeline": 2})
        self.refuse_config("parallel.sync", "use parallel.sync = pass", parallel={"strategy": "ddp", "sync": "step"})
        self.refuse_config("parallel.reduce", "use parallel.reduce = fp32", parallel={"reduce": "bf16"})
        self.refuse_config("train.optimizer", "use adamw", train={"optimizer": "muon"})
        self.refuse_config("model.norm", "use model.norm = group", base=ranks.RESNET)
        self.refuse_config("train.batch", "14 or 16", train={"batch": 15})
        content = training(GPT2)
        del content["train"]["micro_batch"]
        self.refuse(tandem_run.BAD_USAGE, ["needs train.micro_batch"], "plan", self.write_config(content))


if __name__ == "__main__":
    ranks.main()
