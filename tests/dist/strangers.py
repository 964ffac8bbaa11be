"""Strangers at the ports of a run, at its start and while it trains: it ends as if nobody had come, and nothing outside
the run can be opened by what a stranger says.

A kind of stranger is a function in crowd.py's KINDS. They come to every port that a process of the launch opens: the
store of the ranks, the rendezvous of the launchers, and whatever else there is. `--all` makes a hundred runs.
"""

import argparse
import contextlib
import os
import pathlib
import random
import resource
import signal
import subprocess
import sys
import threading

import crowd
import ranks
import tandem_run
from crowd import Crowd
from ranks import GPT2, LLAMA, RanksTest, config, mesh
from tandem_run import FAILED, INTERRUPTED, free_port

ALL_RUNS = 100
FEW_FILES = 1024  # what a process may open by default
DEADLINE_S = 120
_all = False


def training(model=GPT2, parallel=None, **train):
    return config(model, parallel=parallel or mesh("zero1", data=2), checkpoint={"every": 10},
                  train={"steps": 30, "batch": 8, "micro_batch": 1, **train})


def limited(*command):
    """As a user finds it: few files may be open."""
    return ["sh", "-c", f'ulimit -n {FEW_FILES}; exec "$0" "$@"', *map(str, command)]


def descendants(pid):
    try:
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return [pid]
    return [pid, *(each for child in children for each in descendants(int(child)))]


def listening_at(pid):
    """(address, port) of every tcp port that a process and its children listen at."""
    inodes = set()
    for each in descendants(pid):
        with contextlib.suppress(OSError):
            for name in os.listdir(f"/proc/{each}/fd"):
                with contextlib.suppress(OSError):
                    inodes.add(os.readlink(f"/proc/{each}/fd/{name}"))
    places = set()
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
            address, port = fields[1].split(":")
            places.add((".".join(str(byte) for byte in reversed(bytes.fromhex(address))), int(port, 16)))
    return places


def catches(pid, number):
    """Whether a process runs the program, and has a handler for a signal."""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    fields = dict(line.split(":", 1) for line in status.splitlines())
    return fields["Name"].strip() == "tandem" and bool(int(fields["SigCgt"], 16) >> (number - 1) & 1)


class Guide(threading.Thread):
    """Tells crowds of every port that a launch opens, until it is stopped."""

    def __init__(self, processes, crowds):
        super().__init__()
        self.processes, self.crowds = processes, crowds
        self.told, self.stopped = set(), threading.Event()
        self.start()

    def run(self):
        while not self.stopped.is_set():
            for process in self.processes:
                for place in listening_at(process.pid) - self.told:
                    self.told.add(place)
                    for each in self.crowds:
                        each.go_to(*place)
            self.stopped.wait(0.02)

    def stop(self):
        self.stopped.set()
        self.join()


