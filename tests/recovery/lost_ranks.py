"""Ranks that are killed or stopped at random moments: the others say whom they lost, the launcher starts all of them
again, and the finished run equals one that nobody disturbed."""

import os
import pathlib
import random
import re
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "dist"))

import kill  # noqa: E402
import ranks  # noqa: E402
import tandem_run  # noqa: E402
from ranks import GPT2, LLAMA, RESNET, config, mesh, num_processes  # noqa: E402

STEPS = 48
TIMEOUT_S = 3  # of the ranks, for each other
CONNECT_TIMEOUT_S = 20  # more than a crowded machine needs: who is merely late must not be blamed
SLACK_S = 60  # for what follows on a busy machine: past it, something hangs
MAX_RUNS = 20
MAX_RESTARTS = 100

KILL, STOP = signal.SIGKILL, signal.SIGSTOP
# Starting: from the first instruction to the first step, resuming and all.
STARTING, STEPPING, SAVING = "starting", "stepping", "saving"
HEADING = re.compile(r"^--- .* attempt (\d+) on .*, rank \d+, pid (\d+)$", re.M)


class Launch:
    """A run of several ranks under a launcher that restarts them, and what is known of it from outside."""

    def __init__(self, launchers, run, num_ranks):
        self.launchers, self.run, self.num_ranks = launchers, run, num_ranks
        self.attempt = 0

    def log(self, rank):
        """What a rank has said in this attempt, and the launcher about it."""
        text = self.launchers.log(rank)
        begins = {int(match[1]): match.start() for match in HEADING.finditer(text)}
        if self.attempt not in begins:
            return ""
        return text[begins[self.attempt]:begins.get(self.attempt + 1)]

    def pids(self):
        """Of this attempt's ranks, once all are there; empty before."""
        found = [HEADING.match(self.log(rank)) for rank in range(self.num_ranks)]
        return [int(match[2]) for match in found] if all(found) else []

    def has_started(self):
        """Whether this attempt has resumed and begun to train."""
        return "parameters" in self.log(0)

    def num_rows(self):
        return kill.num_lines(self.run / "metrics.jsonl")

    def is_saving(self):
        return any((self.run / "checkpoints").glob(".tmp-*"))

    def restart_message(self):
        """Of node 0, once all have said it; empty before."""
        wanted = f"; restarting all ranks ({self.attempt + 1} of {MAX_RESTARTS})"
        told = [next((line for line in self.launchers.errors(node).splitlines() if line.endswith(wanted)), "")
                for node in self.launchers.processes]
        return told[0] if all(told) else ""


