"""Nodes that are cut off from the network at random moments: the ranks on both sides say whom they miss, the nodes
start again together when the network is back, and the finished run equals one that nobody disturbed."""

import pathlib
import random
import re
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "dist"))

import kill  # noqa: E402
import ranks  # noqa: E402
import tandem_run  # noqa: E402
from ranks import GPT2, LLAMA, config, mesh, num_processes  # noqa: E402

STEPS = 36
TIMEOUT_S = 3  # of the ranks, for each other
SHORT_S, LONG_S = 0, 12  # a launcher gives up when it has not reached the store for ten seconds
MAX_RUNS = 20

ENDED = re.compile(r"^--- rank \d+ ended with (.*)\n", re.M)


class LostNodes(ranks.RanksTest, kill.StoppedRuns):
    """Seven cuts."""

    steps = STEPS

    def undisturbed(self, content):
        # Nobody is lost there: patience is free.
        patient = {**content, "parallel": {**content["parallel"], "timeout": kill.DEADLINE_S}}
        return self.train_on_one_node(patient, "undisturbed")

    def content(self, model, parallel, **sections):
        train = {"steps": STEPS, "batch": 2 * parallel["data"], "micro_batch": 1}
        return config(model, parallel={**parallel, "timeout": TIMEOUT_S}, train=train, checkpoint={"every": 1},
                      **sections)

    def begin(self, content, number):
        name = f"disturbed-{number}"
        path = self.write_config(content, f"{name}.yaml")
        agents = self.start_ranks(num_processes(content), "--max-restarts", 100, "train", path, "--run-dir",
                                  self.directory / name, env={"TANDEM_CONNECT_TIMEOUT_S": str(TIMEOUT_S)})
        return agents, self.directory / name

    def wait_for_steps(self, agents, run, more):
        """For some more than there are; tells whether the launch runs still."""
        metrics = run / "metrics.jsonl"
        for least in (1, more):
            rows = kill.num_lines(metrics) + least
            self.wait_for(lambda: kill.num_lines(metrics) >= rows or agents.poll() is not None, "steps")
        return agents.poll() is None

    def cut(self, agents, run, num_ranks, rng, for_s):
        """Cuts a node off until all ranks have missed each other, and for `for_s` at least. Tells whether that met
        the run before its end."""
        if not self.wait_for_steps(agents, run, rng.randint(0, 4)):
            return False
        time.sleep(rng.uniform(0, 0.05))
        number, inside = rng.randrange(self.num_nodes), rng.random() < 0.5
        ends = [len(ENDED.findall(agents.log(rank))) for rank in range(num_ranks)]
        began = time.monotonic()
        self.network.nodes[number].cut(inside)
        try:
            self.wait_for(lambda: all(len(ENDED.findall(agents.log(rank))) > ends[rank] for rank in range(num_ranks)),
                          "the ranks to miss each other")
            time.sleep(max(0, began + for_s - time.monotonic()))
        finally:
            self.network.nodes[number].join(inside)
        share = num_ranks // self.num_nodes
        there = set(range(number * share, (number + 1) * share))
        elsewhere = set(range(num_ranks)) - there
        with self.subTest(node=number, inside=inside):
            return any([self.blames(agents.log(rank), ends[rank], elsewhere if rank in there else there)
                        for rank in range(num_ranks)])

    def blames(self, log, attempt, missed):
        """In that attempt the rank ended with an error that names only ranks that it missed, or was done before."""
        said, how = ENDED.split(log)[2 * attempt:2 * attempt + 2]
        if how == "exit code 0":
            return False
        errors = [line for line in said.splitlines() if line.startswith("tandem: error: ")]
        self.assertTrue(errors, said)
        named = set(map(int, re.findall(r"\brank (\d+) \(node-\d+, pid \d+\)", errors[-1])))
        self.assertTrue(named and named <= missed, f"{errors[-1]}: missed {missed}")
        return True

    def go_on(self, agents):
        """Waits until the ranks train again, or are done. A launcher that was cut off for too long is started again, as
        Slurm or a person would do it."""
        def goes_on():
            for node, process in agents.processes.items():
                if process.poll() == tandem_run.FAILED:
                    self.assertRegex(agents.errors(node), "the store is lost|cannot be reached|is down")
                    agents.start_again(node)
            return "parameters" in ENDED.split(agents.log(0))[-1] or agents.poll() is not None
        self.wait_for(goes_on, "all nodes to go on")

    def check(self, content, seed, *cuts):
        """`cuts` are their shortest times."""
        rng = random.Random(seed)
        agents, run = self.begin(content, 0)
        runs = 1
        for for_s in cuts:
            while not self.cut(agents, run, num_processes(content), rng, for_s):
                # It got to its end: the remaining cuts need a new run.
                self.assert_ended_well(content, agents, run)
                self.assertLess(runs, MAX_RUNS, "no cut met a run in time")
                agents, run = self.begin(content, runs)
                runs += 1
            self.go_on(agents)
        self.assert_ended_well(content, agents, run)

    def assert_ended_well(self, content, agents, run):
        codes = agents.wait()
        told = "\n".join(agents.errors(node)[-1000:] for node in range(self.num_nodes))
        self.assertEqual([tandem_run.DONE] * self.num_nodes, codes, told)
        self.assert_went_on_as_if_never_stopped(content, run)


class ThreeNodes(LostNodes):
    num_nodes = 3

    def test_fsdp_with_etcd(self):
        self.check(self.content(GPT2, mesh("fsdp", data=3)), 1, SHORT_S, SHORT_S, LONG_S)


class TwoNodes(LostNodes):
    num_nodes = 2

    def test_a_pipeline_with_a_store_on_one_of_them(self):
        self.backend = "static"
        self.check(self.content(LLAMA, mesh("zero1", data=2, pipeline=2), precision="bf16"), 2, SHORT_S, SHORT_S)

    def test_a_tensor_axis_with_a_store_that_is_never_cut_off(self):
        # The launchers see each other in the file system and start their ranks again before the network is back.
        self.backend = "file"
        self.check(self.content(LLAMA, mesh("ddp", data=2, tensor=2)), 3, SHORT_S, 2 * TIMEOUT_S)


if __name__ == "__main__":
    ranks.main()
