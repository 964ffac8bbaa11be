"""What the system tests share: run the program, write small configs, read what a run left behind.

A test file is run as `x.py --tandem PATH [unittest arguments]`. Every test works in a temporary directory of
its own, so that files and tests can run side by side.
"""

import argparse
import csv
import json
import os
import pathlib
import pty
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]

DONE, FAILED, BAD_USAGE, DOES_NOT_FIT, BAD_DATA, INTERRUPTED = 0, 1, 2, 3, 4, 75

# Models that take milliseconds a step, with sizes that divide nothing evenly.
GPT2 = {"family": "gpt2", "layers": 3, "width": 48, "heads": 3, "context": 40, "vocab": 256}
LLAMA = {"family": "llama", "layers": 3, "width": 48, "heads": 6, "kv_heads": 2, "context": 40, "vocab": 256,
         "ffn": 104}
# Between them, all that the families of the llama builder differ in.
GEMMA = {**LLAMA, "head": 12, "tied": True, "norm_plus_one": True, "norm_place": "both", "activation": "gelu", "embed_scale": 7.0,
         "attention_scale": 0.3, "attention_softcap": 20.0, "logit_softcap": 10.0, "window": 9, "full_layers": [1],
         "qk_norm": "head", "rope_local_theta": 500.0, "rope_scaling": "linear:factor=2"}
OLMO = {**LLAMA, "qk_norm": "all", "norm_place": "after", "qkv_bias": True, "out_bias": True, "ffn_bias": True, "rope_dims": 4,
        "no_rope_layers": [2], "residual_scale": 0.5, "logit_scale": 0.5,
        "rope_scaling": "yarn:factor=4,original_max_position_embeddings=16"}
RESNET = {"family": "resnet", "blocks": [1, 1, 1], "width": 8, "image_size": 16, "norm": "batch"}
RESNET_GROUP = {**RESNET, "norm": "group", "groups": 4}
MLP = {"family": "mlp", "layers": 3, "width": 72, "image_size": 16}

# What two equal runs have in common in each row; speeds and times are their own.
EQUAL_COLUMNS = ("step", "epoch", "loss", "lr", "grad_norm", "loss_scale", "tokens", "samples", "eval_loss", "eval_accuracy")

DEADLINE_S = 240  # for one run of the program, on a busy machine: past it, it hangs
SOON_S = 120  # for what happens soon: past it, something hangs

_program = None


def program():
    return str(_program)


def free_port():
    """One that is free now, and the next one too: a launcher's store is there. Below the ports that the system gives to
    connections, of which tests beside this one make thousands."""
    while True:
        port = random.randrange(20000, 32000)
        try:
            for taken in (port, port + 1):
                with socket.socket() as probe:
                    probe.bind(("", taken))
            return port
        except OSError:
            continue


def temporary_directory():
    """In memory where there is room: every checkpoint waits for the disk, which is not what is tested. TANDEM_TEST_DIRECTORY names another place."""
    if "TANDEM_TEST_DIRECTORY" in os.environ:
        return tempfile.TemporaryDirectory(prefix="tandem-test-", dir=os.environ["TANDEM_TEST_DIRECTORY"])
    memory = pathlib.Path("/dev/shm")
    roomy = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 1 << 30
    return tempfile.TemporaryDirectory(prefix="tandem-test-", dir=memory if roomy else None)


def config(model, **sections):
    """A config of a few quick steps; `sections` are merged over it: train={"steps": 3}, precision="bf16".

    On one thread: tests run side by side, and threads without cores of their own spend their time waiting.
    """
    images = model["family"] in ("resnet", "mlp")
    made = {
        "name": "run",
        "device": "cpu",
        "threads": 1,
        "model": model,
        "data": {"train": "builtin:shapes" if images else "builtin:stories", "eval_samples": 6},
        "train": {"steps": 5, "batch": 6, "micro_batch": 3, "lr": 0.002, "warmup": 2, "eval_every": 0},
        "checkpoint": {"every": 100},
    }
    for key, value in sections.items():
        made[key] = {**made.get(key, {}), **value} if isinstance(value, dict) else value
    return made


class Result:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def __str__(self):
        return f"exit code {self.code}\n--- stdout\n{self.out[-2000:]}\n--- stderr\n{self.err[-2000:]}"


