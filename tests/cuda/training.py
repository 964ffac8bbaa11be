"""Training on one GPU: the CPU's losses, the same bits again, and with recomputation, offload and interruptions."""

import json
import time

import gpu
from tandem_run import (BAD_USAGE, GPT2, LLAMA, RESNET, RESNET_GROUP, TandemTest, checkpoint, config, read_events,
                        read_manifest, read_metrics, read_summary)

WIDE_GPT2 = {**GPT2, "width": 192, "heads": 3, "context": 128}  # heads of 64: the fused attention
WIDE_LLAMA = {**LLAMA, "width": 256, "heads": 4, "kv_heads": 2, "ffn": 344, "context": 128}
FP8_LLAMA = {**WIDE_LLAMA, "ffn": 352}  # all sizes are multiples of 16
MODELS = {"gpt2": GPT2, "llama": LLAMA, "wide-gpt2": WIDE_GPT2, "wide-llama": WIDE_LLAMA}
RESNETS = {"batch": RESNET, "group": RESNET_GROUP, "bottleneck": {**RESNET, "bottleneck": True, "stem": "imagenet", "image_size": 32}}
ONE_PASS = {"batch": 6, "micro_batch": 6}  # gradients are overwritten, and lie among the activations
TOLERANCE = {"fp32": 1e-4, "bf16": 1e-2, "fp16": 1e-2}


def on_gpu(model, **sections):
    return config(model, device="cuda", **sections)


def losses(run, column="loss"):
    return [float(row[column]) for row in read_metrics(run) if column in row]


