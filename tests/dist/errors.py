"""What can go wrong between ranks ends with one clear line on each of them, soon, and with nothing half done."""

import os
import subprocess
import time

import ranks
import tandem_run
from ranks import GPT2, LLAMA, RanksTest, config, mesh
from tandem_run import BAD_USAGE, DONE, FAILED, free_port

IMPATIENT = {"TANDEM_CONNECT_TIMEOUT_S": "2", "TANDEM_COMM_TIMEOUT_S": "4"}
DEADLINE_S = 40  # for ranks that give up after seconds, on a busy machine


def training(parallel, model=GPT2, **sections):
    return config(model, parallel=parallel, train={"batch": 12, "micro_batch": 2, "steps": 4}, **sections)


class MeshAndRanks(RanksTest):
    def check(self, parallel, processes, *parts):
        """So many processes, each with the same config: refused in one line, before anything is written."""
        path = self.write_config(training(parallel))
        command = ("train", path, "--run-dir", self.directory / "run")
        results = (self.start_ranks(processes, *command).results() if processes > 1
                   else [self.tandem(*command, expect=None)])
        for result in results:
            self.assert_one_line_error(result, BAD_USAGE, *parts)
        self.assertFalse((self.directory / "run").exists())

    def test_a_mesh_for_more_ranks_than_there_are(self):
        self.check(mesh("ddp", data=2), 1, "data 2 x tensor 1 x pipeline 1 needs 2 ranks, found one process",
                   "tandem launch --nproc-per-node 2")
        self.check(mesh("fsdp", data=2, tensor=2), 2, "needs 4 ranks, found 2 processes")

    def test_a_mesh_for_fewer_ranks_than_there_are(self):
        self.check(mesh(), 2, "needs 1 ranks, found 2 processes", "parallel.data=2")
        self.check(mesh("ddp", data=2), 3, "needs 2 ranks, found 3 processes", "parallel.data=3")

    def test_dp_is_one_process(self):
        self.check(mesh("dp", data=2), 2, "dp")


class LoneRanks(RanksTest):
    """Ranks started one by one, each with what it was told."""

    def start(self, told, environment=None, port=None, own=None):
        """`told` has (rank, world size, config) for each rank; `own` has variables by rank. Returns their results, once
        all have ended; a rank that hangs is killed."""
        port = port or free_port()
        self.num_launches += 1
        run = self.directory / f"run-{self.num_launches}"
        processes = []
        for number, (rank, world_size, content) in enumerate(told):
            path = self.write_config(content, f"{number}.yaml")
            node, local_rank, local_size = self.place_of(rank, world_size)
            variables = {"RANK": rank, "WORLD_SIZE": world_size, "LOCAL_RANK": local_rank,
                         "LOCAL_WORLD_SIZE": local_size, "MASTER_ADDR": self.address(0), "MASTER_PORT": port,
                         "TANDEM_SECRET_FILE": self.secret_file(), **IMPATIENT, **(environment or {}),
                         **(own or {}).get(rank, {})}
            process = subprocess.Popen(
                self.at(node, tandem_run.program(), "train", path, "--run-dir", run), text=True, cwd=self.directory,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                env={**os.environ, **{name: str(value) for name, value in variables.items()}})
            processes.append(process)
        deadline = time.monotonic() + DEADLINE_S
        results = []
        for process in processes:
            try:
                out, err = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
            results.append(tandem_run.Result(process.returncode, out, err))
        return results

    def place_of(self, rank, world_size):
        """Its node, its number there, and how many are there."""
        local_rank = rank
        for node, share in enumerate(self.shares(world_size)):
            if local_rank < share:
                return node, local_rank, share
            local_rank -= share
        raise ValueError(f"rank {rank} of {world_size}")

    def assert_last_line(self, result, code, *parts):
        """One line of error, after what a rank 0 that had begun may have reported."""
        self.assertEqual(code, result.code, result)
        errors = [line for line in result.err.splitlines() if line.startswith("tandem: error: ")]
        self.assertEqual(result.err.splitlines()[-1:], errors, result)
        for part in parts:
            self.assertIn(part, errors[0])