class StrangersTest(RanksTest):
    def setUp(self):
        super().setUp()
        self.num_runs = 0
        self.environment = {"TANDEM_SECRET_FILE": str(self.secret_file()), "TANDEM_CONNECT_TIMEOUT_S": "60",
                            "TMPDIR": str(self.directory)}

    def crowd(self, kind):
        gathered = Crowd(kind, crowd.secret_of(self.secret_file()))
        self.addCleanup(gathered.disperse)
        return gathered

    def command(self, content, run):
        """Rank 0 serves the store; the others come to it once there is a file `run`.go."""
        late = f'test "$RANK" = 0 || until test -e {self.directory / run}.go; do sleep 0.02; done; exec "$0" "$@"'
        return ("sh", "-c", late, tandem_run.program(), "train", self.write_config(content, f"{run}.yaml"), "--run-dir",
                self.directory / run)

    def go(self, run):
        (self.directory / f"{run}.go").touch()

    def launch_one(self, run, port, content, *flags):
        """One launcher whose store is at a known port, under a known name."""
        return [self.start_limited(run, "launch", "--nproc-per-node", 2, "--master-port", port, "--rdzv-id", "none",
                                   *flags, *self.command(content, run))]

    def launch_two(self, run, port, content, *flags):
        """Two launchers that meet at a known port, beside the store's."""
        return [self.start_limited(f"{run}-{node}", "launch", "--nnodes", 2, "--node-rank", node, "--master-addr",
                                   "127.0.0.1", "--master-port", port, "--rdzv-timeout", DEADLINE_S, *flags,
                                   *self.command(content, run))
                for node in (0, 1)]

    def start_limited(self, name, *arguments):
        with open(self.directory / f"{name}.err", "wb") as errors:
            process = subprocess.Popen(limited(tandem_run.program(), *arguments), cwd=self.directory, stderr=errors,
                                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                       env={**os.environ, **self.environment})
        self.addCleanup(process.wait)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        process.errors = self.directory / f"{name}.err"
        return process

    def assert_codes(self, processes, code):
        codes = [process.wait(DEADLINE_S) for process in processes]
        self.assertEqual([code] * len(processes), codes,
                         "\n".join(process.errors.read_text(errors="replace") for process in processes))

    def num_rows(self, run):
        metrics = self.directory / run / "metrics.jsonl"
        return metrics.read_bytes().count(b"\n") if metrics.exists() else 0

    def wait_for_rows(self, run, processes, count):
        self.wait_for(lambda: self.num_rows(run) >= count or any(process.poll() is not None for process in processes),
                      "steps")

    def undisturbed(self, content):
        if not hasattr(self, "whole"):
            self.whole = self.train_on_one_node(content, "undisturbed")
        return self.whole

    def check(self, kinds, launch, moment, content):
        """A run with strangers of these kinds at all its ports, from its start or once it trains, equals one
        without."""
        self.num_runs += 1
        run, port = f"disturbed-{self.num_runs}", free_port()
        crowds = [self.crowd(kind) for kind in kinds]
        if moment == "start":
            for each in crowds:
                each.go_to("127.0.0.1", port)
        processes = launch(run, port, content)
        if moment == "training":
            self.go(run)
            self.wait_for_rows(run, processes, 2)
        guide = Guide(processes, crowds)
        try:
            for each in crowds:
                each.wait_for_some(process_ended=lambda: all(p.poll() is not None for p in processes))
            self.go(run)
            self.assert_codes(processes, tandem_run.DONE)
        finally:
            guide.stop()
        for each in crowds:
            each.disperse()
        self.assert_equal_runs(self.undisturbed(content), self.directory / run)
        return [each.num_visits for each in crowds]


