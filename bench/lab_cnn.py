"""A CNN in every precision, with accumulation and recomputation: memory as planned and allocated, speed in turns, and what BatchNorm makes
of accumulation and of ranks. Prints the tables of docs/lab-cnn.md.

  python3 bench/lab_cnn.py [--tandem build/release/bin/tandem] [--rounds 3] [--only memory,norm,ranks]

Speeds are medians of rounds in turns. `core ms` is the time that the process spent on cores for a step: other programs on the machine
change it less than the clock.
"""
import argparse
import json
import pathlib
import resource
import statistics
import subprocess
import tempfile

MODEL = {"family": "resnet", "width": 64, "blocks": [2, 2, 2], "norm": "batch"}
SETUPS = [(precision, name, sets) for precision in ("fp32", "fp16", "bf16")
          for name, sets in (("one pass", []), ("recompute full", ["memory.recompute=full"]), ("4 passes", ["train.micro_batch=16"]))]


def write_config(folder, **sections):
    config = {"name": "cnn", "device": "cpu", "threads": 2, "model": MODEL, "data": {"train": "builtin:shapes"},
              "train": {"steps": 100, "batch": 64, "micro_batch": 64, "optimizer": "sgd", "lr": 0.05, "warmup": 10}}
    for key, value in sections.items():
        config[key] = {**config.get(key, {}), **value} if isinstance(value, dict) else value
    path = pathlib.Path(folder) / "cnn.yaml"
    path.write_text(json.dumps(config))  # which is YAML, too
    return path


def run(command):
    """What it printed, and the seconds that it spent on cores."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([*map(str, command)], text=True, capture_output=True)
    if done.returncode != 0:
        raise SystemExit(f"{command}: {done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def sets_of(sets):
    return [word for value in sets for word in ("--set", value)]


def memory_and_speed(tandem, folder, rounds, steps):
    config, seen = write_config(folder), {}
    for _ in range(rounds):
        for precision, name, sets in SETUPS:
            flags = sets_of([f"precision={precision}", *sets])
            few, many = (run([tandem, "bench", config, "--steps", count, "--json", *flags]) for count in (1, 1 + steps))
            result = json.loads(many[0])
            if result["allocated"] != result["planned"]:
                raise SystemExit(f"{precision}, {name}: allocated is not what was planned")
            row = seen.setdefault((precision, name), {"images": [], "core": [], "planned": result["planned"]})
            row["images"].append(result["samples_per_s"])
            row["core"].append((many[1] - few[1]) / steps)
    base = statistics.median(seen["fp32", "one pass"]["core"])
    print("| precision | step | activations, MiB | all, MiB | images/s | core ms | against fp32, by cores |\n|---|---|---|---|---|---|---|")
    for (precision, name), row in seen.items():
        planned, core = row["planned"], statistics.median(row["core"])
        print(f"| {precision} | {name} | {planned['activations'] / 2**20:.1f} | {sum(planned.values()) / 2**20:.1f} | "
              f"{statistics.median(row['images']):.1f} | {1000 * core:.0f} | {base / core:.2f} |")


def train(folder, config, tandem, name, words=(), sets=()):
    """Losses of all steps, and of the last evaluation loss and accuracy."""
    directory = pathlib.Path(folder) / name
    run([tandem, *words, "train", config, "--run-dir", directory, *sets_of(sets)])
    rows = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    last = [row for row in rows if row.get("eval_loss") is not None][-1]
    return [row["loss"] for row in rows], last["eval_loss"], last["eval_accuracy"]


def small_config(folder, steps, threads):
    return write_config(folder, model={**MODEL, "width": 16, "blocks": [1, 1, 1], "image_size": 16}, threads=threads,
                        train={"steps": steps, "eval_every": steps, "batch": 64, "lr": 0.1},
                        data={"train": "builtin:shapes", "eval_samples": 1000})


def norms(tandem, folder, steps):
    config = small_config(folder, steps, threads=2)
    print(f"\n| norm | micro-batch | passes | loss of step 1 | of step 5 | mean of the last 20 of {steps} | eval loss | eval accuracy |")
    print("|---|---|---|---|---|---|---|---|")
    for norm in ("batch", "group"):
        for micro_batch in (64, 16, 4, 2):
            losses, evaluated, accuracy = train(folder, config, tandem, f"{norm}-{micro_batch}", sets=[
                f"model.norm={norm}", f"train.micro_batch={micro_batch}"])
            print(f"| {norm} | {micro_batch} | {64 // micro_batch} | {losses[0]:.6f} | {losses[4]:.6f} | "
                  f"{statistics.mean(losses[-20:]):.3f} | {evaluated:.3f} | {accuracy:.3f} |", flush=True)


def ranks(tandem, folder, steps):
    config = small_config(folder, steps, threads=1)
    print("\n| ranks | norm | loss of step 1 | of step 5 |\n|---|---|---|---|")
    for norm in ("batch", "sync", "group"):
        for count, micro_batch in ((1, 64), (2, 32)):
            words = ["launch", "--nproc-per-node", 2] if count == 2 else []
            more = ["parallel.strategy=ddp", "parallel.data=2"] if count == 2 else []
            losses, _, _ = train(folder, config, tandem, f"{norm}-{count}-ranks", words, [
                f"model.norm={norm}", f"train.micro_batch={micro_batch}", *more])
            print(f"| {count} | {norm} | {losses[0]:.6f} | {losses[4]:.6f} |", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tandem", type=pathlib.Path, default=pathlib.Path("build/release/bin/tandem"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3, help="measured in each round")
    parser.add_argument("--train-steps", type=int, default=150)
    parser.add_argument("--only", default="memory,norm,ranks")
    args = parser.parse_args()
    tandem = args.tandem.resolve()
    with tempfile.TemporaryDirectory() as folder:
        if "memory" in args.only:
            memory_and_speed(tandem, folder, args.rounds, args.steps)
        if "norm" in args.only:
            norms(tandem, folder, args.train_steps)
        if "ranks" in args.only:
            ranks(tandem, folder, 5)


main()