class LostRanks(ranks.RanksTest, kill.StoppedRuns):
    """Twenty-four faults."""

    steps = STEPS

    def undisturbed(self, content):
        # Nobody is lost there: patience is free.
        patient = {**content, "parallel": {**content["parallel"], "timeout": kill.DEADLINE_S}}
        return self.train_on_one_node(patient, "undisturbed")

    def begin(self, content, number):
        run = self.directory / f"disturbed-{number}"
        command = self.train_command(content, run.name)
        launchers = self.start_ranks(num_processes(content), "--max-restarts", MAX_RESTARTS, *command,
                                     env={"TANDEM_CONNECT_TIMEOUT_S": str(CONNECT_TIMEOUT_S)})
        return Launch(launchers, run, num_processes(content))

    def wait_for_moment(self, launch, moment, rng):
        """False where the run came to its end before."""
        if not self.wait_until(launch.launchers, launch.pids, "the ranks' start"):
            return False
        if moment == STARTING:
            time.sleep(rng.uniform(0, 0.2))
            return True
        if not self.wait_until(launch.launchers, launch.has_started, "the first step"):
            return False
        rows = launch.num_rows() + rng.randint(0, 4)
        if not self.wait_until(launch.launchers, lambda: launch.num_rows() >= rows, "steps"):
            return False
        if moment == SAVING:
            return self.wait_until(launch.launchers, launch.is_saving, "a save")
        time.sleep(rng.uniform(0, 0.01))
        return True

    def strike(self, launch, number, moment, rng):
        """Hits a random rank at a random moment; tells whether that met the run before its end."""
        if not self.wait_for_moment(launch, moment, rng):
            return False
        rank = rng.randrange(launch.num_ranks)
        pid = launch.pids()[rank]
        try:
            os.kill(pid, number)
        except ProcessLookupError:  # it has come to its end
            return False
        struck = time.monotonic()
        if number == STOP and launch.num_rows() > STEPS - 3:  # at the very end nobody may need it any more
            os.kill(pid, signal.SIGCONT)
            return False
        if not self.wait_until(launch.launchers, launch.restart_message, f"the end of rank {rank} to be noticed"):
            return False
        self.assertLess(time.monotonic() - struck, CONNECT_TIMEOUT_S + SLACK_S)
        with self.subTest(signal=number.name, moment=moment, rank=rank, pid=pid):
            self.assert_blamed(launch, rank, pid, number, moment)
        launch.attempt += 1
        return True

    def assert_blamed(self, launch, rank, pid, number, moment):
        """The launcher and every other rank name the one that was lost."""
        killed = rf"rank {rank} failed with signal 9 \(SIGKILL\)"
        missed = rf"exit code 1: .*\branks? ([\d, ]+, )?{rank}\b"
        stopped = rf"rank {rank} was stopped \(SIGSTOP\)"
        # Whichever node is quicker says what it knows: how the rank ended, or that it is gone.
        wanted = stopped if number == STOP else killed if self.num_nodes == 1 else f"{killed}|{missed}"
        self.assertRegex(launch.restart_message(), wanted)
        for other in set(range(launch.num_ranks)) - {rank}:
            log = launch.log(other)
            errors = [line for line in log.splitlines() if line.startswith("tandem: error: ")]
            if moment == STARTING:  # the launcher's SIGTERM may come before they know each other
                errors = [line for line in errors if not line.startswith("tandem: error: interrupted ")]
                # ... or end rank 0, with the store by which they would know; its own error is looked at, too.
                if other != 0:
                    errors = [line for line in errors if not line.endswith(" of rank 0: is down: it has ended")]
            # On several nodes, who cannot reach one that was stopped as it started does not appear to the others.
            for error in errors if moment != STARTING or self.num_nodes == 1 else ():
                self.assertRegex(error, rf"\branks? ([\d, ]+, )?{rank}\b")
            self.assertTrue(errors or moment == STARTING or "ended with exit code 0" in log, log)

    def check(self, content, seed, *faults):
        rng = random.Random(seed)
        launch = self.begin(content, 0)
        runs = 1
        for number, moment in faults:
            while not self.strike(launch, number, moment, rng):
                # It got to its end: the remaining faults need a new run.
                self.assert_ended_well(content, launch)
                self.assertLess(runs, MAX_RUNS, "no fault met a run in time")
                launch = self.begin(content, runs)
                runs += 1
        self.assert_ended_well(content, launch)

    def assert_ended_well(self, content, launch):
        codes = launch.launchers.wait()
        self.assertEqual([tandem_run.DONE] * self.num_nodes, codes, launch.launchers.errors(0)[-2000:])
        self.assert_went_on_as_if_never_stopped(content, launch.run)

    def content(self, model, parallel, **sections):
        train = {"steps": STEPS, "batch": 8, "micro_batch": 1, "eval_every": 0, **sections.pop("train", {})}
        return config(model, parallel={**parallel, "timeout": TIMEOUT_S}, train=train, **sections)

    def test_fsdp_on_3_ranks_with_saves_at_every_step(self):
        content = self.content(GPT2, mesh("fsdp", data=3), train={"batch": 12}, checkpoint={"every": 1})
        self.check(content, 1, (KILL, STEPPING), (KILL, SAVING), (STOP, STEPPING), (KILL, STARTING), (KILL, SAVING),
                   (STOP, SAVING))

    def test_zero1_and_a_pipeline_on_4_ranks_with_synchronous_saves(self):
        content = self.content(LLAMA, mesh("zero1", data=2, pipeline=2, schedule="1f1b"),
                               checkpoint={"every": 2, "async": False})
        self.check(content, 2, (KILL, STEPPING), (STOP, STEPPING), (KILL, SAVING), (KILL, STARTING), (STOP, SAVING))

    def test_tensor_axis_on_4_ranks_in_bf16(self):
        content = self.content(LLAMA, mesh("zero1", data=2, tensor=2), precision="bf16", checkpoint={"every": 2})
        self.check(content, 3, (KILL, STEPPING), (STOP, STEPPING), (KILL, STARTING), (KILL, SAVING))

    def test_fp16_with_overflows_and_evaluation_on_3_ranks(self):
        # The scale starts too high and soon grows again: its state and skipped steps must survive.
        train = {"batch": 12, "loss_scale": 2.0**24, "loss_scale_window": 3, "eval_every": 7}
        content = self.content(GPT2, mesh("zero2", data=3), precision="fp16", train=train, checkpoint={"every": 2})
        self.check(content, 4, (KILL, STEPPING), (STOP, STARTING), (KILL, STEPPING), (KILL, SAVING), (KILL, STARTING))
        self.assertNotEqual([], tandem_run.read_events(self.directory / "undisturbed", "overflow"))

    def test_resnet_with_statistics_of_the_whole_batch_on_4_ranks(self):
        content = self.content(RESNET, mesh("ddp", data=4), checkpoint={"every": 3})
        self.check(content, 5, (KILL, STEPPING), (KILL, SAVING), (STOP, STEPPING), (KILL, STEPPING))


if __name__ == "__main__":
    ranks.main()