class OnOneGpu(TandemTest):
    def assert_near(self, a, b, tolerance):
        """`a` and `b` are runs: the same steps, and losses that near."""
        a, b = losses(a), losses(b)
        self.assertEqual(len(a), len(b))
        for step, (x, y) in enumerate(zip(a, b), 1):
            self.assertLessEqual(abs(x - y), tolerance * abs(x), f"step {step}: {x} and {y}")

    def test_fifty_steps_follow_the_cpu(self):
        for name, model in MODELS.items():
            for precision, tolerance in TOLERANCE.items():
                with self.subTest(model=name, precision=precision):
                    # With a larger rate the losses of the wide models are chaotic: fp32 and bf16 part on the CPU too.
                    sections = {"precision": precision, "train": {"steps": 50, "lr": 5e-4, "eval_every": 25}}
                    cpu = self.train({**config(model, **sections), "threads": 4}, f"cpu-{name}-{precision}")
                    cuda = self.train(on_gpu(model, **sections), f"cuda-{name}-{precision}")
                    self.assert_near(cpu, cuda, tolerance)
                    first, *_, last = losses(cpu)
                    self.assertLess(last, 0.85 * first, "the model does not learn: nothing is tested")
                    for x, y in zip(losses(cpu, "eval_loss"), losses(cuda, "eval_loss"), strict=True):
                        self.assertAlmostEqual(x / y, 1, delta=tolerance)

    def test_the_same_bits_again_and_with_recomputation_and_offload(self):
        variants = {"again": [], "full": ["memory.recompute=full"], "selective": ["memory.recompute=selective"],
                    "offload": ["memory.offload=[optimizer]"],
                    "offload-all": ["memory.offload=[params, optimizer]", "parallel.strategy=fsdp"],
                    "away": ["memory.offload=[activations]"],
                    "away-full": ["memory.offload=[activations]", "memory.recompute=full"]}
        cases = {"fp32": {"precision": "fp32"}, "bf16": {"precision": "bf16"},
                 "one-pass": {"precision": "bf16", "train": ONE_PASS}}
        for name in ("wide-gpt2", "wide-llama"):
            for kind, sections in cases.items():
                case = on_gpu(MODELS[name], **{**sections, "train": {"steps": 8, **sections.get("train", {})}})
                base = self.train(case, f"{name}-{kind}")
                for variant, assignments in variants.items():
                    with self.subTest(model=name, kind=kind, variant=variant):
                        flags = [flag for assignment in assignments for flag in ("--set", assignment)]
                        run = self.train(case, f"{name}-{kind}-{variant}", *flags)
                        self.assert_equal_runs(base, run)

    def test_resnets_follow_the_cpu(self):
        for name, model in RESNETS.items():
            for precision, tolerance in {"fp32": 1e-3, "bf16": 5e-2, "fp16": 5e-2}.items():
                with self.subTest(model=name, precision=precision):
                    train = {"steps": 20, "optimizer": "sgd", "lr": 0.1, "batch": 64, "micro_batch": 32, "eval_every": 10}
                    sections = {"precision": precision, "train": train}
                    cpu = self.train({**config(model, **sections), "threads": 4}, f"cpu-{name}-{precision}")
                    cuda = self.train(on_gpu(model, **sections), f"cuda-{name}-{precision}")
                    self.assert_near(cpu, cuda, tolerance)
                    self.assertNotEqual(*losses(cuda)[:2])

    def test_resnets_give_the_same_bits_again(self):
        variants = {"again": [], "full": ["memory.recompute=full"], "selective": ["memory.recompute=selective"],
                    "offload": ["memory.offload=[optimizer]"]}
        for name, model in RESNETS.items():
            for kind, train in {"parts": {"batch": 8, "micro_batch": 4}, "one-pass": {"batch": 8, "micro_batch": 8}}.items():
                case = on_gpu(model, precision="bf16", train={"steps": 6, "schedule": "constant", **train}, checkpoint={"every": 3})
                base = self.train(case, f"{name}-{kind}")
                for variant, assignments in variants.items():
                    with self.subTest(model=name, kind=kind, variant=variant):
                        flags = [flag for assignment in assignments for flag in ("--set", assignment)]
                        self.assert_equal_runs(base, self.train(case, f"{name}-{kind}-{variant}", *flags))
                with self.subTest(model=name, kind=kind, variant="resumed"):
                    self.train(case, f"{name}-{kind}-resumed", "--set", "train.steps=3")
                    resumed = self.train(case, f"{name}-{kind}-resumed", "--resume-from-checkpoint", "latest")
                    self.assert_equal_runs(base, resumed)

    def test_gelu_that_is_made_again_follows_one_that_is_kept(self):
        for precision in ("fp32", "bf16"):
            with self.subTest(precision=precision):
                case = on_gpu(WIDE_GPT2, precision=precision, train={"steps": 20, "lr": 5e-4, **ONE_PASS})
                kept = self.train(case, f"{precision}-kept")
                again = self.train(case, f"{precision}-again", "--set", "memory.gelu=again")
                if precision == "fp32":
                    self.assert_equal_runs(kept, again)
                self.assert_near(kept, again, TOLERANCE[precision])
                self.assertLess(read_summary(again)["planned_bytes"]["activations"],
                                read_summary(kept)["planned_bytes"]["activations"])
                for choice in ("full", "selective"):
                    run = self.train(case, f"{precision}-{choice}", "--set", "memory.gelu=again",
                                     "--set", f"memory.recompute={choice}")
                    self.assert_equal_runs(again, run)

    def test_a_loss_scale_that_has_to_fall_and_grow_follows_the_cpu(self):
        train = {"steps": 24, "lr": 5e-4, "schedule": "constant", "loss_scale": 2.0**26, "loss_scale_window": 3}
        sections = {"precision": "fp16", "train": train, "checkpoint": {"every": 8}}
        cpu = self.train({**config(GPT2, **sections), "threads": 4}, "cpu")
        cuda = self.train(on_gpu(GPT2, **sections), "cuda")
        scales = losses(cpu, "loss_scale")
        self.assertTrue(any(a > b for a, b in zip(scales, scales[1:])), scales)
        self.assertTrue(any(a < b for a, b in zip(scales, scales[1:])), scales)
        self.assertEqual(scales, losses(cuda, "loss_scale"))
        skipped = [[event["step"] for event in read_events(run, "overflow")] for run in (cpu, cuda)]
        self.assertEqual(*skipped)
        self.assertNotEqual([], skipped[0])
        self.assertEqual(*(read_manifest(run, 24)["scalars"]["loss_scaler"] for run in (cpu, cuda)))
        for variant, assignment in {"full": "memory.recompute=full", "offload": "memory.offload=[optimizer]"}.items():
            with self.subTest(variant=variant):
                self.assert_equal_runs(cuda, self.train(on_gpu(GPT2, **sections), variant, "--set", assignment))
        # A run that was stopped twice is one that never was, overflows included.
        for steps in (8, 16, 24):
            self.train(on_gpu(GPT2, **sections), "parts", "--set", f"train.steps={steps}")
        self.assert_equal_runs(cuda, self.directory / "parts")

    def test_one_pass_a_step_is_accumulation_too(self):
        whole = self.train(on_gpu(WIDE_GPT2, train=ONE_PASS), "whole")
        parts = self.train(on_gpu(WIDE_GPT2, train={"batch": 6, "micro_batch": 2}), "parts")
        self.assert_near(whole, parts, 1e-5)

    def test_gradients_in_16_bits_follow_those_in_32(self):
        for name in ("wide-gpt2", "wide-llama"):
            with self.subTest(model=name):
                case = on_gpu(MODELS[name], precision="bf16",
                              train={"steps": 50, "lr": 5e-4, **ONE_PASS})
                wide = self.train(case, f"{name}-32")
                narrow = self.train(case, f"{name}-16", "--set", "memory.gradients=bf16")
                self.assert_near(wide, narrow, 1e-2)
                self.assertNotEqual(losses(wide), losses(narrow))
        self.refuse(BAD_USAGE, ["memory.gradients", "train.micro_batch"], "train",
                    self.write_config(on_gpu(WIDE_GPT2, precision="bf16")), "--set", "memory.gradients=bf16")

    def test_products_in_8_bits_follow_those_in_16(self):
        for name, model in {"gpt2": WIDE_GPT2, "llama": FP8_LLAMA}.items():
            with self.subTest(model=name):
                case = on_gpu(model, precision="bf16",
                              train={"steps": 50, "lr": 5e-4, "batch": 6, "micro_batch": 6})
                wide = self.train(case, f"{name}-16")
                narrow = self.train(case, f"{name}-8", "--set", "precision=fp8")
                self.assert_near(wide, narrow, 2e-2)
                self.assertNotEqual(losses(wide), losses(narrow))

    def test_products_in_8_bits_give_the_same_bits_again(self):
        case = on_gpu(FP8_LLAMA, precision="fp8", train={"steps": 8})
        base = self.train(case, "base")
        for variant in ("none", "full", "selective"):
            with self.subTest(variant=variant):
                self.assert_equal_runs(base, self.train(case, variant, "--set", f"memory.recompute={variant}"))

    def test_a_checkpoint_moves_between_8_and_16_bits(self):
        case = on_gpu(FP8_LLAMA, train={"steps": 6, "schedule": "constant"}, checkpoint={"every": 3})
        whole = self.train(case, "whole", "--set", "precision=bf16")
        for first, second in (("bf16", "fp8"), ("fp8", "bf16")):
            with self.subTest(first=first):
                run = f"from-{first}"
                self.train(case, run, "--set", "train.steps=3", "--set", f"precision={first}")
                self.train(case, run, "--set", f"precision={second}", "--resume-from-checkpoint", "latest")
                self.assert_near(whole, self.directory / run, 2e-2)

    def test_a_run_goes_on_from_its_checkpoint(self):
        for name, model, precision in (("16", WIDE_LLAMA, "bf16"), ("8", FP8_LLAMA, "fp8")):
            with self.subTest(precision=precision):
                case = on_gpu(model, precision=precision, train={"steps": 200}, checkpoint={"every": 3})
                whole = self.train(case, f"whole-{name}")
                parts = self.directory / f"parts-{name}"
                process = self.start("train", self.write_config(case), "--run-dir", parts)
                while not checkpoint(parts, 3).exists():
                    self.assertIsNone(process.poll(), "it ended before its checkpoint was seen")
                    time.sleep(0.001)
                process.kill()
                process.wait()
                self.train(case, f"parts-{name}", "--resume-from-checkpoint", "latest")
                self.assert_equal_runs(whole, parts)

    def test_a_checkpoint_moves_between_cpu_and_gpu(self):
        case = config(WIDE_GPT2, train={"steps": 6, "schedule": "constant"}, checkpoint={"every": 3})
        whole = self.train({**case, "device": "cuda"}, "whole")
        self.train(case, "moved", "--set", "train.steps=3")
        moved = self.train({**case, "device": "cuda"}, "moved", "--resume-from-checkpoint", "latest")
        self.assert_near(whole, moved, 1e-4)

    def test_memory_is_the_plan_without_the_host_and_what_the_libraries_took(self):
        case = on_gpu(WIDE_GPT2, train={"steps": 3})
        run = self.train(case, "run")
        summary = read_summary(run)
        planned = sum(size for name, size in summary["planned_bytes"].items() if name != "host")
        self.assertGreater(summary["library_bytes"], 0)
        self.assertEqual(planned + summary["library_bytes"], summary["peak_device_bytes"])
        for line in (run / "metrics.jsonl").read_text().splitlines():
            self.assertLess(planned, json.loads(line)["device_bytes"])
        path = self.write_config(case)
        self.assertGreater(json.loads(self.tandem("bench", path, "--steps", 2, "--json").out)["library_bytes"], 0)
        self.assertRegex(self.tandem("profile", path, "--steps", 1).out, r"memory: .* of the GPU's .*\nlibraries: ")
        self.assertRegex(self.tandem("plan", path).out, rf"on the device\s+{planned}\b")

    def test_it_writes_the_cpu_s_text(self):
        for name in ("gpt2", "wide-llama"):
            with self.subTest(model=name):
                # Long enough that no two tokens are about as likely; the text is longer than the context.
                run = self.train(on_gpu(MODELS[name], train={"steps": 80, "lr": 5e-3}), f"text-{name}")
                write = ("sample", run, "--prompt", "Once upon a time", "--tokens", 200, "--temperature", 0)
                text = self.tandem(*write).out
                self.assertEqual(text, self.tandem(*write, "--no-cache").out)
                self.assertEqual(text, self.tandem(*write, "--set", "device=cpu").out)
                self.assertEqual(text, self.tandem(*write).out)

    def test_gradients_of_a_single_pass_take_no_memory_of_their_own(self):
        path = self.write_config(on_gpu(WIDE_GPT2, precision="bf16", train=ONE_PASS))
        plan = json.loads(self.tandem("plan", path, "--json").out)
        self.assertEqual(plan["planned_bytes"]["gradients"], 0)
        self.assertGreater(plan["gradients_in_activations"], 0)
        bench = json.loads(self.tandem("bench", path, "--steps", 2, "--json").out)
        self.assertEqual(bench["planned"], bench["allocated"])


if __name__ == "__main__":
    gpu.main()
