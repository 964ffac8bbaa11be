#!/usr/bin/env python3
"""Two processes of one thread each, in Tandem and in PyTorch with gloo, in turns on the same two cores.

  python3 bench/compare_torch_ranks.py [--tandem build/release/bin/tandem] [--rounds 3] [--cores 0,1] [--python python3]

Prints every round as it ends, then, for ddp and fsdp, tokens/s of both and their ratio, and Tandem's speed as a part of
its own with one process of two threads: medians over the rounds, and the fastest rounds. Cores of a shared host change
from one second to the next, and two ranks wait for the slower one; the fastest rounds are those that nobody disturbed.
Both take turns: what has just run is always the other. PyTorch's fsdp is FSDP2 (fully_shard on each block and the root);
where the installed torch has none, or no torch is installed, Tandem's figures alone.
"""
import argparse
import json
import os
import socket
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def last_json(text):
    return json.loads([line for line in text.splitlines() if line.startswith("{")][-1])


def run(command, cores, ranks=1):
    """One process, or `ranks` of them with a core each; rank 0's JSON line, or None where it fails."""
    cores = cores.split(",")
    port, processes = str(free_port()), []
    for rank in range(ranks):
        env = dict(os.environ, OMP_NUM_THREADS=str(len(cores) // ranks))
        if ranks > 1:
            env.update(RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(ranks),
                       MASTER_ADDR="127.0.0.1", MASTER_PORT=port, GLOO_SOCKET_IFNAME="lo")
        own = cores if ranks == 1 else [cores[rank]]
        processes.append(subprocess.Popen(["taskset", "-c", ",".join(own)] + command, env=env, text=True,
                                          stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    outputs = [process.communicate() for process in processes]
    if any(process.returncode for process in processes):
        return None
    return last_json(outputs[0][0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tandem", default=os.path.join(ROOT, "build/release/bin/tandem"))
    parser.add_argument("--python", default=sys.executable, help="the python3 that has torch")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--cores", default="0,1")
    parser.add_argument("--workload", default="cpu-gpt")
    args = parser.parse_args()

    config = os.path.join(ROOT, "configs", args.workload + ".yaml")
    ours = [args.tandem, "bench", config, "--json", "--steps", str(args.steps), "--warmup", "2"]
    theirs = [args.python, os.path.join(HERE, "torch_bench.py"), "--w", args.workload, "--device", "cpu", "--mode", "eager",
              "--precision", "fp32", "--steps", str(args.steps), "--warmup", "2"]
    batch = {"cpu-gpt": 16, "cpu-llama": 8}[args.workload]

    def tandem(strategy):
        return run(ours + ["--set", "threads=1", "--set", f"parallel.strategy={strategy}", "--set", "parallel.data=2",
                           "--set", f"train.micro_batch={batch // 2}"], args.cores, ranks=2)

    def torch(strategy):
        return run(theirs + ["--threads", "1", "--parallel", strategy], args.cores, ranks=2)

    names = ["torch ddp", "ddp", "torch fsdp", "fsdp", "one process"]
    speeds, starts = {name: [] for name in names}, {name: [] for name in names}

    def measure(name, row):
        speeds[name].append(row.get("tokens_per_s", row.get("tok_s")) if row else None)
        starts[name].append(row.get("start_overhead_s") if row else None)

    print("tokens/s  " + "".join(f"{name:>13}" for name in names), flush=True)
    for n in range(args.rounds):
        for strategy in ("ddp", "fsdp"):
            measure("torch " + strategy, torch(strategy))
            measure(strategy, tandem(strategy))
        measure("one process", run(ours + ["--set", "threads=2"], args.cores))
        print(f"round {n + 1:<4}" + "".join(f"{speeds[name][-1]:>13.0f}" if speeds[name][-1] else f"{'-':>13}" for name in names),
              flush=True)

    def report(title, of):
        def speed(name):
            found = [value for value in speeds[name] if value]
            return of(found) if found else None

        one = speed("one process")
        print(f"{title}: one process, two threads {one:.0f} tokens/s")
        print(f"  {'':<6} {'tandem tok/s':>13} {'of one process':>15} {'torch tok/s':>12} {'ratio':>6} {'start s':>8}")
        for strategy in ("ddp", "fsdp"):
            mine, theirs_too = speed(strategy), speed("torch " + strategy)
            if not mine:
                print(f"  {strategy:<6} failed")
                continue
            start = statistics.median(value for value in starts[strategy] if value is not None)
            print(f"  {strategy:<6} {mine:>13.0f} {mine / one:>15.2f} {f'{theirs_too:.0f}' if theirs_too else '-':>12} "
                  f"{f'{mine / theirs_too:.2f}' if theirs_too else '-':>6} {start:>8.2f}")

    report("medians", statistics.median)
    report("fastest", max)


main()
