"""parallel.elastic: data on several nodes: nodes are killed, cut off from the network, and ranks of them killed; the run
goes on with what is left, and with all again when they come back. Each sample is trained on once and in its place, and
the run equals one that nobody disturbed.

One loss for each way to meet by default; `--losses N` for N at random moments in one run, on one node and on two, with
sums in a fixed order and in the mesh's. It prints the seconds from each loss to the next step.
"""

import argparse
import json
import os
import pathlib
import random
import signal
import statistics
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "dist"))

import kill  # noqa: E402
import ranks  # noqa: E402
import tandem_run  # noqa: E402
from ranks import GPT2, LLAMA, config  # noqa: E402

RANKS_EACH = 2
RETURN_S = 1
LOSS_BOUND = 1e-5
MEMORY = 5  # steps between copies in memory
parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
parser.add_argument("--losses", type=int, default=0)
known, sys.argv[1:] = parser.parse_known_args()


class ElasticRuns(ranks.RanksTest, kill.StoppedRuns):
    def place(self, node, number):
        """As any node's, of which one is enough."""
        flags = [*super().place(node, number)]
        if self.num_nodes > 1:
            flags[flags.index("--nnodes") + 1] = f"1:{self.num_nodes}"
            flags[flags.index("--monitor-interval") + 1] = 0.5
        return flags

    @property
    def num_ranks(self):
        return RANKS_EACH * self.num_nodes if self.num_nodes > 1 else 4

    def content(self, model=GPT2, reproducible="layout", steps=300, checkpoint=None, strategy="fsdp", **train):
        return config(model, checkpoint=checkpoint or {"every": 20, "keep": 2},
                      parallel={"strategy": strategy, "elastic": "data", "reproducible": reproducible, "timeout": 60},
                      train={"steps": steps, "batch": 16, "micro_batch": 2, "warmup": 5, "eval_every": 100, "clip": 0.5,
                             **train})

    def begin(self, content):
        """The run of nobody's disturbance, and one that is under way."""
        self.tandem("launch", "--nproc-per-node", 2, *self.train_command(content, "undisturbed"))
        self.run_directory = self.directory / "run"
        self.agents = self.start_ranks(self.num_ranks, "--max-restarts", 10000, "--return-after", RETURN_S,
                                       *self.train_command(content, "run"))
        self.wait_for_steps(3)
        # The last node may have come too late for the first attempt.
        self.wait_for_ranks(self.num_ranks)

    def events(self, kind):
        path = self.run_directory / "events.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        found = []
        for line in lines:
            try:
                found.append(json.loads(line))
            except ValueError:  # it is being written
                pass
        return [event for event in found if event["type"] == kind]

    def last_step(self):
        rows = (self.run_directory / "metrics.jsonl").read_bytes().splitlines()
        try:
            return int(json.loads(rows[-1])["step"]) if rows else 0
        except ValueError:
            return 0

    def runs_still(self):
        return any(process.poll() is None for process in self.agents.processes.values())

    def wait_for_it(self, condition, what):
        deadline = time.monotonic() + kill.DEADLINE_S
        while not condition():
            told = "\n".join(self.agents.errors(node)[-3000:] for node in range(self.num_nodes))
            self.assertTrue(self.runs_still(), f"all launchers have ended: {what}\n{told}")
            self.assertLess(time.monotonic(), deadline, f"waited in vain for {what}\n{told}")
            time.sleep(0.02)

    def wait_for_steps(self, more):
        metrics = self.run_directory / "metrics.jsonl"
        self.wait_for_it(metrics.exists, "the first step")
        least = self.last_step() + more
        self.wait_for_it(lambda: self.last_step() >= least, f"step {least}")

    def world_size(self):
        """Of the last attempt that has begun to train."""
        starts = self.events("start")
        return starts[-1]["ranks"] if starts else 0

    def wait_for_ranks(self, count):
        self.wait_for_it(lambda: self.world_size() == count, f"{count} ranks")

    def attempts(self):
        """How many have begun, and how many of them with a state."""
        return len(self.events("start")), len(self.events("resume"))

    def wait_for_resume(self, before):
        """Until a step was taken in the attempt after those `before`: what it went on from."""
        def goes_on():
            starts = self.events("start")
            return len(starts) > before[0] and self.last_step() > starts[-1]["step"]
        self.wait_for_it(goes_on, "the run to go on")
        return (self.events("resume")[before[1]:] or [{"step": 0, "message": "nothing was saved"}])[0]

    def alive(self, process):
        return process.poll() is None

    def lose_ranks(self, rng, count):
        pids = [self.agents.pid(rank) for rank in range(self.world_size())]
        for pid in rng.sample(pids, min(count, len(pids) - 1)):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it is being restarted for another reason

    def lose_node(self, node):
        self.agents.processes[node].kill()
        self.agents.processes[node].wait()

    def lose(self, rng, kind):
        """Loses something, and returns what brings it back, and how many ranks are left."""
        if kind == "ranks":
            count = rng.choice((1, 1, 2)) if self.num_ranks > 2 else 1
            self.lose_ranks(rng, count)
            return lambda: None
        # With the store on node 0, that is the one that has to stay.
        node = rng.randrange(1 if self.backend == "static" else 0, self.num_nodes)
        if kind == "node":
            self.lose_node(node)
            return lambda: self.agents.start_again(node)
        self.network.nodes[node].cut()
        return lambda: self.network.nodes[node].join()

    def disturb(self, rng, kind):
        """Seconds from the loss to the next step; the run is whole again afterwards."""
        self.wait_for_steps(rng.randint(2, 20))
        attempts, step = self.attempts(), self.last_step()
        began = time.monotonic()
        bring_back = self.lose(rng, kind)
        event = self.wait_for_resume(attempts)
        seconds = time.monotonic() - began
        bring_back()
        self.wait_for_ranks(self.num_ranks)
        return seconds, step - event["step"], event

    def finish(self):
        """Both runs, once this one is over."""
        results = self.agents.results()
        told = "\n".join(map(str, results))
        self.assertEqual([tandem_run.DONE] * self.num_nodes, [result.code for result in results], told)
        self.assertEqual([], [*(self.run_directory / "checkpoints").glob(".tmp*")])
        return self.directory / "undisturbed", self.run_directory


