"""Runs that must be equal bit for bit: twice, on any number of threads, with any recomputation."""

import pathlib

import tandem_run
from tandem_run import GEMMA, GPT2, LLAMA, MLP, OLMO, RESNET, RESNET_GROUP, TandemTest, config, read_metrics

# Large enough that every kernel has several tasks for its threads.
WIDE_GPT2 = {**GPT2, "width": 144, "heads": 6, "context": 96}

CASES = {
    "gpt2-fp32": config(GPT2, train={"eval_every": 2}),
    "gpt2-bf16": config(GPT2, precision="bf16"),
    "gpt2-fp16": config(GPT2, precision="fp16"),
    "gpt2-wide": config(WIDE_GPT2, train={"steps": 3}),
    "llama-fp32": config(LLAMA),
    "llama-chunked": config({**LLAMA, "context": 64, "vocab": 9000},  # logits of 18 MB: the loss works in chunks
                            train={"steps": 2, "batch": 16, "micro_batch": 8}),
    "llama-bf16": config(LLAMA, precision="bf16", train={"optimizer": "sgd", "lr": 0.05}),
    "llama-fp16": config(LLAMA, precision="fp16", train={"loss_scale": 1e7, "loss_scale_window": 2}),
    "gemma-fp32": config(GEMMA, train={"eval_every": 2}),
    "gemma-chunked": config({**GEMMA, "context": 64, "vocab": 9000}, train={"steps": 2, "batch": 16, "micro_batch": 8}),
    "gemma-bf16": config(GEMMA, precision="bf16"),
    "olmo-fp32": config(OLMO),
    "olmo-fp16": config(OLMO, precision="fp16"),
    "resnet-fp32": config(RESNET, train={"optimizer": "sgd", "lr": 0.05, "eval_every": 2}),
    "resnet-bf16": config(RESNET_GROUP, precision="bf16"),
    "resnet-fp16": config(RESNET, precision="fp16"),
    "mlp-fp32": config(MLP, train={"eval_every": 2}),
    "mlp-bf16": config(MLP, precision="bf16"),
    "gpt2-lion": config(GPT2, precision="bf16", train={"optimizer": "lion", "lr": 0.001}),
    "resnet-lion": config(RESNET, precision="fp16", train={"optimizer": "lion"}),
    "gpt2-muon": config(GPT2, precision="bf16", train={"optimizer": "muon"}),
    "gpt2-int8": config(GPT2, precision="bf16", train={"optimizer_state": "int8"}),
    "llama-bf16-state": config(LLAMA, train={"optimizer_state": "bf16"}),
    "gpt2-lamb": config(GPT2, precision="bf16", train={"optimizer": "lamb", "optimizer_state": "int8"}),
    "resnet-lars": config(RESNET, train={"optimizer": "lars", "clip_value": 0.01}),
    "gpt2-schedule-free": config(GPT2, precision="bf16", train={"optimizer": "schedule_free_adamw", "eval_every": 2}),
    "gpt2-adafactor": config(GPT2, precision="bf16", train={"optimizer": "adafactor"}),
    "resnet-muon": config(RESNET, train={"optimizer": "muon"}),
}


class EqualBitForBit(TandemTest):
    bases = {}  # case: the run that its variants are compared with

    @classmethod
    def setUpClass(cls):
        temporary = tandem_run.temporary_directory()
        cls.addClassCleanup(temporary.cleanup)
        cls.base_directory = pathlib.Path(temporary.name)

    def base(self, name):
        if name not in self.bases:
            run = self.base_directory / name
            self.tandem("train", self.write_config(CASES[name]), "--run-dir", run, "--set", "threads=2")
            losses = [row["loss"] for row in read_metrics(run)]
            self.assertEqual(CASES[name]["train"]["steps"], len(losses))
            self.assertEqual(len(losses), len(set(losses)), "the model does not learn: nothing is tested")
            self.bases[name] = run
        return self.bases[name]

    def check(self, names, variants):
        """Each case with each of the variants, {name: assignments}, equals the case's base."""
        for case in names:
            for variant, assignments in variants.items():
                with self.subTest(case=case, variant=variant):
                    flags = [flag for assignment in assignments for flag in ("--set", assignment)]
                    run = self.train(CASES[case], f"{case}-{variant.replace(':', '-')}", *flags)
                    self.assert_equal_runs(self.base(case), run)

    def test_the_same_run_twice(self):
        self.check(CASES, {"again": ["threads=2"]})

    def test_one_two_and_four_threads(self):
        self.check(CASES, {"1": ["threads=1"], "4": ["threads=4"]})

    def test_recompute_none_full_every_2_and_selective(self):
        self.check(CASES, {kind: [f"memory.recompute={kind}"] for kind in ("full", "every:2", "selective", "all_but_attention")})

    def test_recompute_auto_under_a_limit_that_forces_some(self):
        for name in ("gpt2-fp32", "gpt2-wide", "llama-bf16", "resnet-fp16"):
            with self.subTest(case=name):
                limit = self.forcing_limit(CASES[name])
                self.check([name], {"auto": ["memory.recompute=auto", f"memory.limit={limit}"]})
                chosen = self.plan({**CASES[name], "memory": {"recompute": "auto", "limit": limit}})
                self.assertNotEqual("none", chosen["recompute"])
                self.assertLessEqual(chosen["planned_total"], limit)

    def forcing_limit(self, case):
        """Bytes that hold the step with full recomputation, but not without any."""
        full = self.plan({**case, "memory": {"recompute": "full"}})["planned_total"]
        none = self.plan(case)["planned_total"]
        self.assertLess(full, none)
        return (full + none) // 2

    def test_threads_recomputation_workers_and_checkpoints_at_once(self):
        changes = ["threads=4", "memory.recompute=full", "checkpoint.async=false", "checkpoint.every=1",
                   "data.workers=1", "data.prefetch=1"]
        self.check(["gpt2-fp32", "resnet-fp32"], {"all": changes})

    def test_threads_on_lower_instruction_sets(self):
        for isa in ("portable", "avx2", "avx512"):
            for case in ("gpt2-bf16", "resnet-fp32"):
                with self.subTest(isa=isa, case=case):
                    runs = [self.train_on(isa, case, threads) for threads in (1, 4)]
                    self.assert_equal_runs(*runs)

    def train_on(self, isa, case, threads):
        run = self.directory / f"{isa}-{case}-{threads}"
        flags = ["--run-dir", run, "--set", f"threads={threads}"]
        done = self.tandem("train", self.write_config(CASES[case]), *flags, expect=None, env={"TANDEM_ISA": isa})
        if "this CPU supports no more" in done.err:
            self.skipTest(f"no {isa} here")
        self.assertEqual(tandem_run.DONE, done.code, done)
        return run

    def test_another_seed_is_told_apart(self):
        first = self.train(CASES["mlp-fp32"], "first")
        second = self.train(CASES["mlp-fp32"], "second", "--set", "train.seed=2")
        self.assertNotEqual(read_metrics(first), read_metrics(second))
        self.tandem("inspect", first, "--compare", second, expect=tandem_run.FAILED)


if __name__ == "__main__":
    tandem_run.main()
