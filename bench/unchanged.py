#!/usr/bin/env python3
"""Shows what a change of the program has changed: losses to the last digit, plans to the byte, speeds as ratios.

Both programs run every config of a list (families x precisions x strategies x recompute x offload), one after the
other. Losses are compared with all their digits and plans by their bytes; that a plan has other commands for the same
bytes is only said. The speed is the median ratio of step times. Prints one row a config; exits 1 where a loss differs
or a plan has grown.

    bench/unchanged.py --before old/tandem --after build/release/bin/tandem
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

GPT2 = {"family": "gpt2", "layers": 2, "width": 64, "heads": 4, "context": 32, "vocab": 256}
LLAMA = {"family": "llama", "layers": 2, "width": 64, "heads": 4, "kv_heads": 2, "context": 32, "vocab": 256}
RESNET = {"family": "resnet", "blocks": [1, 1, 1], "width": 16, "image_size": 16, "norm": "batch"}
RESNET_GROUP = {**RESNET, "norm": "group", "groups": 4}
MLP = {"family": "mlp", "layers": 3, "width": 72, "image_size": 16}
MODELS = {"gpt2": GPT2, "llama": LLAMA, "resnet": RESNET, "resnet-group": RESNET_GROUP, "mlp": MLP}
PRECISIONS = ("fp32", "bf16", "fp16")


def ranks(strategy="ddp", **axes):
    return {"strategy": strategy, **axes}


def cases():
    """(name, model, other keys, number of ranks)"""
    for family in MODELS:
        for precision in PRECISIONS:
            yield f"{family} {precision}", family, {"precision": precision}, 1
    for optimizer in ("adamw", "sgd"):
        yield f"gpt2 {optimizer}", "gpt2", {"train": {"optimizer": optimizer}}, 1
    for recompute in ("selective", "full"):
        for family in ("gpt2", "llama"):
            yield f"{family} bf16 recompute={recompute}", family, {"precision": "bf16", "memory": {"recompute": recompute}}, 1
    for strategy in ("ddp", "zero1", "zero2", "fsdp"):
        for family in ("gpt2", "llama", "resnet"):
            for precision in ("fp32", "bf16"):
                yield (f"{family} {precision} {strategy} x2", family,
                       {"precision": precision, "parallel": ranks(strategy)}, 2)
    for family in ("gpt2", "llama"):
        yield f"{family} tensor x2", family, {"parallel": ranks(tensor=2)}, 2
        yield f"{family} bf16 pipeline x2", family, {"precision": "bf16", "parallel": ranks(pipeline=2)}, 2
        yield f"{family} fsdp x tensor x4", family, {"parallel": ranks("fsdp", tensor=2)}, 4
        yield f"{family} interleaved x2", family, {"parallel": ranks(pipeline=2, schedule="interleaved", chunks=2),
                                                  "model": {"layers": 4}}, 2
        yield f"{family} zero1 sync=step x2", family, {"parallel": ranks("zero1", sync="step"), "train": {"micro_batch": 2}}, 2
        yield f"{family} micro batches", family, {"precision": "bf16", "train": {"micro_batch": 2}}, 1
    yield "gpt2 bf16 offload=optimizer", "gpt2", {"precision": "bf16", "memory": {"offload": ["optimizer"]}}, 1
    for what in ("optimizer", "params"):
        yield (f"gpt2 bf16 fsdp offload={what} x2", "gpt2",
               {"precision": "bf16", "memory": {"offload": [what]}, "parallel": ranks("fsdp")}, 2)


def config(family, sections, steps):
    model = MODELS[family]
    images = model["family"] in ("resnet", "mlp")
    made = {"name": "same", "device": "cpu", "threads": 1, "model": model,
            "data": {"train": "builtin:shapes" if images else "builtin:stories", "eval_samples": 8},
            "train": {"steps": steps, "batch": 8, "micro_batch": 4, "lr": 0.002, "warmup": 2, "eval_every": steps},
            "checkpoint": {"every": 1000}}
    for key, value in sections.items():
        made[key] = {**made.get(key, {}), **value} if isinstance(value, dict) else value
    return made


def run(program, file, arguments, num_ranks, folder):
    """(losses, plan, step times) or a line that says what went wrong."""
    command = [program, "train", file, *arguments, "--run-dir", folder / "run", "--resume-from-checkpoint", "none"]
    if num_ranks > 1:
        command = [program, "launch", "--nproc-per-node", num_ranks, *command]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        return last_line(done).replace(str(folder), "")
    rows = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    losses = [tuple(repr(row.get(name)) for name in ("step", "loss", "grad_norm", "eval_loss")) for row in rows]
    times = [row["step_ms"] for row in rows if row.get("step_ms")]
    return losses, plan(program, file, *arguments), times


def last_line(done):
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]


def plan(program, file, *arguments):
    """(bytes of each arena, the commands as text) or a line that says what went wrong."""
    done = subprocess.run(list(map(str, [program, "plan", file, "--json", *arguments])), capture_output=True, text=True)
    if done.returncode != 0:
        return last_line(done)
    made = json.loads(done.stdout)
    return {name: size for name, size in made["planned_bytes"].items() if size}, json.dumps(made["executables"], sort_keys=True)


def differences_of_plans(before, after):
    """(what must not be, what a reader may want to know)"""
    if before == after:
        return [], ""
    if isinstance(before, str) or isinstance(after, str):
        return [f"plan: {before if isinstance(before, str) else 'made'} before, {after if isinstance(after, str) else 'made'} after"], ""
    more = {name: (before[0].get(name, 0), size) for name, size in after[0].items() if size > before[0].get(name, 0)}
    if sum(after[0].values()) > sum(before[0].values()):
        return [f"plan: more bytes (before, after): {more}"], ""
    return [], "other commands" if before[0] == after[0] else "fewer bytes"


def compare(before, after):
    """(what must not be, what a reader may want to know, ratio of step times)"""
    if isinstance(before, str) or isinstance(after, str):
        same = before == after
        return ([] if same else [f"{name}: {told if isinstance(told, str) else 'ran'}"
                                 for name, told in (("before", before), ("after", after))]), "", None
    differences, remark = differences_of_plans(before[1], after[1])
    if before[0] != after[0]:
        first = next(((a, b) for a, b in zip(before[0], after[0]) if a != b), (len(before[0]), len(after[0])))
        differences.append(f"losses: {first[0]} before, {first[1]} after")
    ratio = statistics.median(after[2][2:]) / statistics.median(before[2][2:]) if len(before[2]) > 4 else None
    return differences, remark, ratio


def gpu_plans():
    """(name, file, arguments): a step is compiled for a GPU where there is none."""
    folder = pathlib.Path(__file__).resolve().parent.parent / "configs"
    for name in ("gpt2-124m", "gpt2-1.5b", "llama-1b", "llama-1b-fp8", "llama-8b", "llama-7b", "llama-7b-offload", "llama-small",
                 "fsdp_2gpu", "mesh_2x2x2", "resnet-shapes", "quickstart"):
        for changes in ((), ("memory.recompute=full",), ("train.batch=16", "train.micro_batch=4"), ("precision=fp16",),
                        ("memory.gradients=bf16",), ("memory.gelu=again",)):
            arguments = ["--device", "cuda"]
            for change in changes:
                arguments += ["--set", change]
            yield " ".join(("gpu", name, *changes)), folder / f"{name}.yaml", arguments


def gpu_cases(steps):
    """(name, file, arguments) of the shipped configs that one GPU can run."""
    folder = pathlib.Path(__file__).resolve().parent.parent / "configs"
    for name, changes in (("gpt2-124m", ()), ("gpt2-124m", ("precision=fp32", "train.batch=8", "train.micro_batch=4")),
                          ("gpt2-1.5b", ()), ("llama-1b", ()), ("llama-1b", ("memory.recompute=full",)), ("llama-1b-fp8", ()),
                          ("llama-8b", ()), ("llama-8b", ("precision=fp8",)), ("llama-small", ()), ("mlp-shapes", ())):
        arguments = ["--device", "cuda", "--set", f"train.steps={steps}", "--set", "train.eval_every=0", "--set", "checkpoint.every=0"]
        for change in changes:
            arguments += ["--set", change]
        yield " ".join(("gpu", name, *changes)), folder / f"{name}.yaml", arguments


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", required=True, type=pathlib.Path)
    parser.add_argument("--after", required=True, type=pathlib.Path)
    parser.add_argument("--only", default="", help="configs whose names contain it")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--gpu-plans", action="store_true", help="only the plans of the shipped configs for a GPU")
    parser.add_argument("--gpu", action="store_true", help="only the shipped configs that one GPU can run, on it")
    options = parser.parse_args()
    changed, ratios, count = [], [], 0

    def tell(name, result, differences, remark, ratio=None):
        nonlocal count
        count += 1
        word = "DIFFERS" if differences else "refused" if "error" in result else "same"
        print(f"{word:8} {name:44} {result:26} {f'{ratio:.3f}' if ratio else '':6} {remark}", flush=True)
        for line in differences:
            print(f"         {line}", flush=True)
        changed.extend([name] if differences else [])

    for name, file, arguments in gpu_plans() if options.gpu_plans else ():
        if options.only in name:
            before, after = (plan(program.resolve(), file, *arguments) for program in (options.before, options.after))
            result = before[:70] if isinstance(before, str) else f"{sum(before[0].values())} bytes"
            tell(name, result, *differences_of_plans(before, after))
    def all_cases(folder):
        if options.gpu:
            yield from ((*case, 1) for case in gpu_cases(options.steps))
        elif not options.gpu_plans:
            for name, family, sections, num_ranks in cases():
                file = folder / "config.yaml"
                file.write_text(json.dumps(config(family, sections, options.steps)))
                yield name, file, [], num_ranks

    with tempfile.TemporaryDirectory(prefix="tandem-unchanged-") as folder:
        for name, file, arguments, num_ranks in all_cases(pathlib.Path(folder)):
            if options.only not in name:
                continue
            if options.gpu:  # the kernels for its products are chosen once, for both
                run(options.before.resolve(), file, [*arguments, "--set", "train.steps=2"], 1, pathlib.Path(folder) / "first")
            results = [run(program.resolve(), file, arguments, num_ranks, pathlib.Path(folder) / f"{count}-{which}")
                       for which, program in (("before", options.before), ("after", options.after))]
            differences, remark, ratio = compare(*results)
            ratios += [ratio] if ratio and num_ranks == 1 else []
            tell(name, results[0][:70] if isinstance(results[0], str) else results[0][0][-1][1], differences, remark, ratio)
    speed = f"; step times after / before: {statistics.median(ratios):.3f}" if ratios else ""
    print(f"{count} configs, {len(changed)} differ{speed}")
    sys.exit(1 if changed else 0)


if __name__ == "__main__":
    main()
