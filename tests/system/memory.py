"""Memory is known before the run: planned, allocated and resident bytes agree, and a limit is met or refused."""

import json
import re

import tandem_run
from tandem_run import GEMMA, GPT2, LLAMA, MLP, RESNET, RESNET_GROUP, TandemTest, config

MiB = 1 << 20

# About a hundred MiB each or more, so that 2% is more than the program's own small change, in steps of a second or so.
BIG_GPT2 = {**GPT2, "layers": 2, "width": 384, "heads": 6, "context": 64}
BIG_LLAMA = {**LLAMA, "layers": 2, "width": 384, "heads": 6, "kv_heads": 2, "context": 64, "ffn": 1024}
BIG_RESNET = {**RESNET, "width": 16, "image_size": 32}
BIG_RESNET_GROUP = {**RESNET_GROUP, "width": 16, "image_size": 32}
BIG_MLP = {**MLP, "width": 1600, "image_size": 32}


def grid():
    """Families, precisions, recomputation, sizes and threads: {name: config}."""
    def one(model, batch, **sections):
        return config(model, train={"batch": batch, "micro_batch": batch}, **sections)

    return {
        "gpt2 fp32": one(BIG_GPT2, 24, threads=2),
        "gpt2 fp32 on one thread": one(BIG_GPT2, 16, threads=1),
        "gpt2 bf16 full": one({**BIG_GPT2, "width": 768}, 8, precision="bf16", memory={"recompute": "full"}, threads=2),
        "gpt2 fp16 large vocabulary": one({**BIG_GPT2, "vocab": 16384}, 4, precision="fp16", threads=2),
        "gpt2 fp32 every:2, deep": one({**BIG_GPT2, "layers": 8}, 4, memory={"recompute": "every:2"}, threads=2),
        "llama fp32 selective": one(BIG_LLAMA, 24, memory={"recompute": "selective"}, threads=2),
        "gemma bf16": one({**BIG_LLAMA, **{key: GEMMA[key] for key in GEMMA if key not in LLAMA}, "head": 96}, 8,
                          precision="bf16", threads=2),
        "llama bf16 untied": one({**BIG_LLAMA, "tied": False, "vocab": 8192}, 8, precision="bf16", threads=1),
        "llama fp16 synchronous": one({**BIG_LLAMA, "width": 768}, 8, precision="fp16", threads=2,
                                      checkpoint={"async": False}),
        "resnet fp32": one(BIG_RESNET, 160, threads=2),
        "resnet bf16 group": one(BIG_RESNET_GROUP, 256, precision="bf16", threads=1),
        "resnet fp16 full": one(BIG_RESNET, 320, precision="fp16", memory={"recompute": "full"}, threads=2),
        "mlp fp32": one(BIG_MLP, 32, threads=2),
        "mlp bf16 sgd": config(BIG_MLP, precision="bf16", threads=1,
                               train={"batch": 64, "micro_batch": 32, "optimizer": "sgd"}),
        "mlp fp16": one(BIG_MLP, 48, precision="fp16", threads=4),
    }


class PlannedMemory(TandemTest):
    def bench(self, content):
        path = self.write_config(content)
        return json.loads(self.tandem("bench", path, "--json", "--steps", 1, "--warmup", 1).out)

    def test_allocated_equals_planned_and_resident_is_within_two_percent(self):
        for name, content in grid().items():
            with self.subTest(config=name):
                measured = self.bench(content)
                self.assertEqual(measured["planned"], measured["allocated"])
                planned = sum(measured["planned"].values())
                self.assertEqual(self.plan(content)["planned_bytes"], measured["planned"])
                self.assertGreater(planned, 64 * MiB, "too small to tell")
                idle, peak = measured["idle_rss_bytes"], measured["peak_rss_bytes"]
                away = (peak - idle - planned) / (planned + idle)
                self.assertLessEqual(abs(away), 0.02, f"planned {planned}, idle {idle}, peak {peak}: {away:+.2%}")

    def test_a_training_run_with_saves_and_evaluations_stays_within_two_percent(self):
        # bf16 weights and what they lack of their masters are joined on their way into the file, not all at once.
        for precision, width, asynchronous in (("fp32", 384, True), ("bf16", 768, True), ("bf16", 768, False)):
            with self.subTest(precision=precision, asynchronous=asynchronous):
                content = config({**BIG_GPT2, "width": width}, precision=precision, threads=2,
                                 checkpoint={"every": 1, "async": asynchronous},
                                 train={"batch": 24, "micro_batch": 24, "steps": 2, "eval_every": 1})
                idle = self.bench(content)["idle_rss_bytes"]
                run = self.train(content, f"{precision}-{asynchronous}")
                self.assert_as_planned(tandem_run.read_summary(run), idle)
                # Nor are they split all at once on their way back.
                run = self.train({**content, "train": {**content["train"], "steps": 3}}, f"{precision}-{asynchronous}")
                self.assert_as_planned(tandem_run.read_summary(run), idle)

    def assert_as_planned(self, summary, idle):
        planned = sum(summary["planned_bytes"].values())
        away = (summary["peak_rss_bytes"] - idle - planned) / (planned + idle)
        self.assertLessEqual(abs(away), 0.02, f"planned {planned}, peak {summary['peak_rss_bytes']}: {away:+.2%}")

    def test_full_recomputation_takes_at_most_a_third_of_the_activations_of_twelve_blocks(self):
        models = {
            "gpt2": {**GPT2, "layers": 12, "width": 192, "heads": 6, "context": 128},
            "llama": {**LLAMA, "layers": 12, "width": 192, "ffn": 512, "context": 128},
        }
        for name, model in models.items():
            for precision in ("fp32", "bf16"):
                with self.subTest(model=name, precision=precision):
                    content = config(model, precision=precision, train={"batch": 8, "micro_batch": 8})
                    none = self.plan(content)["planned_bytes"]
                    full = self.plan({**content, "memory": {"recompute": "full"}})["planned_bytes"]
                    self.assertLessEqual(full["activations"] * 3, none["activations"])
                    for category in none:
                        if category not in ("activations", "workspace"):
                            self.assertEqual(none[category], full[category], category)


    def test_full_recomputation_saves_activations_of_images_too(self):
        # Their blocks hold few values, and BatchNorm keeps its own: it counts statistics, which must happen once.
        for model, share in ((RESNET, 0.6), (RESNET_GROUP, 0.4)):
            with self.subTest(norm=model["norm"]):
                content = config({**model, "blocks": [12]}, train={"batch": 8, "micro_batch": 8})
                none = self.plan(content)["planned_bytes"]["activations"]
                full = self.plan({**content, "memory": {"recompute": "full"}})["planned_bytes"]["activations"]
                self.assertLessEqual(full, share * none)