class Meeting(LoneRanks):
    def test_a_peer_that_never_comes(self):
        pair = training(mesh("ddp", data=2))
        alone, = self.start([(0, 2, pair)])
        self.assert_one_line_error(alone, FAILED, "rank 1 of 2 did not appear within", "MASTER_ADDR")
        three = training(mesh("ddp", data=3))
        for result in self.start([(0, 3, three), (2, 3, three)]):
            self.assert_one_line_error(result, FAILED, "rank 1 of 3 did not appear within")

    def test_a_master_that_never_comes(self):
        alone, = self.start([(1, 2, training(mesh("ddp", data=2)))])
        self.assert_one_line_error(alone, FAILED, f"store tcp {self.address(0)}", "not reached within",
                                   "is rank 0 running")

    def test_another_world_size_on_one_rank(self):
        pair, three = training(mesh("ddp", data=2)), training(mesh("ddp", data=3))
        for result in self.start([(0, 2, pair), (1, 3, three)]):
            self.assert_one_line_error(result, FAILED, "rank 1", "world size 3", "rank 0", "world size 2")
        waiting, wrong = self.start([(0, 2, pair), (1, 3, pair)])
        self.assert_one_line_error(wrong, BAD_USAGE, "needs 2 ranks, found 3 processes")
        self.assert_one_line_error(waiting, FAILED, "rank 1 of 2 did not appear")

    def test_another_mesh_on_one_rank(self):
        for result in self.start([(0, 2, training(mesh("ddp", data=2))), (1, 2, training(mesh(tensor=2)))]):
            self.assert_one_line_error(result, FAILED, "data 2 x tensor 1", "data 1 x tensor 2", "same config")

    def test_a_rank_that_is_there_twice(self):
        three = training(mesh("ddp", data=3))
        for result in self.start([(0, 3, three), (1, 3, three), (1, 3, three)]):
            self.assert_one_line_error(result, FAILED, "rank 1 is there twice", "RANK must differ")

    def test_a_port_in_use(self):
        with self.listener(0) as port:
            pair = training(mesh("ddp", data=2))
            master, other = self.start([(0, 2, pair), (1, 2, pair)], port=port)
        self.assert_one_line_error(master, FAILED, f"port {port}", "already in use", "MASTER_PORT")
        self.assert_one_line_error(other, FAILED, f"{self.address(0)}:{port}", "another program")

    def test_ranks_that_were_given_no_secret(self):
        """On one host they take their user's; on several they are refused, unless told to let in everybody."""
        pair = [(rank, 2, training(mesh("ddp", data=2))) for rank in (0, 1)]
        none = {"TANDEM_SECRET_FILE": ""}
        if self.num_nodes == 1:
            self.assertEqual([DONE] * 2, [result.code for result in self.start(pair, none)])
            return
        for result in self.start(pair, none):
            self.assert_one_line_error(result, BAD_USAGE, "TANDEM_SECRET_FILE: missing", "several hosts", "--insecure")
        insecure = self.start(pair, {**none, "TANDEM_INSECURE": "1"})
        self.assertEqual([DONE] * 2, [result.code for result in insecure])

    def test_another_secret_on_one_rank(self):
        pair = [(rank, 2, training(mesh("ddp", data=2))) for rank in (0, 1)]
        other = self.directory / "other"
        other.touch(0o600)
        other.write_text("what this rank alone knows")
        lead, refused = self.start(pair, own={1: {"TANDEM_SECRET_FILE": other}})
        self.assert_one_line_error(refused, FAILED, f"{self.address(0)}", "another secret", "TANDEM_SECRET_FILE")
        self.assert_one_line_error(lead, FAILED, "rank 1 of 2 did not appear")

    def test_a_launcher_hears_of_a_lost_peer_and_of_no_other_fault(self):
        note = self.directory / "lost_peer"
        told = [(0, 2, training(mesh("ddp", data=2)))], {"TANDEM_LOST_PEER_FILE": note}
        with self.listener(0) as port:
            self.start(*told, port=port)
        self.assertFalse(note.exists())
        self.start(*told)
        self.assertTrue(note.exists())

    def test_variables_that_make_no_sense(self):
        pair = training(mesh("ddp", data=2))
        for environment, part in (({"RANK": "two"}, "RANK"), ({"RANK": "2"}, "RANK"),
                                  ({"WORLD_SIZE": ""}, "WORLD_SIZE"), ({"MASTER_PORT": "70000"}, "MASTER_PORT"),
                                  ({"TANDEM_CONNECT_TIMEOUT_S": "soon"}, "TANDEM_CONNECT_TIMEOUT_S")):
            with self.subTest(**environment):
                result, = self.start([(0, 2, pair)], environment)
                self.assert_one_line_error(result, BAD_USAGE, f"environment variable {part}: ")


class AnotherConfig(LoneRanks):
    """One of two ranks has another config of the same mesh: both say so instead of training something else."""

    def check(self, change, strategy="ddp"):
        mine = training(mesh(strategy, data=2))
        theirs = {**mine, **{section: {**mine[section], **keys} if isinstance(keys, dict) else keys
                             for section, keys in change.items()}}
        for result in self.start([(0, 2, mine), (1, 2, theirs)]):
            self.assertIn(result.code, (FAILED, BAD_USAGE), result)
            self.assert_last_line(result, result.code, "rank 1")

    def test_another_model(self):
        for strategy in ("ddp", "fsdp"):
            for model in (LLAMA, {**GPT2, "layers": 5}, {**GPT2, "width": 48}):
                with self.subTest(strategy=strategy, model=model):
                    self.check({"model": model}, strategy)

    def test_what_would_train_something_else_without_a_sign(self):
        for change in ({"train": {"lr": 0.1}}, {"train": {"seed": 2}}, {"train": {"clip": 0.1}},
                       {"train": {"batch": 24}}, {"precision": "bf16"}, {"parallel": {"strategy": "zero1"}}):
            with self.subTest(change=change):
                self.check(change)

    def test_what_would_make_ranks_wait_for_each_other(self):
        for change in ({"train": {"steps": 2}}, {"checkpoint": {"every": 2}}, {"train": {"eval_every": 2}}):
            with self.subTest(change=change):
                self.check(change)


if __name__ == "__main__":
    ranks.main()