class TwoNodes(ElasticRuns):
    num_nodes = 2

    def check(self, kind, **options):
        self.begin(self.content(**options))
        self.disturb(random.Random(1), kind)
        self.assert_equal_runs(*self.finish())

    def test_a_node_is_killed_and_comes_back(self):
        self.check("node", steps=1200)

    def test_a_node_is_cut_off_and_comes_back_by_itself(self):
        self.check("cut", steps=1200)

    def test_with_a_store_on_one_of_them(self):
        self.backend = "static"
        self.check("node", steps=1200)

    def test_a_rank_is_killed_where_nodes_meet_in_a_directory(self):
        self.backend = "file"
        self.check("ranks", steps=1200, strategy="ddp")


@unittest.skipUnless(known.losses, "with --losses")
class ManyLosses(ElasticRuns):
    kinds = ("ranks",)

    def losses(self, seed, model, reproducible, checkpoint):
        rng = random.Random(seed)
        steps = 250 * (known.losses + 1)
        self.begin(self.content(model, reproducible, steps, checkpoint, lr=3e-5, eval_every=1000))
        seconds = {kind: [] for kind in self.kinds}
        repeated = []
        for number in range(known.losses):
            kind = rng.choice(self.kinds)
            took, again, event = self.disturb(rng, kind)
            seconds[kind].append(took)
            repeated.append(again)
            print(f"{number + 1}: {kind}: {took:.2f} s to the next step, {again} steps again, {event.get('message', '')}",
                  flush=True)
        for kind, each in seconds.items():
            if each:
                print(f"{self.num_nodes} nodes, {reproducible}, {kind}: {len(each)} losses, next step after median "
                      f"{statistics.median(each):.2f} s, worst {max(each):.2f} s", flush=True)
        print(f"most steps again: {max(repeated)}", flush=True)
        return self.finish()

    def test_the_same_bits(self):
        self.assert_equal_runs(*self.losses(1, GPT2, "layout", {"every": 100, "keep": 2, "memory": MEMORY}))

    def test_the_same_samples_within_rounding(self):
        whole, run = self.losses(2, LLAMA, "mesh", {"every": 100, "keep": 2, "memory": MEMORY})
        worst = self.assert_close_runs(whole, run, LOSS_BOUND, without=("grad_norm",))
        print(f"losses differ by at most {worst:.1e}", flush=True)
        self.assertEqual(tandem_run.read_samples(whole), tandem_run.read_samples(run))


class ManyLossesOnOneNode(ManyLosses):
    num_nodes = 1


class ManyLossesOnTwoNodes(ManyLosses):
    num_nodes = 2
    kinds = ("ranks", "node", "cut")


del ManyLosses


if __name__ == "__main__":
    ranks.main()
