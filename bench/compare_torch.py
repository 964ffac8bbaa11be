#!/usr/bin/env python3
"""The yardstick workloads in Tandem and in PyTorch, in turns on the same cores, so that both meet the same machine.

  python3 bench/compare_torch.py [--tandem build/release/bin/tandem] [--rounds 3] [--cores 0,1] [--python python3]

Prints one row a workload and precision: tokens/s of both (medians over the rounds), their ratio, and Tandem's fraction
of the cores' multiply-add peak, measured in the same process. Without torch, Tandem's figures alone.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)


def run(command, cores):
    out = subprocess.run(["taskset", "-c", cores] + command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return json.loads(out.strip().splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tandem", default=os.path.join(ROOT, "build/release/bin/tandem"))
    parser.add_argument("--python", default=sys.executable, help="the python3 that has torch")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--cores", default="0,1")
    parser.add_argument("--workloads", default="cpu-gpt,cpu-llama")
    parser.add_argument("--precisions", default="fp32,bf16")
    args = parser.parse_args()
    threads = str(len(args.cores.split(",")))
    has_torch = subprocess.run([args.python, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode == 0
    print(f"{'workload':<10} {'prec':<5} {'tandem tok/s':>13} {'torch tok/s':>12} {'ratio':>6}  {'GFLOP/s':>8} {'of peak':>8} {'start s':>8}")
    for workload in args.workloads.split(","):
        for precision in args.precisions.split(","):
            ours, theirs = [], []
            for _ in range(args.rounds):
                ours.append(run([args.tandem, "bench", os.path.join(ROOT, "configs", workload + ".yaml"), "--json",
                                 "--set", f"precision={precision}", "--set", f"threads={threads}",
                                 "--steps", str(args.steps), "--warmup", "2"], args.cores))
                if has_torch:
                    theirs.append(run([args.python, os.path.join(HERE, "torch_bench.py"), "--w", workload, "--device", "cpu",
                                       "--mode", "eager", "--precision", precision, "--threads", threads,
                                       "--steps", str(args.steps), "--warmup", "2"], args.cores))
            median = lambda rows, key: statistics.median(row[key] for row in rows)
            speed = median(ours, "tokens_per_s" if "tokens_per_s" in ours[0] else "samples_per_s")
            torch_speed = median(theirs, "tok_s") if theirs else 0
            ratio = f"{speed / torch_speed:6.2f}" if theirs else "     -"
            print(f"{workload:<10} {precision:<5} {speed:>13.0f} {torch_speed:>12.0f} {ratio}  {median(ours, 'model_gflops'):>8.1f} "
                  f"{median(ours, 'fraction_of_peak'):>8.3f} {median(ours, 'start_overhead_s'):>8.2f}", flush=True)


main()
