#!/usr/bin/env python3
"""AdamW with its states in fewer bits against fp32 on the quickstart's run, over several seeds: eval losses on the way and
at the end, how far seeds lie apart with fp32 alone, and the memory of the states.

  python3 bench/state_types.py --tandem build/release/bin/tandem --runs runs/states --seeds 1,2,3 --types int8

A seed gives other weights and another order of the data. Runs that are finished are not run again.
"""
import argparse
import json
import math
import pathlib
import statistics
import subprocess

CONFIG = pathlib.Path(__file__).resolve().parent.parent / "configs/quickstart.yaml"


def words(args, verb, kind, seed):
    settings = {"train.optimizer_state": kind, "train.seed": seed, "train.steps": args.steps, "checkpoint.every": 0,
                "threads": args.threads}
    return [str(args.tandem), verb, str(CONFIG)] + [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


def losses(args, kind, seed):
    """{step: eval loss} of a whole run."""
    folder = args.runs / f"{kind}-{seed}"
    if not (folder / "summary.json").exists():
        subprocess.run(words(args, "train", kind, seed) + ["--run-dir", str(folder), "--resume-from-checkpoint", "none"],
                       check=True, capture_output=True)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {row["step"]: row["eval_loss"] for row in rows if "eval_loss" in row}


def optimizer_bytes(args, kind):
    plan = subprocess.run(words(args, "plan", kind, 1) + ["--json"], check=True, capture_output=True, text=True).stdout
    return json.loads(plan)["planned_bytes"]["optimizer"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tandem", type=pathlib.Path, required=True)
    parser.add_argument("--runs", type=pathlib.Path, required=True)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--types", default="int8")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    seeds = [int(seed) for seed in args.seeds.split(",")]
    runs = {}
    for seed in seeds:
        for kind in ["fp32", *args.types.split(",")]:
            runs[kind, seed] = losses(args, kind, seed)
            print(f"seed {seed} {kind}: " + ", ".join(f"{step}: {loss:.4f}" for step, loss in runs[kind, seed].items()), flush=True)
    for step in runs["fp32", seeds[0]]:
        wide = [runs["fp32", seed][step] for seed in seeds]
        line = f"step {step}: fp32 {statistics.mean(wide):.4f}"
        if len(seeds) > 1:
            line += f", seeds apart by {statistics.stdev(wide) / statistics.mean(wide):.2%} (standard deviation)"
        for kind in args.types.split(","):
            ratios = [runs[kind, seed][step] / runs["fp32", seed][step] - 1 for seed in seeds]
            error = f" +- {statistics.stdev(ratios) / math.sqrt(len(seeds)):.2%}" if len(seeds) > 1 else ""
            line += f"; {kind} {statistics.mean(ratios):+.2%}{error} (" + ", ".join(f"{ratio:+.2%}" for ratio in ratios) + ")"
        print(line)
    for kind in args.types.split(","):
        print(f"{kind}: {optimizer_bytes(args, kind) / optimizer_bytes(args, 'fp32'):.3f} of the states' memory")


if __name__ == "__main__":
    main()
