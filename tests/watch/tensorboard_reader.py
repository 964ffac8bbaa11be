"""TensorBoard's own reader gives back every scalar of a run's event files bit for bit.

Needs a python3 with the package tensorboard. Trains a small model, kills it and goes on, several times, or reads the run
directories that are given. CI has a reader of its own (event_files.py).
"""

import argparse
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))

import event_files  # noqa: E402
import tandem_run  # noqa: E402


def killed_run(program, folder, log):
    content = tandem_run.config(tandem_run.GPT2, log=log, train={"steps": 60, "eval_every": 7},
                                checkpoint={"every": 5})
    path, run = folder / "config.yaml", folder / "run"
    path.write_text(json.dumps(content))
    command = [program, "train", path, "--run-dir", run]
    for steps in (8, 13, 27, 44):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        metrics = run / "metrics.jsonl"
        while process.poll() is None and (not metrics.exists() or metrics.read_bytes().count(b"\n") < steps):
            time.sleep(0.001)
        process.kill()
        process.wait()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return run


def as_tensorboard_reads(run):
    from tensorboard.backend.event_processing import event_accumulator
    everything = event_accumulator.EventAccumulator(str(run / "tensorboard"), size_guidance={
        event_accumulator.SCALARS: 0, event_accumulator.TENSORS: 0})
    everything.Reload()
    tags = everything.Tags()
    found = {tag: [(event.step, struct.pack("<f", event.value)) for event in everything.Scalars(tag)]
             for tag in tags["scalars"]}
    texts = [event.tensor_proto.string_val[0].decode() for tag in tags["tensors"] if tag.startswith("config")
             for event in everything.Tensors(tag)]
    return found, texts


def check(run):
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    expected, (found, texts) = event_files.expected(rows), as_tensorboard_reads(run)
    wrong = [tag for tag in sorted(set(expected) | set(found)) if expected.get(tag) != found.get(tag)]
    starts = len(list((run / "tensorboard").glob("*tfevents*")))
    print(f"{run}: {len(rows)} steps in {starts} files, {len(found)} tags, {len(wrong)} that differ {wrong}; "
          f"{len(texts)} texts of the config")
    return not wrong and texts and all("train:" in text for text in texts)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tandem", help="the program, to train a run that is killed four times")
    parser.add_argument("runs", nargs="*", type=pathlib.Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tandem-tensorboard-") as folder:
        runs = options.runs or [killed_run(pathlib.Path(options.tandem).resolve(), pathlib.Path(folder), {"tensorboard": True})]
        sys.exit(not all([check(run) for run in runs]))


if __name__ == "__main__":
    main()
