#!/usr/bin/env python3
"""Two processes of one thread each, in Tandem and in PyTorch with gloo, in turns on the same two cores.

  python3 bench/compare_torch_ranks.py [--tandem build/release/bin/tandem] [--rounds 3] [--cores 0,1] [--python python3]

Prints, for ddp and fsdp, tokens/s of both (medians over the rounds) and their ratio, and Tandem's speed as a part of its
own with one process of two threads; then every round, because cores of a shared host change from one to the next. Both
take turns: what has just run is always the other. PyTorch's fsdp is FSDP2 (fully_shard on each block and the root);
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

    rows = {name: [] for name in ("torch ddp", "ddp", "torch fsdp", "fsdp", "torch one process", "one process")}
    for _ in range(args.rounds):
        for strategy in ("ddp", "fsdp"):
            rows["torch " + strategy].append(torch(strategy))
            rows[strategy].append(tandem(strategy))
        rows["torch one process"].append(run(theirs + ["--threads", "2"], args.cores))
        rows["one process"].append(run(ours + ["--set", "threads=2"], args.cores))

    def speeds(name):
        return [row.get("tokens_per_s", row.get("tok_s")) if row else None for row in rows[name]]

    def speed(name):
        found = [value for value in speeds(name) if value]
        return statistics.median(found) if found else None

    one = speed("one process")
    print(f"one process, two threads: {one:.0f} tokens/s")
    print(f"{'':<6} {'tandem tok/s':>13} {'of one process':>15} {'torch tok/s':>12} {'ratio':>6} {'start s':>8}")
    for strategy in ("ddp", "fsdp"):
        mine, theirs_too = speed(strategy), speed("torch " + strategy)
        start = statistics.median(row["start_overhead_s"] for row in rows[strategy])
        print(f"{strategy:<6} {mine:>13.0f} {mine / one:>15.2f} {f'{theirs_too:.0f}' if theirs_too else '-':>12} "
              f"{f'{mine / theirs_too:.2f}' if theirs_too else '-':>6} {start:>8.2f}")
    for name in rows:
        print(f"{name:<18} {' '.join(f'{value:>7.0f}' if value else '      -' for value in speeds(name))}")


main()
