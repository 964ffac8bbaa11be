#!/usr/bin/env python3
"""Trouble between a run and its store: cut connections, 500s, slow-downs, late answers, keys that run out, and the run's own death, each
at a request drawn by lot. Nothing is lost, no bit is wrong, nothing is left that gc does not name.

The short form is CI's; --faults N is the long one, with 1 and 4 ranks in turn.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile

import s3_proxy
import store_run
import tandem_run
from store_run import StoreTest
from tandem_run import DONE, FAILED

num_faults = 2
KINDS = (*(kind for kind in s3_proxy.TROUBLES if kind != "expired"), "expire", "kill_before", "kill_after")


class Faults(StoreTest):
    def content_of(self, ranks, store=True):
        parallel = {"parallel": {"strategy": "fsdp", "data": ranks}} if ranks > 1 else {}
        return self.content(store=store, train={"steps": 6, "batch": 8, "micro_batch": 1}, **parallel)

    def run_under(self, proxy, ranks, run, strike):
        """Trains once. `strike` is called with each request and the process; returns the exit code and what it said."""
        with tempfile.TemporaryFile() as said:
            process = subprocess.Popen([tandem_run.program(), *map(str, self.command(self.content_of(ranks), run, ranks=ranks))],
                                       env={**os.environ, **self.environment()}, cwd=self.directory, stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, stderr=said, start_new_session=True)
            proxy.trouble = lambda request: strike(request, process)
            try:
                process.wait(tandem_run.DEADLINE_S)
            finally:
                proxy.trouble = lambda request: None
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                process.wait()
            said.seek(0)
            return process.returncode, said.read().decode()

    def fault(self, proxy, ranks, dice, number):
        self.store = f"s3://bucket/{self.id()}-{number}"
        run = self.directory / f"run{number}"
        kind, burst = dice.choice(KINDS), dice.choice((1, 1, 3))
        at = proxy.num_requests + dice.randrange(1, self.num_calls[ranks] + 1)

        def strike(request, process):
            if not at <= request.number < at + burst:
                return None
            if kind == "expire":
                proxy.generation += 1
                return None
            if not kind.startswith("kill"):
                return kind
            if kind == "kill_after":
                proxy.forward(request)
            os.killpg(process.pid, signal.SIGKILL)
            return "cut_before"

        code, said = self.run_under(proxy, ranks, run.name, strike)
        what = f"fault {number}: {kind} x{burst} at request {at}, {ranks} ranks: {said}"
        self.assertIn(code, (DONE, -signal.SIGKILL) if kind.startswith("kill") else (DONE,), what)
        if code != DONE and dice.random() < 0.5:
            shutil.rmtree(run, ignore_errors=True)  # with its machine
        code, said = self.run_under(proxy, ranks, run.name, lambda *_: None)
        self.assertEqual(DONE, code, f"{what}, and then {said}")
        try:
            self.assert_same(self.store, self.directory / f"whole{ranks}" / "checkpoints" / "latest")
            self.run_tandem("inspect", self.store, "--verify")
            self.assert_all_is_named()
            self.assert_no_secret(run)
        except AssertionError as error:
            raise AssertionError(what) from error
        shutil.rmtree(run)
        return kind

    def test_at_any_request_nothing_is_lost(self):
        dice = random.Random(num_faults)
        self.num_calls = {}
        seen = {}
        with s3_proxy.Proxy(store_run.server) as proxy:
            self.variables = proxy.lend_keys()
            for number in range(num_faults):
                ranks = 4 if number % 2 == 1 else 1
                if ranks not in self.num_calls:
                    self.run_tandem(*self.command(self.content_of(ranks, store=False), f"whole{ranks}", ranks=ranks))
                    before, self.store = proxy.num_requests, f"s3://bucket/{self.id()}-calm{ranks}"
                    self.assertEqual(DONE, self.run_under(proxy, ranks, f"calm{ranks}", lambda *_: None)[0])
                    self.num_calls[ranks] = proxy.num_requests - before
                kind = self.fault(proxy, ranks, dice, number)
                seen[kind] = seen.get(kind, 0) + 1
                if num_faults > 10:
                    print(f"{number + 1} of {num_faults}: {seen}", flush=True)

    def test_a_store_that_is_gone_stops_no_training_and_is_told_at_the_end(self):
        if num_faults < 10:
            self.skipTest("takes half a minute of pauses; part of the long form")
        with s3_proxy.Proxy(store_run.server) as proxy:
            self.variables = proxy.variables
            gone = lambda request, _: "error_500" if request.method == "PUT" and ".ckpt" in request.path else None
            code, said = self.run_under(proxy, 1, "run", gone)
            self.assertEqual(FAILED, code, said)
            self.assertIn("step-00000006 is not there", said)
            self.assertIn("tandem copy", said)
            run = self.directory / "run"
            self.assertEqual(6, int(tandem_run.read_metrics(run)[-1]["step"]))
            code, said = self.run_under(proxy, 1, "run", lambda *_: None)  # brings it there
            self.assertEqual(DONE, code, said)
            self.assert_same(self.store, run / "checkpoints" / "latest")
            self.assert_all_is_named()


def main():
    global num_faults
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--faults", type=int, default=num_faults)
    arguments, rest = parser.parse_known_args()
    num_faults = arguments.faults
    sys.argv[1:] = rest
    store_run.main()


if __name__ == "__main__":
    main()
