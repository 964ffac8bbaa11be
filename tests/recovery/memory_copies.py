"""checkpoint.memory: ranks and nodes are lost, and the run goes on from copies in memory, some steps back at most, or
from its last checkpoint where a part is nowhere any more; either way it equals one that nobody disturbed."""

import os
import pathlib
import random
import re
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "dist"))

import elastic_nodes  # noqa: E402
import ranks  # noqa: E402
import tandem_run  # noqa: E402
from ranks import GPT2, LLAMA, RESNET, config  # noqa: E402

EVERY = 5
SAVED = 10_000  # never, but for the last step


def kept_bytes(pid):
    """Of the files that a launcher keeps, two a rank."""
    folder = pathlib.Path(f"/proc/{pid}/fd")
    files = sorted(int(fd.name) for fd in folder.iterdir() if "memfd:tandem-kept" in os.readlink(fd))
    return [os.stat(folder / str(fd)).st_size for fd in files]


class Copies(elastic_nodes.ElasticRuns):
    def copies(self, **options):
        return self.content(checkpoint={"every": SAVED, "memory": EVERY}, **options)

    def assert_from_memory(self, again, event):
        self.assertIn("in memory", event["message"])
        self.assertLessEqual(again, EVERY)


class OneNode(Copies):
    num_nodes = 1

    def test_a_rank_is_killed(self):
        self.begin(self.copies(steps=900))
        self.wait_for_steps(2 * EVERY)
        _, again, event = self.disturb(random.Random(3), "ranks")
        self.assert_from_memory(again, event)
        self.assert_equal_runs(*self.finish())

    def test_without_elastic_ranks_in_bf16(self):
        for model, strategy in ((LLAMA, "zero1"), (RESNET, "ddp")):
            with self.subTest(strategy=strategy):
                content = config(model, precision="bf16", checkpoint={"every": SAVED, "memory": 3},
                                 parallel={"strategy": strategy, "data": 2},
                                 train={"steps": 120, "batch": 4, "micro_batch": 1, "eval_every": 50})
                self.tandem("launch", "--nproc-per-node", 2, *self.train_command(content, f"whole-{strategy}"))
                self.run_directory = self.directory / f"run-{strategy}"
                self.agents = self.start_ranks(2, "--max-restarts", 3, *self.train_command(content, f"run-{strategy}"))
                self.wait_for_steps(10)
                os.kill(self.agents.pid(1), signal.SIGKILL)
                event = self.wait_for_resume((1, 0))
                self.assertIn("in memory", event["message"])
                self.assertEqual([tandem_run.DONE], [result.code for result in self.agents.results()])
                self.assert_equal_runs(self.directory / f"whole-{strategy}", self.run_directory)

    def test_the_plan_has_every_byte(self):
        """Of a node of one rank, as the plan takes them."""
        content = config(LLAMA, precision="bf16", checkpoint={"every": SAVED, "memory": 2},
                         train={"steps": 20000, "batch": 2, "micro_batch": 1})
        host = []
        for memory in (2, 0):
            table = self.tandem("plan", self.write_config(content), "--set", f"checkpoint.memory={memory}").out
            host.append(int(re.search(r"^ +host +(\d+)", table, re.M)[1]))
        self.run_directory = self.directory / "run"
        self.agents = self.start_ranks(1, *self.train_command(content, "run"))
        self.wait_for_steps(6)
        self.assertEqual(host[0] - host[1], sum(kept_bytes(self.agents.processes[0].pid)))
        self.agents.processes[0].send_signal(signal.SIGTERM)
        self.assertEqual([tandem_run.INTERRUPTED], self.agents.wait())

    def test_without_a_launcher_it_is_refused(self):
        content = config(GPT2, checkpoint={"memory": 2}, train={"steps": 2})
        self.refuse(tandem_run.BAD_USAGE, ["checkpoint.memory", "tandem launch"], "train", self.write_config(content))


class TwoNodes(Copies):
    num_nodes = 2

    def test_a_node_is_killed(self):
        self.begin(self.copies(steps=900))
        self.wait_for_steps(2 * EVERY)
        _, again, event = self.disturb(random.Random(4), "node")
        self.assert_from_memory(again, event)
        self.assert_equal_runs(*self.finish())


class ThreeNodes(Copies):
    num_nodes = 3

    def test_one_is_killed_then_two_at_once(self):
        """Parts that only one other node has go where they are needed; those of two neighbours are gone with them."""
        self.begin(self.content(checkpoint={"every": 40, "memory": EVERY}, steps=1500))
        self.wait_for_steps(2 * EVERY)
        attempts, step = self.attempts(), self.last_step()
        self.lose_node(2)
        event = self.wait_for_resume(attempts)
        self.assertLessEqual(step - event["step"], EVERY)
        self.agents.start_again(2)
        self.wait_for_ranks(self.num_ranks)
        self.wait_for_it(lambda: any(self.run_directory.glob("checkpoints/step-*")), "a checkpoint")
        self.wait_for_steps(2 * EVERY)
        attempts = self.attempts()
        for node in (0, 1):
            self.lose_node(node)
        event = self.wait_for_resume(attempts)
        self.assertNotIn("in memory", event["message"])
        for node in (0, 1):
            self.agents.start_again(node)
        self.wait_for_ranks(self.num_ranks)
        self.assert_equal_runs(*self.finish())


if __name__ == "__main__":
    ranks.main()