class Disturbed(StrangersTest):
    def test_all_kinds_at_once_from_the_start(self):
        visits = self.check(crowd.KINDS, self.launch_one, "start", training())
        self.assertTrue(all(visits), visits)

    def test_all_kinds_at_once_in_training(self):
        """Which goes on until all have come, and some steps longer."""
        def content(steps):
            return training(steps=steps, schedule="constant")
        launcher, = self.launch_one("disturbed", free_port(), content(1000000))
        self.go("disturbed")
        self.wait_for_rows("disturbed", [launcher], 2)
        crowds = [self.crowd(kind) for kind in crowd.KINDS]
        guide = Guide([launcher], crowds)
        try:
            for each in crowds:
                each.wait_for_some(process_ended=lambda: launcher.poll() is not None)
            self.wait_for_rows("disturbed", [launcher], self.num_rows("disturbed") + 10)
            launcher.send_signal(signal.SIGTERM)
            self.assert_codes([launcher], INTERRUPTED)
        finally:
            guide.stop()
        whole = self.undisturbed(content(self.num_rows("disturbed")))
        self.assert_equal_runs(whole, self.directory / "disturbed")

    def test_all_kinds_at_ranks_that_are_connected_by_tcp(self):
        """Their ports are open for moments; rank_strangers_test.cpp holds them open."""
        self.environment["TANDEM_TRANSPORT"] = "tcp"
        visits = self.check(crowd.KINDS, self.launch_one, "start", training())
        self.assertTrue(all(visits), visits)

    def test_all_kinds_at_the_launchers_too(self):
        visits = self.check(crowd.KINDS, self.launch_two, "start", training())
        self.assertTrue(all(visits), visits)

    def test_a_hundred_runs(self):
        if not _all:
            self.skipTest("takes minutes; --all")
        rng = random.Random(1)
        content = training(LLAMA, mesh("fsdp", data=2), steps=200)
        for number in range(ALL_RUNS):
            kinds = [list(crowd.KINDS)[number % len(crowd.KINDS)], *rng.sample(list(crowd.KINDS), 1)]
            launch = (self.launch_one, self.launch_two)[number // 2 % 2]
            moment = ("start", "training")[number % 2]
            visits = self.check(kinds, launch, moment, content)
            print(f"run {number}: {launch.__name__}, {moment}, {dict(zip(kinds, visits))}", flush=True)
            for leftover in self.directory.glob("disturbed-*"):
                subprocess.run(["rm", "-rf", leftover], check=True)


class One(StrangersTest):
    def test_a_signal_ends_a_rank_that_comes_late_among_strangers(self):
        """The store is crowded, and ranks that are not let in would wait for ten minutes."""
        self.environment["TANDEM_CONNECT_TIMEOUT_S"] = "600"
        port = free_port()
        gathered = self.crowd("silent")
        launcher, = self.launch_one("waiting", port, training(steps=100000))
        gathered.go_to("127.0.0.1", port)
        gathered.wait_for_some(process_ended=lambda: launcher.poll() is not None)
        self.go("waiting")
        self.wait_for(lambda: self.num_ranks_that_catch(launcher.pid, signal.SIGTERM) == 2, "rank 1")
        launcher.send_signal(signal.SIGTERM)
        self.assertIn(launcher.wait(DEADLINE_S), (INTERRUPTED, 128 + signal.SIGTERM),
                      launcher.errors.read_text(errors="replace"))

    def num_ranks_that_catch(self, launcher, number):
        return sum(catches(pid, number) for pid in descendants(launcher)[1:])

    def test_an_imposter_at_a_known_port_gets_no_file_written(self):
        """It was there first, takes the place of rank 0's store, and names a file of the user's as what ranks share."""
        victim = self.directory / "victim"
        victim.touch(0o600)
        content = b"precious" * (1 << 19)
        victim.write_bytes(content)
        imposter = crowd.Imposter(victim)
        self.addCleanup(imposter.disperse)
        launcher, = self.launch_one("taken", imposter.port, training())
        self.assert_codes([launcher], FAILED)
        self.assertRegex(launcher.errors.read_text(), f"port {imposter.port} .*already in use")
        # A rank that looks for rank 0 there, and nobody stops it.
        self.go("taken")
        rank = subprocess.run(list(map(str, self.command(training(), "taken"))), timeout=DEADLINE_S,
                              capture_output=True, text=True, cwd=self.directory,
                              env={**os.environ, "RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                                   "MASTER_PORT": str(imposter.port), "TANDEM_CONNECT_TIMEOUT_S": "10",
                                   "TANDEM_COMM_TIMEOUT_S": "2"})
        self.assertTrue(victim.read_bytes() == content, "the user's file has changed")
        self.assertGreater(imposter.visits(), 0)
        self.assertEqual(FAILED, rank.returncode, rank.stderr)
        self.assertIn("another secret", rank.stderr)

    def test_the_store_listens_at_the_masters_address_alone(self):
        for number, host in enumerate(("localhost", os.uname().nodename)):
            port, run = free_port(), f"named-{number}"
            launcher, = self.launch_one(run, port, training(steps=2000), "--master-addr", host)
            self.go(run)
            self.wait_for_rows(run, [launcher], 1)
            self.assertIsNone(launcher.poll(), launcher.errors.read_text())
            addresses = {address for address, at in listening_at(launcher.pid) if at == port}
            launcher.send_signal(signal.SIGTERM)
            self.assert_codes([launcher], INTERRUPTED)
            self.assertTrue(addresses)
            self.assertNotIn("0.0.0.0", addresses)


def main():
    global _all
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--all", action="store_true")
    known, sys.argv[1:] = parser.parse_known_args()
    _all = known.all
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    ranks.main()


if __name__ == "__main__":
    main()
