#!/usr/bin/env python3
"""Holds `tandem plan --cluster FILE` against `tandem bench` for CPU ranks of this machine, after `tandem calibrate`.

  python3 bench/cpu_plan.py [--ranks 2,4,8] [--rounds 3] [--steps 5] [--rows TEXT] [--out DIR]

One model under every strategy and pipeline schedule. The machine is measured once (`tandem calibrate` of all setups);
then all setups are run in turns, and each median is held against its plan. Prints a row for each, the mean error, and
every pair whose measured steps differ by more than 5 % and whose plans are the other way round. --prefix runs the
measured programs through another, such as `--prefix "nice -n -5"` on a machine that others use, too.
"""

import argparse
import itertools
import json
import os
import pathlib
import re
import shlex
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
MODEL = {"family": "llama", "layers": 8, "width": 256, "heads": 8, "kv_heads": 8, "ffn": 704, "context": 128, "vocab": 2048}
APART = 0.05  # measured steps that differ by more have an order


def meshes(counts):
    """Name -> keys of the config: every strategy and schedule."""
    made = {"single": {"strategy": "single"}}
    for ranks in counts:
        for strategy in ("ddp", "zero2", "fsdp"):
            made[f"{strategy} {ranks}"] = {"strategy": strategy, "data": ranks}
        made[f"tensor {ranks}"] = {"strategy": "single", "tensor": ranks}
        for schedule, chunks in (("gpipe", 1), ("1f1b", 1), ("interleaved", 2)):
            if ranks * chunks <= MODEL["layers"]:
                made[f"{schedule} {ranks}"] = {"strategy": "single", "pipeline": ranks, "schedule": schedule, "chunks": chunks}
    if any(ranks >= 8 for ranks in counts):
        made["fsdp 2 x tensor 2 x 1f1b 2"] = {"strategy": "fsdp", "data": 2, "tensor": 2, "pipeline": 2, "schedule": "1f1b"}
    return {name: {"parallel": parallel} for name, parallel in made.items()}


def recipes(counts):
    """One rank or a few, and one technique at a time."""
    data = {"data": counts[0]}
    fsdp = {"parallel": {"strategy": "fsdp", **data}}
    return {"one rank": {}, "bf16": {"precision": "bf16"}, "recompute selective": {"memory": {"recompute": "selective"}},
            "recompute full": {"memory": {"recompute": "full"}}, "one pass of 16": {"passes": 1},
            "offload optimizer": {"memory": {"offload": ["optimizer"]}},
            f"ddp {counts[0]}": {"parallel": {"strategy": "ddp", **data}}, f"zero1 {counts[0]}": {"parallel": {"strategy": "zero1", **data}},
            f"zero2 {counts[0]}": {"parallel": {"strategy": "zero2", **data}}, f"fsdp {counts[0]}": fsdp,
            f"fsdp {counts[0]}, bf16, recompute full": {**fsdp, "precision": "bf16", "memory": {"recompute": "full"}},
            f"fsdp {counts[0]}, offload both": {**fsdp, "memory": {"offload": ["params", "optimizer"]}}}


def ranks_of(keys):
    parallel = keys.get("parallel", {})
    return parallel.get("data", 1) * parallel.get("tensor", 1) * parallel.get("pipeline", 1)


