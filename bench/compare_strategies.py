#!/usr/bin/env python3
"""One model under every strategy, in turns on the same cores: memory of a rank, bytes it sends, tokens/s, loss.

  python3 bench/compare_strategies.py [--ranks 2] [--rounds 3] [--steps 5] [--update-docs]

Every setup trains on the same batches; only `parallel` and `memory.offload` change. One process has as many threads as
there are ranks elsewhere, so that all use the same cores. Memory and bytes are what was allocated and counted in the
run, and the script fails where they are not what the plan said. --update-docs puts the table between the markers of
docs/lab-strategies.md and draws docs/images/strategies.svg. --no-speed leaves speeds out, for a machine that is busy.
"""
import argparse
import json
import os
import re
import shlex
import statistics
import struct
import subprocess
import sys
import time

import bar_chart

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
PAGE = os.path.join(ROOT, "docs/lab-strategies.md")
PICTURE = os.path.join(ROOT, "docs/images/strategies.svg")
BEGIN, END = "<!-- compare_strategies: begin -->", "<!-- compare_strategies: end -->"
STATE = ("weights", "master", "gradients", "optimizer")
MIB = 1024.0 * 1024.0


def setups(ranks):
    """Name -> settings. Sizes of axes that are not named are 1."""
    data = f"parallel.data={ranks}"
    stages = ["parallel.strategy=single", f"parallel.pipeline={ranks}"]
    fsdp = ["parallel.strategy=fsdp", data]
    return {
        "single": ["parallel.strategy=single"],
        "dp": ["parallel.strategy=dp", data],
        "ddp": ["parallel.strategy=ddp", data],
        "zero1": ["parallel.strategy=zero1", data],
        "zero2": ["parallel.strategy=zero2", data],
        "fsdp": fsdp,
        "fsdp, offload optimizer": fsdp + ["memory.offload=[optimizer]"],
        "fsdp, offload both": fsdp + ["memory.offload=[params, optimizer]"],
        "tensor": ["parallel.strategy=single", f"parallel.tensor={ranks}"],
        "pipeline, gpipe": stages + ["parallel.schedule=gpipe"],
        "pipeline, 1f1b": stages + ["parallel.schedule=1f1b"],
        "pipeline, interleaved": stages + ["parallel.schedule=interleaved", "parallel.chunks=2"],
    }


class Runner:
    def __init__(self, args):
        self.args = args
        self.settings = [f"train.batch={args.batch}", f"train.micro_batch={args.micro_batch}",
                         f"precision={args.precision}", "train.schedule=constant", "train.warmup=0",
                         "train.eval_every=0", "checkpoint.every=0"]

    def run(self, name, settings):
        """One row for each rank: rank, memory by category, bytes sent, tokens/s, loss of the last step."""
        settings = self.settings + settings + [f"threads={self.args.ranks if name == 'single' else 1}"]
        launch = [] if name in ("single", "dp") else ["launch", "--nproc-per-node", str(self.args.ranks), "--tee", "1"]
        out = self.call(launch + ["bench", self.args.config, "--json", "--steps", str(self.args.steps),
                                  "--warmup", str(self.args.warmup)], settings)
        rows = [json.loads(line[line.index("{"):]) for line in out.splitlines() if "{" in line]
        rows.sort(key=lambda row: row["rank"])
        for row in rows:
            if row["allocated"] != row["planned"] or row["sent"] != row["planned_sent"]:
                sys.exit(f"{name}: rank {row['rank']} is not as planned: {row}")
        return [{"rank": row["rank"], "memory": row["allocated"], "sent": sum(row["sent"].values()),
                 "speed": row["tokens_per_s"], "loss": row["loss"], "hardware": row["hardware"]} for row in rows]

    def call(self, arguments, settings):
        for setting in settings:
            arguments = arguments + ["--set", setting]
        done = subprocess.run(["taskset", "-c", self.args.cores, self.args.tandem] + arguments, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=self.args.timeout)
        if done.returncode != 0:
            sys.exit(f"tandem {' '.join(arguments)}: exit code {done.returncode}\n{done.stderr}")
        return done.stdout


