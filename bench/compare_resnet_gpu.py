#!/usr/bin/env python3
"""ResNets on one GPU in Tandem and in PyTorch (torch.compile, channels last, bf16), one after the other in one call.

  python3 bench/compare_resnet_gpu.py [--tandem build/release/bin/tandem] [--python python3] [--only resnet-w64,resnet-50] [--steps 30]
                                      [--mode compile|eager] [--device cuda] [--set KEY=VALUE ...]

Tandem runs before PyTorch and after it; the median of its steps counts. Prints images/s of both and their ratio, the memory of both (Tandem:
arenas on the device and what libraries took; PyTorch: what its allocator held at most) and its ratio. Without torch, Tandem's figures
alone. The images of both are made up. Tandem's are prepared on disk and come through its loader, on all cores; PyTorch's lie on the GPU.
"""
import argparse
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
PLAIN = ["train.label_smoothing=0", "data.flip=false", "data.crop=0"]
WORKLOADS = {  # config, batch, pixels a side, classes, assignments, and the same for torch_resnet.py
    "resnet-w64": ("resnet-w64", 512, 32, 10, [], ["--width", "64", "--blocks", "2,2,2"]),
    "resnet-50": ("resnet50-gpu", 256, 224, 1000, PLAIN,
                  ["--width", "64", "--blocks", "3,4,6,3", "--stem", "imagenet", "--bottleneck"]),
}


def write_png(path, size, number):
    """A picture of stripes, another for each number."""
    def piece(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + bytes((column * (number % 13 + 1) + row * (number % 7) + 40 * channel) % 256
                                  for column in range(size) for channel in range(3)) for row in range(min(size, 8)))
    rows = (rows * (size // 8 + 1))[:size * (3 * size + 1)]
    header = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + piece(b"IHDR", header) + piece(b"IDAT", zlib.compress(rows, 1)) + piece(b"IEND", b""))


def prepare_images(tandem, folder, size, classes, count):
    """A prepared set of so many images; its path."""
    pictures, prepared = os.path.join(folder, f"pictures-{size}"), os.path.join(folder, f"prepared-{size}")
    for number in range(count):
        where = os.path.join(pictures, f"{number % classes:04d}")
        os.makedirs(where, exist_ok=True)
        write_png(os.path.join(where, f"{number}.png"), size, number)
    subprocess.run([tandem, "prepare", "--images", pictures, "--size", str(size), "--out", prepared], check=True, stdout=subprocess.DEVNULL)
    return prepared


def last_json(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if done.returncode == 0 and lines else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tandem", default=os.path.join(ROOT, "build/release/bin/tandem"))
    parser.add_argument("--python", default=sys.executable, help="the python3 that has torch")
    parser.add_argument("--only", default=",".join(WORKLOADS))
    parser.add_argument("--mode", default="compile")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--batch", type=int, help="instead of the workload's own")
    parser.add_argument("--set", action="append", default=[], help="for Tandem")
    args = parser.parse_args()
    print(f"{'workload':<11} {'batch':>5} {'tandem img/s':>12} {'torch img/s':>11} {'ratio':>6} {'GiB':>6} {'torch GiB':>9} {'ratio':>6}", flush=True)
    failed = False
    folder = tempfile.TemporaryDirectory()
    for name in args.only.split(","):
        config, batch, size, classes, sets, theirs = WORKLOADS[name]
        batch = args.batch or batch
        images = prepare_images(args.tandem, folder.name, size, classes, max(2 * classes, 2048))
        sets = [*sets, f"train.batch={batch}", f"train.micro_batch={batch}", f"data.train={images}", f"data.eval={images}",
                f"data.workers={max(1, (os.cpu_count() or 2) - 1)}", *args.set]
        theirs = [*theirs, "--size", str(size), "--classes", str(classes)]
        ours = [args.tandem, "bench", os.path.join(ROOT, "configs", config + ".yaml"), "--device", args.device, "--json", "--steps",
                str(args.steps), "--warmup", "5"] + [word for item in sets for word in ("--set", item)]
        mine = [last_json(ours)]
        torch = last_json([args.python, os.path.join(HERE, "torch_resnet.py"), *theirs, "--batch", str(batch), "--mode", args.mode,
                           "--device", args.device, "--steps", str(args.steps)])
        mine.append(last_json(ours))
        if None in mine:
            print(f"{name:<11} failed", flush=True)
            failed = True
            continue
        speed = statistics.median(row["samples_per_s"] for row in mine)
        memory = sum(size for arena, size in mine[0]["allocated"].items() if arena != "host") / 2**30
        memory += mine[0].get("library_bytes", 0) / 2**30
        known = torch or {}

        def figure(value, form):
            return format(value, form) if value else "-"
        peak = known.get("peak_gib")
        print(f"{name:<11} {batch:>5} {speed:>12.0f} {figure(known.get('images_per_s'), '.0f'):>11} "
              f"{figure(torch and speed / torch['images_per_s'], '.3f'):>6} {memory:>6.2f} {figure(peak, '.2f'):>9} "
              f"{figure(peak and memory / peak, '.2f'):>6}", flush=True)
    sys.exit(1 if failed else 0)


main()
