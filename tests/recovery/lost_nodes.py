"""Nodes that are cut off from the network at random moments: the ranks on both sides say whom they miss, the nodes
start again together when the network is back, and the finished run equals one that nobody disturbed."""

import pathlib
import random
import re
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "dist"))

import kill  # noqa: E402
import network  # noqa: E402
import tandem_run  # noqa: E402
from ranks import GPT2, LLAMA, config, mesh, num_processes  # noqa: E402

STEPS = 60
TIMEOUT_S = 3  # of the ranks, for each other
LONG_S = 12  # a launcher gives up when it has not reached the store for ten seconds
ENDED = re.compile(r"^--- rank \d+ ended with .*\n", re.M)


class LostNodes(network.NodesTest, kill.StoppedRuns):
    """Seven faults."""

    steps = STEPS

    def undisturbed(self, content):
        return self.train_on_one_node({**content, "parallel": {**content["parallel"], "timeout": kill.DEADLINE_S}},
                                      "undisturbed")

    def content(self, model, parallel, **sections):
        train = {"steps": STEPS, "batch": 24, "micro_batch": 1}
        return config(model, parallel={**parallel, "timeout": TIMEOUT_S}, train=train, checkpoint={"every": 1},
                      **sections)

    def ranks_on(self, node, num_ranks):
        share = num_ranks // self.num_nodes
        return range(node * share, (node + 1) * share)

    def wait_for_steps(self, agents, run, rng):
        """For some more than there are."""
        metrics = run / "metrics.jsonl"
        self.wait_for(lambda: kill.num_lines(metrics) > 0, "the first step")
        rows = kill.num_lines(metrics) + rng.randint(1, 6)
        self.wait_for(lambda: kill.num_lines(metrics) >= rows, "steps")
        time.sleep(rng.uniform(0, 0.05))

    def cut(self, agents, run, num_ranks, rng, for_s):
        """Cuts a node off until all ranks have missed each other, and for `for_s` at least."""
        self.wait_for_steps(agents, run, rng)
        self.assertLess(kill.num_lines(run / "metrics.jsonl"), STEPS - 5, "the run was too fast to be disturbed")
        number, inside = rng.randrange(self.num_nodes), rng.random() < 0.5
        node, attempts = self.network.nodes[number], [len(ENDED.findall(agents.log(rank))) for rank in range(num_ranks)]
        began = time.monotonic()
        node.cut(inside)
        try:
            self.wait_for(lambda: all(len(ENDED.findall(agents.log(rank))) > attempts[rank]
                                      for rank in range(num_ranks)), "the ranks to miss each other")
            time.sleep(max(0, began + for_s - time.monotonic()))
        finally:
            node.join(inside)
        there = set(self.ranks_on(number, num_ranks))
        with self.subTest(node=number, inside=inside):
            for rank in range(num_ranks):
                missed = set(range(num_ranks)) - there if rank in there else there
                self.assert_blames(agents.log(rank), attempts[rank], missed)

    def assert_blames(self, log, attempt, missed):
        """In that attempt the rank ended with an error that names some of those that it missed."""
        said = ENDED.split(log)[attempt]
        errors = [line for line in said.splitlines() if line.startswith("tandem: error: ")]
        self.assertTrue(errors, said)
        named = set(map(int, re.findall(r"\brank (\d+) \(node-\d+, pid \d+\)", errors[-1])))
        self.assertTrue(named and named <= missed, f"{errors[-1]}: missed {missed}")

    def go_on(self, agents):
        """Waits until the ranks train again. A launcher that was cut off for too long is started again, as Slurm or a
        person would do it."""
        def trains():
            for node, process in agents.processes.items():
                if process.poll() == tandem_run.FAILED:
                    self.assertRegex(agents.errors(node), "the store is lost|cannot be reached")
                    agents.start_again(node)
            return "parameters" in ENDED.split(agents.log(0))[-1]
        self.wait_for(trains, "all nodes to go on")

    def check(self, content, seed, *cuts):
        """`cuts` are their shortest times."""
        rng = random.Random(seed)
        num_ranks, run = num_processes(content), self.directory / "disturbed"
        path = self.write_config(content, "disturbed.yaml")
        agents = self.start_nodes(num_ranks, "--max-restarts", 100, "train", path, "--run-dir", run,
                                  env={"TANDEM_CONNECT_TIMEOUT_S": str(TIMEOUT_S)})
        for for_s in cuts:
            self.cut(agents, run, num_ranks, rng, for_s)
            self.go_on(agents)
        told = [agents.errors(node)[-1000:] for node in range(self.num_nodes)]
        self.assertEqual([tandem_run.DONE] * self.num_nodes, agents.wait(), told)
        self.assert_went_on_as_if_never_stopped(content, run)


class ThreeNodes(LostNodes):
    num_nodes = 3

    def test_fsdp_with_etcd(self):
        self.check(self.content(GPT2, mesh("fsdp", data=3)), 1, 0, 0, LONG_S)


class TwoNodes(LostNodes):
    def test_a_pipeline_with_a_store_on_one_of_them(self):
        self.backend = "static"
        self.check(self.content(LLAMA, mesh("zero1", data=2, pipeline=2), precision="bf16"), 2, 0, 0)

    def test_a_tensor_axis_with_a_store_that_is_never_cut_off(self):
        self.backend = "file"
        self.check(self.content(LLAMA, mesh("ddp", data=2, tensor=2)), 3, 0, 2 * TIMEOUT_S)


if __name__ == "__main__":
    tandem_run.main()