class LimitedMemory(TandemTest):
    CASES = {
        "gpt2": config({**GPT2, "layers": 8}, train={"batch": 8, "micro_batch": 8}),
        "llama bf16": config({**LLAMA, "layers": 8}, precision="bf16", train={"batch": 6, "micro_batch": 6}),
        "resnet": config({**RESNET, "blocks": [2, 2]}, train={"batch": 12, "micro_batch": 12}),
        "mlp": config(MLP, train={"batch": 64, "micro_batch": 64}),
    }

    def smallest(self, content):
        """The plan of what all changes together leave."""
        return self.plan({**content, "train": {**content["train"], "micro_batch": 1},
                          "memory": {"recompute": "full"}, "checkpoint": {"async": False}})["planned_total"]

    def test_a_limit_too_small_is_refused_with_a_change_that_then_runs_within_it(self):
        for name, content in self.CASES.items():
            most, least = self.plan(content)["planned_total"], self.smallest(content)
            for share in (0.95, 0.7, 0.4, 0.1):
                limit = int(least + share * (most - least))
                with self.subTest(model=name, limit=limit):
                    limited = {**content, "memory": {"limit": limit}, "name": f"{name.replace(' ', '-')}-{share}"}
                    path = self.write_config(limited)
                    run = self.directory / limited["name"]
                    refused = self.tandem("train", path, "--run-dir", run, expect=None)
                    self.assert_one_line_error(refused, tandem_run.DOES_NOT_FIT, "memory", "cheapest change", "--set ")
                    self.assertFalse(run.exists())
                    change = re.findall(r"--set (\S+)", refused.err)
                    flags = [flag for assignment in change for flag in ("--set", assignment)]
                    self.tandem("train", path, "--run-dir", run, *flags)
                    summary = tandem_run.read_summary(run)
                    self.assertLessEqual(sum(summary["planned_bytes"].values()), limit)

    def test_the_change_that_is_named_first_costs_least(self):
        content = self.CASES["gpt2"]
        staging = self.plan(content)["planned_total"] - self.plan(
            {**content, "checkpoint": {"async": False}})["planned_total"]
        self.assertGreater(staging, 0)
        limit = self.plan(content)["planned_total"] - staging
        path = self.write_config({**content, "memory": {"limit": limit}})
        error = self.tandem("train", path, expect=tandem_run.DOES_NOT_FIT).err
        self.assertEqual(["checkpoint.async=false"], re.findall(r"--set (\S+)", error))

    def test_plan_and_bench_refuse_as_train_does(self):
        content = self.CASES["gpt2"]
        path = self.write_config({**content, "memory": {"limit": self.plan(content)["planned_total"] - 1}})
        for command in ("plan", "bench", "profile"):
            with self.subTest(command=command):
                refused = self.tandem(command, path, expect=None)
                self.assert_one_line_error(refused, tandem_run.DOES_NOT_FIT, "--set ")

    def test_automatic_recomputation_picks_one_that_fits(self):
        content = {**self.CASES["gpt2"], "checkpoint": {"async": False}}
        kinds = ("none", "selective", "every:2", "full")
        totals = {kind: self.plan({**content, "memory": {"recompute": kind}})["planned_total"] for kind in kinds}
        for kind, total in totals.items():
            with self.subTest(limit=f"what {kind} needs"):
                auto = self.plan({**content, "memory": {"recompute": "auto", "limit": total}})
                self.assertLessEqual(auto["planned_total"], total)
        unlimited = self.plan({**content, "memory": {"recompute": "auto"}})
        self.assertEqual("none", unlimited["recompute"])

    def test_what_nothing_can_make_fit_is_refused_with_what_it_needs(self):
        for recompute in ("none", "auto"):
            with self.subTest(recompute=recompute):
                memory = {"limit": "100KiB", "recompute": recompute}
                path = self.write_config({**self.CASES["gpt2"], "memory": memory})
                refused = self.tandem("train", path, "--run-dir", self.directory / "run", expect=None)
                self.assert_one_line_error(refused, tandem_run.DOES_NOT_FIT, "still need", "100.0 KiB")
                self.assertFalse((self.directory / "run").exists())

    def test_a_plan_over_the_machines_own_memory_is_refused_before_anything_is_allocated(self):
        huge = {**GPT2, "layers": 48, "width": 12288, "heads": 96, "context": 2048}
        path = self.write_config(config(huge, train={"batch": 64, "micro_batch": 64}))
        refused = self.tandem("train", path, "--run-dir", self.directory / "run", expect=None)
        self.assert_one_line_error(refused, tandem_run.DOES_NOT_FIT, "this machine's memory")
        self.assertFalse((self.directory / "run").exists())


if __name__ == "__main__":
    tandem_run.main()