class TandemTest(unittest.TestCase):
    maxDiff = 2000

    def setUp(self):
        temporary = temporary_directory()
        self.addCleanup(temporary.cleanup)
        self.directory = pathlib.Path(temporary.name)

    def write_config(self, content, name="config.yaml"):
        """JSON is YAML. Returns the file's path."""
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=1))
        return path

    def tandem(self, *arguments, expect=DONE, env=None, **options):
        """Runs the program to its end. `expect` is the exit code, or None for any."""
        done = subprocess.run([program(), *map(str, arguments)], capture_output=True, text=True,
                              env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL, errors="replace",
                              **{"timeout": DEADLINE_S, "cwd": self.directory, **options})
        result = Result(done.returncode, done.stdout, done.stderr)
        if expect is not None:
            self.assertEqual(expect, result.code, f"tandem {' '.join(map(str, arguments))}: {result}")
        return result

    def start(self, *arguments, env=None):
        """Starts the program and returns its process, which ends with the test at the latest."""
        process = subprocess.Popen([program(), *map(str, arguments)], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, cwd=self.directory, stdin=subprocess.DEVNULL,
                                   env={**os.environ, **(env or {})})
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        return process

    def wait_for(self, condition, what, interval=0.005):
        """Asks until it is true; fails where it does not become so."""
        deadline = time.monotonic() + SOON_S
        while not condition():
            self.assertLess(time.monotonic(), deadline, f"waited in vain for {what}")
            time.sleep(interval)

    def on_a_terminal(self, *arguments, expect=DONE, **options):
        """All that the program writes to a terminal that is its standard error, and its output unless that goes
        elsewhere."""
        leader, follower = pty.openpty()
        process = subprocess.Popen([program(), *map(str, arguments)], cwd=self.directory,
                                   **{"stdin": subprocess.DEVNULL, "stdout": follower, "stderr": follower, **options})
        os.close(follower)
        seen = b""
        while True:
            try:
                part = os.read(leader, 65536)
            except OSError:  # the other side is closed
                break
            if not part:
                break
            seen += part
        os.close(leader)
        self.assertEqual(expect, process.wait(DEADLINE_S), seen)
        return seen.decode()

    def train(self, content, run, *arguments, **options):
        """Trains in the run directory `run`, whose path it returns."""
        path = self.write_config(content, f"{run}.yaml")
        self.tandem("train", path, "--run-dir", self.directory / run, *arguments, **options)
        return self.directory / run

    def plan(self, content):
        return json.loads(self.tandem("plan", self.write_config(content, "plan.yaml"), "--json").out)

    def assert_equal_runs(self, a, b):
        """The same steps, the same numbers to the last bit, and the same weights and optimizer state."""
        self.assertEqual(read_metrics(a), read_metrics(b))
        compared = self.tandem("inspect", a, "--compare", b, expect=None)
        self.assertEqual(DONE, compared.code, compared)

    def refuse(self, code, parts, *arguments, **options):
        """The program refuses with one line that holds `parts`, and leaves every file as it was."""
        before = snapshot(self.directory)
        result = self.tandem(*arguments, expect=None, **options)
        self.assert_one_line_error(result, code, *parts)
        self.assertEqual(before, snapshot(self.directory))
        return result

    def assert_one_line_error(self, result, code, *parts):
        """One line on stderr, `tandem: error: ...`, which holds every one of `parts`."""
        self.assertEqual(code, result.code, result)
        lines = result.err.splitlines()
        self.assertEqual(1, len(lines), result)
        self.assertTrue(lines[0].startswith("tandem: error: "), result)
        for part in parts:
            self.assertIn(str(part), lines[0])


def snapshot(directory):
    """{path: content} of everything under a directory."""
    return {str(path.relative_to(directory)): path.read_bytes() if path.is_file() else None
            for path in directory.rglob("*")}


def read_samples(run):
    """How many samples, or tokens, there had been after each step."""
    rows = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [row["tokens"] if "tokens" in row else row["samples"] for row in rows]


def read_metrics(run):
    """metrics.jsonl as a list of {column: text}: numbers as they are written, without those that tell time."""
    rows = []
    for line in (run / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line, parse_float=str, parse_int=str, parse_constant=str)
        rows.append({key: row[key] for key in EQUAL_COLUMNS if key in row})
    return rows


def read_csv_metrics(run):
    """metrics.csv in the form of read_metrics."""
    with open(run / "metrics.csv", newline="") as file:
        return [{key: row[key] for key in EQUAL_COLUMNS if row.get(key)} for row in csv.DictReader(file)]


def read_events(run, kind=None):
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    return [event for event in events if kind in (None, event["type"])]


def read_summary(run):
    return json.loads((run / "summary.json").read_text())


def checkpoint(run, step):
    return run / "checkpoints" / f"step-{step:08}"


def read_manifest(run, step):
    return json.loads((checkpoint(run, step) / "manifest.json").read_text())


SKIPPED = 77  # SKIP_RETURN_CODE in tests/CMakeLists.txt


def main():
    global _program
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--tandem", required=True, help="the program under test")
    known, rest = parser.parse_known_args()
    _program = pathlib.Path(known.tandem).resolve()
    result = unittest.main(argv=[sys.argv[0], *rest], exit=False).result
    if result.wasSuccessful() and result.testsRun == 0 and result.skipped:
        print(f"skipped: {result.skipped[0][1]}")
        sys.exit(SKIPPED)
    sys.exit(not result.wasSuccessful())