class Machine:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.environment = dict(os.environ, TANDEM_COMM_TIMEOUT_S="600")

    def write(self, name, keys):
        batch = self.args.batch
        config = {"name": re.sub(r"\W+", "-", name), "device": "cpu", "threads": 1, "model": MODEL, "precision": "fp32",
                  "train": {"batch": batch, "micro_batch": batch // keys.get("passes", 8), "steps": 10, "eval_every": 0},
                  "checkpoint": {"every": 0}} | {key: value for key, value in keys.items() if key != "passes"}
        path = self.folder / f"{config['name']}.yaml"
        path.write_text(json.dumps(config))
        return path

    def call(self, *words, measured=False):
        prefix = shlex.split(self.args.prefix) if measured else []
        done = subprocess.run([*prefix, self.args.tandem, *map(str, words)], capture_output=True, text=True, env=self.environment)
        if done.returncode != 0:
            sys.exit(f"tandem {' '.join(map(str, words))}: exit code {done.returncode}\n{done.stderr}")
        return done.stdout

    def measure(self, path, ranks):
        """Seconds of a step, the median of some; of the rank that says so first."""
        launch = ["launch", "--nproc-per-node", ranks] if ranks > 1 else []
        out = self.call(*launch, "bench", path, "--json", "--steps", self.args.steps, "--warmup", 2, measured=True)
        rows = [json.loads(line[line.index("{"):]) for line in out.splitlines() if "{" in line]
        return next(row["step_ms"] for row in rows if row["rank"] == 0) / 1e3


def print_order(rows):
    wrong = apart = 0
    for (a, plan_a, real_a), (b, plan_b, real_b) in itertools.combinations(rows, 2):
        if abs(real_a / real_b - 1) <= APART:
            continue
        apart += 1
        if (plan_a - plan_b) * (real_a - real_b) < 0:
            wrong += 1
            print(f"  the other way round: {a} measured {1e3 * real_a:.1f} ms, planned {1e3 * plan_a:.1f}; {b} {1e3 * real_b:.1f}, {1e3 * plan_b:.1f}")
    print(f"{apart - wrong} of {apart} pairs that differ by more than {100 * APART:.0f} % are in order")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="2,4,8")
    parser.add_argument("--recipes", action="store_true", help="one technique at a time instead of every mesh")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=5, help="of tandem calibrate")
    parser.add_argument("--rows", default="", help="only setups whose name matches this expression")
    parser.add_argument("--prefix", default="")
    parser.add_argument("--tandem", default=str(ROOT / "build/release/bin/tandem"))
    parser.add_argument("--out", type=pathlib.Path, help="a folder for configs and the calibration")
    args = parser.parse_args()
    counts = [int(word) for word in args.ranks.split(",")]
    setups = recipes(counts) if args.recipes else meshes(counts)
    chosen = {name: keys for name, keys in setups.items() if re.search(args.rows, name)}
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.out or pathlib.Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        machine = Machine(args, folder)
        paths = {name: machine.write(name, keys) for name, keys in chosen.items()}
        cluster = folder / "machine.yaml"
        machine.call("calibrate", *paths.values(), "--out", cluster, "--disk", folder, "--repeats", args.repeats, measured=True)
        plans = {name: json.loads(machine.call("plan", path, "--cluster", cluster, "--json")) for name, path in paths.items()}
        measured = {name: [] for name in chosen}
        for _ in range(args.rounds):
            for name, path in paths.items():
                measured[name].append(machine.measure(path, ranks_of(chosen[name])))
    rows = [(name, plans[name]["step_s"], statistics.median(measured[name])) for name in chosen]
    print(f"load average {os.getloadavg()[0]:.1f} at the end, {os.cpu_count()} cores, medians of {args.rounds} rounds of {args.steps} steps")
    for name, planned, real in rows:
        spread = max(measured[name]) / min(measured[name]) - 1
        parts = " ".join(f"{key} {100 * value / planned:.0f}" for key, value in plans[name]["time"].items() if value > 0.005 * planned)
        print(f"{name:<28} planned {1e3 * planned:8.1f} ms  measured {1e3 * real:8.1f} ms  error {100 * (planned / real - 1):+6.1f} %"
              f"  rounds within {100 * spread:3.0f} %  {plans[name]['memory_bytes'] / 2**20:6.1f} MiB a rank  [{parts}]{'  extrapolated' if plans[name]['extrapolated'] else ''}")
    errors = [abs(planned / real - 1) for _, planned, real in rows]
    print(f"{len(rows)} setups: mean error {100 * statistics.mean(errors):.1f} %, worst {100 * max(errors):.1f} %, within 10 %: {sum(error <= 0.1 for error in errors)}")
    print_order(rows)


if __name__ == "__main__":
    main()