def summary(name, rounds):
    """Of all ranks the one with the most memory; speeds are medians over the rounds."""
    largest = max(rounds[-1], key=lambda row: sum(row["memory"].values()))
    memory = largest["memory"]
    return {"name": name, "state": sum(memory[part] for part in STATE),
            "activations": memory["activations"] + memory["workspace"],
            "communication": memory["communication"], "host": memory["host"],
            "sent": max(row["sent"] for row in rounds[-1]),
            "speed": statistics.median(rows[0]["speed"] for rows in rounds), "loss": rounds[-1][0]["loss"]}


def as_float(value):
    """Rounded to fp32, as metrics.jsonl has it."""
    return struct.unpack("f", struct.pack("f", value))[0]


def table(rows, with_speed):
    mib = lambda value: f"{value / MIB:.1f}"
    yield ("| setup | state | activations | communication | host | sent a step | loss |" +
           (" tokens/s | of single |" if with_speed else ""))
    yield "|---|---|---|---|---|---|---|" + ("---|---|" if with_speed else "")
    for row in rows:
        cells = [row["name"], *(mib(row[key]) for key in ("state", "activations", "communication", "host", "sent")),
                 f"{as_float(row['loss']):.8f}"]
        if with_speed:
            cells += [f"{row['speed']:.0f}", f"{row['speed'] / rows[0]['speed']:.2f}"]
        yield "| " + " | ".join(cells) + " |"


def draw(rows, with_speed, title):
    mib = lambda value: f"{value / MIB:.0f} MiB"
    parts = ("state", "activations", "communication", "host")
    panels = [("memory of a rank", ("state", "activations", "comm.", "host"),
               [[row[part] for part in parts] for row in rows],
               [mib(sum(row[part] for part in parts)) for row in rows]),
              ("sent by a rank in a step", ("sent",), [[row["sent"]] for row in rows],
               [mib(row["sent"]) for row in rows])]
    if with_speed:
        panels.append(("tokens/s", ("speed",), [[row["speed"]] for row in rows], [f"{row['speed']:.0f}" for row in rows]))
    os.makedirs(os.path.dirname(PICTURE), exist_ok=True)
    bar_chart.write_bars(PICTURE, title, [row["name"] for row in rows], panels)


def update_page(lines):
    with open(PAGE) as file:
        text = file.read()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        sys.exit(f"{PAGE}: expected one '{BEGIN}' and one '{END}'")
    block = BEGIN + "\n" + "\n".join(lines) + "\n" + END
    with open(PAGE, "w") as file:
        file.write(re.sub(f"{re.escape(BEGIN)}.*{re.escape(END)}", lambda _: block, text, flags=re.S))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tandem", default=os.path.join(ROOT, "build/release/bin/tandem"))
    parser.add_argument("--config", default=os.path.join(ROOT, "configs/cpu-gpt.yaml"))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--micro-batch", type=int, default=4)
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--cores", help="as taskset takes them; as many as there are ranks unless given")
    parser.add_argument("--only", help="setups, separated by semicolons")
    parser.add_argument("--no-speed", action="store_true")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for one run")
    parser.add_argument("--update-docs", action="store_true")
    args = parser.parse_args()
    args.cores = args.cores or f"0-{args.ranks - 1}"
    chosen = setups(args.ranks)
    if args.only:
        chosen = {name.strip(): chosen[name.strip()] for name in args.only.split(";")}
    runner, rounds = Runner(args), {name: [] for name in chosen}
    for _ in range(args.rounds):
        for name, settings in chosen.items():
            rounds[name].append(runner.run(name, settings))
    rows = [summary(name, rounds[name]) for name in chosen]
    workload = os.path.splitext(os.path.basename(args.config))[0]
    command = shlex.join(["python3", "bench/compare_strategies.py", *sys.argv[1:]])
    about = (f"{workload}, {args.precision}, {args.ranks} ranks of one thread (single: one process of {args.ranks}), batch "
             f"{args.batch}, micro-batch {args.micro_batch}; MiB of the largest rank, loss of step "
             f"{args.warmup + args.steps}")
    if not args.no_speed:
        about += f", speeds: medians of {args.rounds} rounds of {args.steps} steps"
    hardware = next(iter(rounds.values()))[0][0]["hardware"]
    lines = [f"{hardware}; {time.strftime('%Y-%m-%d')}; `{command}`.", about + ".", "",
             *table(rows, not args.no_speed)]
    print("\n".join(lines))
    if args.update_docs:
        update_page(lines)
        draw(rows, not args.no_speed, f"{workload} on {args.ranks} ranks")


main()
