#!/usr/bin/env python3
"""Shapes that nobody tuned for, on one GPU, in Tandem and in torch.compile, one after the other.

  python3 bench/shapes.py [--tandem build/release/bin/tandem] [--only NAME,...] [--fp8] [--no-torch] [--steps 10]

Each shape is a model in bf16, AdamW with fp32 masters, clipped gradients. Prints tokens/s of both, the ratio, and memory.
A ratio under 1.05 is marked: it is a cliff, or the beginning of one.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)

# V vocabulary, L layers, d width, h heads, kv key/value heads, ff hidden width, T context, B sequences.
GPT2 = {
    "gpt2-medium-50257-t1000": dict(V=50257, L=24, d=1024, h=16, ff=4096, T=1000, B=11),
    "gpt2-medium-50257": dict(V=50257, L=24, d=1024, h=16, ff=4096, T=1024, B=11),
    "gpt2-medium-t1000": dict(V=50304, L=24, d=1024, h=16, ff=4096, T=1000, B=11),
    "gpt2-medium": dict(V=50304, L=24, d=1024, h=16, ff=4096, T=1024, B=11),
    "gpt2-124m-50257-b2": dict(V=50257, L=12, d=768, h=12, ff=3072, T=1024, B=2),
    "gpt2-heads-of-80-t700": dict(V=50257, L=12, d=1280, h=16, ff=5120, T=700, B=7),
    "gpt2-heads-of-96": dict(V=32000, L=12, d=1536, h=16, ff=6144, T=1500, B=5),
    "gpt2-heads-of-128-t1000": dict(V=50257, L=12, d=1024, h=8, ff=4096, T=1000, B=16),
}
LLAMA = {
    "smollm-135m": dict(V=49152, L=30, d=576, h=9, kv=3, ff=1536, T=2048, B=8),
    "smollm-360m": dict(V=49152, L=32, d=960, h=15, kv=5, ff=2560, T=2048, B=8),
    "qwen2.5-0.5b": dict(V=151936, L=24, d=896, h=14, kv=2, ff=4864, T=2048, B=8),
    "qwen3-1.7b": dict(V=151936, L=28, d=2048, h=16, kv=8, ff=6144, T=4096, B=2),
    "llama-8b-8-layers": dict(V=128256, L=8, d=4096, h=32, kv=8, ff=14336, T=8192, B=1),
    "llama-odd": dict(V=32003, L=16, d=1024, h=16, kv=4, ff=2816, T=1337, B=9),
    "llama-heads-of-128-t3000": dict(V=128256, L=8, d=2048, h=16, kv=4, ff=8192, T=3000, B=4),
}
KEYS = {"V": "vocab", "L": "layers", "d": "width", "h": "heads", "kv": "kv_heads", "ff": "ffn", "T": "context"}


def last_json(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if done.returncode == 0 and lines else None


def tandem_step(args, base, shape, precision):
    sets = [f"model.{KEYS[key]}={value}" for key, value in shape.items() if key in KEYS]
    sets += [f"train.batch={shape['B']}", f"train.micro_batch={shape['B']}", f"precision={precision}",
             "memory.recompute=selective"]
    return last_json([args.tandem, "bench", os.path.join(ROOT, "configs", base + ".yaml"), "--json", "--steps", str(args.steps),
                      "--warmup", "3"] + [word for item in sets for word in ("--set", item)])


def torch_step(args, base, shape):
    shape = dict(shape, kv=shape.get("kv", shape["h"]))
    return last_json([args.python, os.path.join(HERE, "torch_bench.py"), "--w", base, "--steps", str(args.steps), "--warmup", "3",
                      "--shape", ",".join(f"{key}={value}" for key, value in shape.items())])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tandem", default=os.path.join(ROOT, "build/release/bin/tandem"))
    parser.add_argument("--python", default=sys.executable, help="the python3 that has torch")
    parser.add_argument("--only", default="", help="names of shapes")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--fp8", action="store_true", help="llama shapes in fp8, too")
    parser.add_argument("--no-torch", action="store_true")
    args = parser.parse_args()
    wanted = [name for name in args.only.split(",") if name]
    unknown = [name for name in wanted if name not in GPT2 and name not in LLAMA]
    if unknown:
        sys.exit(f"--only: no shape {', '.join(unknown)}; there are {', '.join([*GPT2, *LLAMA])}")
    print(f"{'shape':<26} {'tandem':>9} {'torch':>9} {'ratio':>6} {'GiB':>6} {'torch':>6} {'fp8':>9} {'ratio':>6}", flush=True)
    ratios = []
    for name, shape in {**GPT2, **LLAMA}.items():
        if wanted and name not in wanted:
            continue
        base = "gpt2-124m" if name in GPT2 else "llama-1b"
        ours = tandem_step(args, base, shape, "bf16")
        fp8 = tandem_step(args, base, shape, "fp8") if args.fp8 and name in LLAMA else None
        theirs = None if args.no_torch else torch_step(args, base, shape)
        if ours is None:
            print(f"{name:<26} failed", flush=True)
            continue
        memory = sum(size for arena, size in ours["allocated"].items() if arena != "host") + ours.get("library_bytes", 0)
        ratio = ours["tokens_per_s"] / theirs["tok_s"] if theirs else None
        ratios += [ratio] if ratio else []
        cell = lambda value, form: format(value, form) if value else "-"
        print(f"{name:<26} {ours['tokens_per_s']:>9.0f} {cell(theirs and theirs['tok_s'], '.0f'):>9} {cell(ratio, '.3f'):>6} "
              f"{memory / 2**30:>6.1f} {cell(theirs and theirs['peak_gb'], '.1f'):>6} {cell(fp8 and fp8['tokens_per_s'], '.0f'):>9} "
              f"{cell(fp8 and theirs and fp8['tokens_per_s'] / theirs['tok_s'], '.3f'):>6}"
              f"{'  <-- a cliff' if ratio and ratio < 1.05 else ''}", flush=True)
    if ratios:
        print(f"{len(ratios)} shapes: least {min(ratios):.3f}, median {statistics.median(ratios):.3f} of torch.compile")


main()
