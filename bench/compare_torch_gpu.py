#!/usr/bin/env python3
"""The yardstick workloads on one GPU in Tandem and in PyTorch, one after the other, so that both meet the same machine.

  python3 bench/compare_torch_gpu.py [--tandem build/release/bin/tandem] [--workloads gpt2-124m:32,llama-1b:4]
                                     [--mode compile|eager] [--steps 20] [--set KEY=VALUE ...]

A workload is the name of a config and a batch. Tandem runs before PyTorch and after it; the median of all its steps
counts. Prints tokens/s of both and their ratio, the memory of both (Tandem: arenas and what libraries took; PyTorch: what
its allocator held at most), and seconds from the start of the process to the end of the first step. Without torch,
Tandem's figures alone.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)


def last_json(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if done.returncode == 0 and lines else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tandem", default=os.path.join(ROOT, "build/release/bin/tandem"))
    parser.add_argument("--python", default=sys.executable, help="the python3 that has torch")
    parser.add_argument("--workloads", default="gpt2-124m:32,gpt2-124m:64,gpt2-1.5b:8,llama-1b:4")
    parser.add_argument("--mode", default="compile")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--set", action="append", default=[], help="for Tandem")
    parser.add_argument("--rows", help="append every measurement to this file, a line of JSON each")
    args = parser.parse_args()
    print(f"{'workload':<14} {'tandem tok/s':>13} {'torch tok/s':>12} {'ratio':>6} {'GiB':>6} {'torch GiB':>9} {'ratio':>6} "
          f"{'first step s':>12} {'torch':>6} {'loss':>8} {'torch':>8}", flush=True)
    for item in args.workloads.split(","):
        workload, batch = item.split(":")
        sets = [f"train.batch={batch}", f"train.micro_batch={batch}", *args.set]
        ours = [args.tandem, "bench", os.path.join(ROOT, "configs", workload + ".yaml"), "--json", "--steps", str(args.steps),
                "--warmup", "5"] + [word for assignment in sets for word in ("--set", assignment)]
        theirs = [args.python, os.path.join(HERE, "torch_bench.py"), "--w", workload, "--mode", args.mode, "--batch", batch,
                  "--steps", str(args.steps)]
        mine = [last_json(ours)]
        torch = last_json(theirs)
        mine.append(last_json(ours))
        if args.rows:
            with open(args.rows, "a") as file:
                file.writelines(json.dumps(row) + "\n" for row in [*mine, torch])
        if None in mine:
            print(f"{item:<14} failed", flush=True)
            continue
        speed = statistics.median(row["tokens_per_s"] for row in mine)
        memory = sum(size for arena, size in mine[0]["allocated"].items() if arena != "host") / 2**30
        memory += mine[0].get("library_bytes", 0) / 2**30
        known = torch or {}

        def figure(value, form):
            return format(value, form) if value else "-"
        print(f"{item:<14} {speed:>13.0f} {figure(known.get('tok_s'), '.0f'):>12} "
              f"{figure(torch and speed / torch['tok_s'], '.3f'):>6} {memory:>6.1f} {figure(known.get('peak_gb'), '.1f'):>9} "
              f"{figure(torch and memory / torch['peak_gb'], '.2f'):>6} {mine[0]['first_step_s']:>12.2f} "
              f"{figure(known.get('first_step_s'), '.1f'):>6} {mine[0]['loss']:>8.4f} {figure(known.get('loss'), '.4f'):>8}",
              flush=True)


main()
