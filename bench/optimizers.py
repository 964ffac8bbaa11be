#!/usr/bin/env python3
"""AdamW and Muon on the quickstart's model, each with the best learning rate of one grid, and AdamW with its states in
fewer bits: losses, memory of the states, a picture of the best two.

  python3 bench/optimizers.py --tandem build/release/bin/tandem --runs runs/optimizers --picture docs/images/optimizers.svg

Runs that are finished are not run again.
"""
import argparse
import json
import pathlib
import subprocess

import loss_chart

RATES = (1.5e-3, 3e-3, 6e-3, 1.2e-2)
CONFIG = pathlib.Path(__file__).resolve().parent.parent / "configs/quickstart.yaml"


def command(args, verb, settings):
    words = [str(args.tandem), verb, str(CONFIG)]
    for key, value in {"train.steps": args.steps, "train.warmup": args.steps // 10, "train.eval_every": args.steps,
                       "checkpoint.every": 0, "threads": 1, **settings}.items():
        words += ["--set", f"{key}={value}"]
    return words


def eval_loss(args, name, settings):
    folder = args.runs / name
    if not (folder / "summary.json").exists():
        subprocess.run(command(args, "train", settings) + ["--run-dir", str(folder)], check=True, capture_output=True)
    return json.loads((folder / "summary.json").read_text())["eval_loss"]


def optimizer_bytes(args, settings):
    plan = subprocess.run(command(args, "plan", settings) + ["--json"], check=True, capture_output=True, text=True).stdout
    return json.loads(plan)["planned_bytes"]["optimizer"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tandem", type=pathlib.Path, required=True)
    parser.add_argument("--runs", type=pathlib.Path, required=True)
    parser.add_argument("--picture", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=300)
    args = parser.parse_args()
    best = {}
    for optimizer in ("adamw", "muon"):
        losses = {}
        for rate in RATES:
            losses[rate] = eval_loss(args, f"{optimizer}-{rate:g}", {"train.optimizer": optimizer, "train.lr": rate})
            print(f"{optimizer} lr {rate:g}: eval loss {losses[rate]:.4f}", flush=True)
        best[optimizer] = min(losses, key=losses.get)
    print("best rates: " + ", ".join(f"{name} {rate:g}" for name, rate in best.items()))
    wide = eval_loss(args, f"adamw-{best['adamw']:g}", {})
    wide_bytes = optimizer_bytes(args, {})
    for state in ("bf16", "int8"):
        settings = {"train.lr": best["adamw"], "train.optimizer_state": state}
        loss = eval_loss(args, f"adamw-{best['adamw']:g}-{state}", settings)
        share = optimizer_bytes(args, settings) / wide_bytes
        print(f"adamw {state}: eval loss {loss:.4f} ({loss / wide - 1:+.2%}), {share:.3f} of the states' memory", flush=True)
    if args.picture:
        runs = [(f"{name} {rate:g}", loss_chart.read(args.runs / f"{name}-{rate:g}" / "metrics.jsonl"))
                for name, rate in best.items()]
        title = f"The quickstart's model, {args.steps} steps, each with its best rate of the grid"
        args.picture.write_text("\n".join(loss_chart.chart(title, runs)) + "\n")


if __name__ == "__main__":
    main()
