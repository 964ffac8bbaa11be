#!/usr/bin/env python3
"""Saves and loads a checkpoint of 1 GB over S3, in turns with plain parallel uploads and downloads of as many bytes (eight processes of
curl), to the same server (store_server.py). Says how fast each was, their ratio, and the CPU time beside curl's.

    python3 bench/store_speed.py --tandem build/release/bin/tandem
"""
import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

STREAMS = 8
PIECE = 8 << 20
CONFIG = {"name": "speed", "device": "cpu",
          "model": {"family": "gpt2", "layers": 2, "width": 2304, "heads": 16, "vocab": 256, "context": 16},
          "data": {"train": "builtin:stories", "eval_samples": 6},
          "train": {"steps": 1, "batch": 1, "micro_batch": 1, "optimizer": "sgd", "eval_every": 0}}


def timed(commands, environment):
    """(seconds, CPU seconds) of commands that run at the same time."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    running = [subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for command in commands]
    for process in running:
        said = process.communicate()[1]
        if process.returncode != 0:
            sys.exit(f"{process.args[:3]}: {said.decode()}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.monotonic() - start, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def curl(pieces, url, upload):
    """Eight of them, each with a share of the pieces, over one connection each."""
    commands = []
    for stream in range(STREAMS):
        command = ["curl", "-sS", "--fail", "-H", "Expect:"]
        for piece in pieces[stream::STREAMS]:
            command += ["-T", str(piece)] if upload else ["-o", "/dev/null"]
            command.append(f"{url}/plain/{piece.name}")
        commands.append(command)
    return commands


def cut(path, folder):
    pieces = []
    with open(path, "rb") as file:
        while piece := file.read(PIECE):
            pieces.append(folder / f"{len(pieces):05}")
            pieces[-1].write_bytes(piece)
    return pieces


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tandem", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", help="for the checkpoint: on a disk, or /dev/shm")
    arguments = parser.parse_args()
    tandem = os.path.abspath(arguments.tandem)
    with tempfile.TemporaryDirectory(dir=arguments.directory) as name:
        folder = pathlib.Path(name)
        (folder / "config.yaml").write_text(json.dumps(CONFIG))
        subprocess.run([tandem, "train", folder / "config.yaml", "--run-dir", folder / "run"], check=True,
                       stdout=subprocess.DEVNULL)
        data = next((folder / "run/checkpoints").glob("step-*/*.ckpt"))
        gigabytes = data.stat().st_size / 1e9
        (folder / "pieces").mkdir()
        pieces = cut(data, folder / "pieces")
        server = subprocess.Popen([sys.executable, pathlib.Path(__file__).with_name("store_server.py")], stdout=subprocess.PIPE, text=True)
        url = f"http://127.0.0.1:{int(server.stdout.readline())}"
        environment = {**os.environ, "AWS_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b",
                       "AWS_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"}
        print(f"{gigabytes:.2f} GB in {data.name}", flush=True)
        results = {}
        try:
            for number in range(arguments.rounds):
                store = f"s3://bucket/{number}"
                turns = {"plain up": curl(pieces, url, True), "save": [[tandem, "copy", str(folder / "run"), store]],
                         "plain down": curl(pieces, url, False), "load": [[tandem, "inspect", store, "--verify"]]}
                for what, commands in turns.items():
                    results.setdefault(what, []).append(timed(commands, environment))
                subprocess.run(["curl", "-sS", "-X", "DELETE", f"{url}/bucket/{number}/?below"], check=True)
        finally:
            server.kill()
            server.wait()
    for what, runs in results.items():
        seconds, cpu = (statistics.median(column) for column in zip(*runs))
        print(f"{what:<11} {gigabytes / seconds:.2f} GB/s ({min(r[0] for r in runs):.2f} to {max(r[0] for r in runs):.2f} s), "
              f"CPU {cpu / gigabytes:.2f} s a GB")
    for ours, plain in (("save", "plain up"), ("load", "plain down")):
        ratio = statistics.median(p[0] / o[0] for p, o in zip(results[plain], results[ours]))
        more = statistics.median(o[1] - p[1] for p, o in zip(results[plain], results[ours])) / gigabytes
        print(f"{ours}: {ratio:.2f} of plain; {more:+.2f} CPU seconds a GB beside curl's")


if __name__ == "__main__":
    main()
