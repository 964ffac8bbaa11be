"""What a run's sinks cost: CPU seconds (user and system) of a step with all sinks on, less those with none.

  python3 bench/sinks_cost.py [--tandem build/release/bin/tandem] [--rounds 5] [--steps 20000]

The cost of a row does not depend on the model, and cpu-gpt's step is a second of work in which a few microseconds cannot be seen. So the
cost is measured on a model of a few microseconds a step, over many steps, on and off in turns, and set against cpu-gpt's step, which is
measured here too; that very run with sinks on and off is shown beside it. W&B is online, to a server of this script's (tests/watch/wandb_server.py), which is a
process of its own and does not count.
"""
import argparse
import json
import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
SMALL = {"name": "small", "device": "cpu", "threads": 1, "model": {"family": "mlp", "layers": 1, "width": 8, "image_size": 16, "classes": 10},
         "data": {"train": "builtin:shapes"}, "train": {"batch": 1, "micro_batch": 1, "eval_every": 0}, "checkpoint": {"every": 0}}


def cpu_of(command, env):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, env=env)
    if done.returncode != 0:
        raise SystemExit(f"{command}: {done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def all_sinks(folder, port):
    return ["log.tensorboard=true", "log.wandb=online", "log.comet=offline", f"log.prometheus=127.0.0.1:{port}", f"log.prometheus_file={folder}/tandem.prom"]


NO_SINKS = ["log.csv=false", "log.jsonl=false"]


def train(tandem, folder, config, log, steps, env):
    sets = [word for value in [f"train.steps={steps}", *log] for word in ("--set", value)]
    seconds = cpu_of([tandem, "train", config, "--run-dir", folder / "run", "--resume-from-checkpoint", "none", *sets], env)
    shutil.rmtree(folder / "run")
    return seconds


def differences(tandem, folder, config, steps, rounds, env, port):
    """(CPU seconds of a step without sinks, what all sinks add to it): medians of rounds in turns."""
    plain, added = [], []
    for number in range(rounds):
        logs = [("off", NO_SINKS), ("on", all_sinks(folder, port))]
        seen = {}
        for name, log in logs if number % 2 == 0 else reversed(logs):
            seen[name] = train(tandem, folder, config, log, 1 + steps, env) - train(tandem, folder, config, log, 1, env)
        plain.append(seen["off"] / steps)
        added.append((seen["on"] - seen["off"]) / steps)
        print(f"  round {number + 1}: {1e6 * plain[-1]:.1f} us a step without, {1e6 * added[-1]:+.1f} us with", file=sys.stderr)
    return statistics.median(plain), statistics.median(added)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tandem", type=pathlib.Path, default=ROOT / "build/release/bin/tandem")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20000)
    parser.add_argument("--gpt-steps", type=int, default=10)
    options = parser.parse_args()
    server = subprocess.Popen([sys.executable, ROOT / "tests/watch/wandb_server.py"], stdout=subprocess.PIPE, text=True)
    try:
        url, key = server.stdout.readline().split()
        env = {**os.environ, "WANDB_BASE_URL": url, "WANDB_API_KEY": key}
        with tempfile.TemporaryDirectory(prefix="tandem-sinks-") as folder:
            folder = pathlib.Path(folder)
            port = 20000 + os.getpid() % 10000
            small = folder / "small.yaml"
            small.write_text(json.dumps(SMALL))
            print("a small model:", file=sys.stderr)
            _, cost = differences(options.tandem, folder, small, options.steps, options.rounds, env, port)
            print("cpu-gpt:", file=sys.stderr)
            step, direct = differences(options.tandem, folder, ROOT / "configs/cpu-gpt.yaml", options.gpt_steps, options.rounds, env, port)
    finally:
        server.kill()
    print(f"all sinks: {1e6 * cost:.1f} us of CPU a step; cpu-gpt's step: {step:.3f} s of CPU; that is {100 * cost / step:.4f} % of it "
          f"(bar 0.5 %); on and off in cpu-gpt itself: {100 * direct / step:+.2f} % (the noise of {options.rounds} rounds)")


if __name__ == "__main__":
    main()
