"""What only two nodes have: bits that can differ from those of one, several stores to meet at, checkpoints that change
the place, launchers that lose each other. What they have in common with one node, the other suites test on both."""

import os
import signal

import ranks
import tandem_run
from ranks import GPT2, LLAMA, RESNET, RanksTest, config, mesh
from tandem_run import FAILED, INTERRUPTED

STEPS, SAVED = 8, 4


def training(model, parallel, precision="fp32", memory=None, **train):
    return config(model, precision=precision, parallel=parallel, memory=memory or {}, checkpoint={"every": SAVED},
                  train={"steps": STEPS, "batch": 8, "micro_batch": 1, "clip": 0.5, "eval_every": 4, **train})


class TwoNodes(RanksTest):
    num_nodes = 2


class SameBits(TwoNodes):
    """As one node. The curves of dist.same_curve_on_two_nodes are held against those of one node where one rank adds in
    the same order; here are the others."""

    num_checks = 0

    def check(self, content):
        self.num_checks += 1
        one = self.train_on_one_node(content, f"one-node-{self.num_checks}")
        self.assert_equal_runs(one, self.train(content, f"two-nodes-{self.num_checks}"))

    def test_a_tensor_axis_from_node_to_node(self):
        self.check(training(LLAMA, mesh(tensor=2), "bf16"))

    def test_statistics_of_the_whole_batch(self):
        self.check(training(RESNET, mesh("ddp", data=2)))

    def test_whichever_store_the_nodes_met_at(self):
        for self.backend in ("static", "file"):
            self.check(training(LLAMA, mesh("fsdp", data=2)))


class OneLaunch(TwoNodes):
    """What happens to one node happens to the launch."""

    def slow_training(self, **sections):
        """Steps long enough for something to happen between two of them."""
        content = training(GPT2, mesh("zero1", data=4), steps=24, batch=32)
        return {**content, "checkpoint": {"every": 1}, **sections}

    def start_training(self, content, run, *flags):
        path = self.write_config(content, f"{run}.yaml")
        return self.start_ranks(ranks.num_processes(content), *flags, "train", path, "--run-dir", self.directory / run)

    def wait_for_rows(self, run, count):
        metrics = self.directory / run / "metrics.jsonl"
        self.wait_for(lambda: metrics.exists() and metrics.read_bytes().count(b"\n") >= count, "steps")

    def test_a_checkpoint_goes_on_where_it_was_not_made(self):
        content, shorter = (training(LLAMA, mesh("fsdp", data=2), steps=steps, warmup=0, schedule="constant")
                            for steps in (STEPS, SAVED))
        whole = self.train(content, "whole")
        self.train(shorter, "begun-on-two")
        self.assert_equal_runs(whole, self.train_on_one_node(content, "begun-on-two"))
        self.train_on_one_node(shorter, "begun-on-one")
        self.assert_equal_runs(whole, self.train(content, "begun-on-one"))

    def test_sigterm_to_one_launcher_saves_and_stops_all(self):
        content = self.slow_training()
        whole = self.train_on_one_node(content, "whole")
        agents = self.start_training(content, "stopped")
        self.wait_for_rows("stopped", 3)
        agents.processes[1].send_signal(signal.SIGTERM)
        self.assertEqual([INTERRUPTED] * 2, agents.wait(), agents.errors(0))
        run = self.directory / "stopped"
        step = int(tandem_run.read_metrics(run)[-1]["step"])
        self.assertLess(step, 24)
        self.assertEqual(step, tandem_run.read_manifest(run, step)["step"])
        self.assert_equal_runs(whole, self.train(content, "stopped"))

    def test_a_rank_that_is_killed_for_good_ends_both(self):
        agents = self.start_training(self.slow_training(), "killed")
        self.wait_for_rows("killed", 1)
        os.kill(agents.pid(0), signal.SIGKILL)
        self.assertEqual([FAILED] * 2, agents.wait())
        for node in (0, 1):
            self.assertRegex(agents.errors(node),
                             r"tandem: error: .*rank 0 (failed with signal 9|\(node-0, pid \d+\) is gone)")
        for rank in (1, 2, 3):
            self.assertRegex(agents.log(rank), r"tandem: error: .*rank 0 \(node-0, pid \d+\)")


class Errors(TwoNodes):
    def assert_told(self, agents, code, *parts):
        """Every launcher ends with the code and one line for the user, with all of `parts`."""
        self.assertEqual([code] * len(agents.processes), agents.wait())
        for node in agents.processes:
            told = [line for line in agents.errors(node).splitlines() if line.startswith("tandem: error: ")]
            self.assertTrue(told and all(part in told[-1] for part in parts), agents.errors(node))

    def train_command(self, **parallel):
        path = self.write_config(training(GPT2, mesh("ddp", **parallel)))
        return "train", path, "--run-dir", self.directory / "run"

    def test_a_port_that_is_in_use(self):
        with self.listener(0) as port:
            agents = self.start_ranks(2, "--master-port", port, *self.train_command(data=2))
            self.assert_told(agents, FAILED, f"port {port}", "in use")
        for node in (0, 1):
            self.assertIn("rank 0 failed with exit code 1", agents.errors(node))

    def test_a_missing_node(self):
        for self.backend in ("etcd", "static", "file"):
            with self.subTest(backend=self.backend):
                agents = self.start_ranks(2, "--rdzv-timeout", 1, *self.train_command(data=2), nodes=(0,))
                self.assert_told(agents, FAILED, "only 1 of 2 nodes joined within 1 s")

    def test_a_store_that_is_down(self):
        agents = self.start_ranks(2, "--rdzv-timeout", 1, "--rdzv-endpoint", "node-1:2379",
                                  *self.train_command(data=2))
        self.assert_told(agents, FAILED, "etcd://node-1:2379", "no store within 1 s")

    def test_a_rank_that_does_not_come(self):
        late = 'test "$RANK" = 1 && exec sleep 100; exec "$0" "$@"'
        agents = self.start_ranks(2, "sh", "-c", late, tandem_run.program(), *self.train_command(data=2),
                                  env={"TANDEM_CONNECT_TIMEOUT_S": "2"})
        self.assert_told(agents, FAILED, "rank 1 of 2 did not appear within 2 s")


if __name__ == "__main__":
    ranks.main()
