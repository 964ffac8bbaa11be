#!/usr/bin/env python3
"""How fast a model writes: tokens per second of one text, and what share of the memory's speed that is.

Each row is a run of `tandem bench CONFIG --generate N`, which times N tokens by random weights and then, in the same
process and with as many threads, how fast memory can be read. Several runs, since machines drift: the median is shown.

    bench/sampling.py --tandem build/release/bin/tandem [--config configs/smollm2-135m.yaml] [--device cpu] [--tokens 200] [--runs 3]
"""

import argparse
import json
import statistics
import subprocess
import sys


def run(options, precision):
    command = [options.tandem, "bench", options.config, "--generate", str(options.tokens), "--json", "--device", options.device,
               "--set", f"precision={precision}"]
    if options.threads:
        command += ["--set", f"threads={options.threads}"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tandem", required=True)
    parser.add_argument("--config", default="configs/smollm2-135m.yaml")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--precisions", default="bf16,fp16,fp32")
    options = parser.parse_args()
    rows = {precision: [] for precision in options.precisions.split(",")}
    for _ in range(options.runs):
        for precision, results in rows.items():
            results.append(run(options, precision))
    print(f"{options.config} on {results[0]['hardware']}, {results[0]['threads']} threads, {options.tokens} tokens")
    print(f"{'precision':<10} {'tokens/s':>9} {'GB/s read':>10} {'memory GB/s':>12} {'share':>6}  shares of all runs")
    for precision, results in rows.items():
        middle = sorted(results, key=lambda row: row["fraction_of_bandwidth"])[len(results) // 2]
        shares = " ".join(f"{row['fraction_of_bandwidth']:.2f}" for row in results)
        rate = statistics.median(row["tokens_per_s"] for row in results)
        print(f"{precision:<10} {rate:>9.1f} {middle['gb_per_s']:>10.1f} {middle['read_gb_per_s']:>12.1f} "
              f"{middle['fraction_of_bandwidth']:>6.2f}  {shares}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
