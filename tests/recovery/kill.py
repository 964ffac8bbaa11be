"""Runs that are stopped, by SIGKILL at random moments or by Ctrl-C, and gone on with: equal to never stopped."""

import pathlib
import random
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))

import tandem_run  # noqa: E402
from tandem_run import GPT2, LLAMA, MLP, RESNET, TandemTest, config  # noqa: E402

STEPS = 24
DEADLINE_S = 120  # for what the program does soon: past it, it hangs
MAX_RUNS = 50  # a save lasts a millisecond or so: on a busy machine many runs end before a kill meets one


def num_lines(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


def is_caught(process, number):
    """Whether the process has a handler for a signal."""
    return is_caught_by(process.pid, number)


def is_caught_by(pid, number):
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    mask = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt")), "0")
    return bool(int(mask, 16) >> (number - 1) & 1)


class StoppedRuns(TandemTest):
    steps = STEPS

    def wait_until(self, process, condition, what):
        """Waits for a condition, or for the process to end, whichever is first. Tells whether it runs still."""
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            if process.poll() is not None:
                return False
            self.assertLess(time.monotonic(), deadline, f"waited in vain for {what}")
            time.sleep(0.0002)
        return process.poll() is None

    def train_command(self, content, run):
        return "train", self.write_config(content, f"{run}.yaml"), "--run-dir", self.directory / run

    def undisturbed(self, content):
        # Where checkpoints fall does not change what is computed; the last one is compared.
        return self.train(content, "undisturbed")

    def assert_went_on_as_if_never_stopped(self, content, run):
        whole = self.undisturbed(content)
        self.assertEqual([str(step) for step in range(1, self.steps + 1)],
                         [row["step"] for row in tandem_run.read_metrics(run)])
        self.assert_equal_runs(whole, run)
        self.assertEqual(tandem_run.read_csv_metrics(whole), tandem_run.read_csv_metrics(run))
        ours, theirs = (tandem_run.read_manifest(r, self.steps) for r in (run, whole))
        for key in ("step", "epoch", "samples", "loss", "scalars"):
            self.assertEqual(theirs[key], ours[key], key)
        self.assertEqual(tandem_run.read_summary(whole)["final_loss"], tandem_run.read_summary(run)["final_loss"])
        self.tandem("inspect", run, "--verify")
        leftovers = [path.name for path in (run / "checkpoints").iterdir() if path.name.startswith(".tmp")]
        self.assertEqual([], leftovers)


class KilledRuns(StoppedRuns):
    """Five kills each, twenty in all."""

    def kill_at_random(self, command, run, rng, during_save):
        """Starts the run, kills it at a random moment, and tells whether it was hit before its end."""
        process = self.start(*command)
        hit = self.is_hit(process, run, rng, during_save)
        if not hit:
            self.assertEqual(tandem_run.DONE, process.wait(DEADLINE_S), process.stderr.read())
        return hit

    def is_hit(self, process, run, rng, during_save):
        metrics, checkpoints = run / "metrics.jsonl", run / "checkpoints"
        # Resuming cuts off the rows after the checkpoint, so rows are counted from the moment it has done so.
        if not self.wait_until(process, lambda: is_caught(process, signal.SIGTERM), "the run to start"):
            return False
        rows = num_lines(metrics) + rng.randint(0, 4)
        if not self.wait_until(process, lambda: num_lines(metrics) >= rows, "steps"):
            return False
        if during_save:
            saving = lambda: any(checkpoints.glob(".tmp-*"))  # noqa: E731
            if not self.wait_until(process, saving, "a save"):
                return False
        else:
            time.sleep(rng.uniform(0, 0.02))
        process.kill()
        return process.wait() == -signal.SIGKILL

    def check(self, content, seed):
        rng = random.Random(seed)
        run = self.directory / "killed"
        command = self.train_command(content, run.name)
        kills = 0
        runs = 1
        while kills < 5:
            if self.kill_at_random(command, run, rng, during_save=kills % 2 == 1):
                kills += 1
                continue
            # It got to its end: the remaining kills need a new run.
            self.assert_went_on_as_if_never_stopped(content, run)
            self.assertLess(runs, MAX_RUNS, "no kill met a run in time")
            run = self.directory / f"killed{runs}"
            command = self.train_command(content, run.name)
            runs += 1
        self.tandem(*command)
        self.assert_went_on_as_if_never_stopped(content, run)

    def test_gpt2_with_asynchronous_saves_at_every_step(self):
        self.check(config(GPT2, threads=2, train={"steps": STEPS, "eval_every": 5}, checkpoint={"every": 1}), 1)

    def test_llama_in_fp16_with_overflows_and_synchronous_saves(self):
        # The scale starts too high and soon grows again: its state and skipped steps must survive.
        train = {"steps": STEPS, "loss_scale": 2.0**24, "loss_scale_window": 3}
        content = config(LLAMA, precision="fp16", train=train, checkpoint={"every": 2, "async": False})
        self.check(content, 2)
        self.assertNotEqual([], tandem_run.read_events(self.directory / "undisturbed", "overflow"))

    def test_resnet_in_bf16_with_running_statistics(self):
        self.check(config(RESNET, precision="bf16", train={"steps": STEPS}, checkpoint={"every": 3}), 3)

    def test_gpt2_on_a_text_file_over_several_epochs(self):
        text = self.directory / "text.txt"
        text.write_text("".join(f"{number} is not {number * number}, but nearly.\n" for number in range(40)))
        data = {"train": str(text), "eval": str(text)}
        content = config(GPT2, data=data, train={"steps": STEPS}, checkpoint={"every": 2, "keep": 1})
        self.check(content, 4)
        self.assertGreater(int(tandem_run.read_metrics(self.directory / "undisturbed")[-1]["epoch"]), 1)


class InterruptedRuns(StoppedRuns):
    def interrupt(self, command, run, number, rows):
        """Sends a signal once `rows` steps are done; returns the step that was saved."""
        process = self.start(*command)
        running = lambda: is_caught(process, number) and num_lines(run / "metrics.jsonl") >= rows  # noqa: E731
        self.assertTrue(self.wait_until(process, running, "the signal's moment"), "the run ended too early")
        process.send_signal(number)
        self.assertEqual(tandem_run.INTERRUPTED, process.wait(DEADLINE_S), process.stderr.read())
        step = int(tandem_run.read_metrics(run)[-1]["step"])
        self.assertGreaterEqual(step, rows)
        self.assertEqual(step, tandem_run.read_manifest(run, step)["step"])
        self.assertEqual(step, tandem_run.read_events(run, "interrupt")[-1]["step"])
        return step

    def check(self, content, number):
        run = self.directory / "interrupted"
        command = self.train_command(content, "interrupted")
        first = self.interrupt(command, run, number, 3)
        second = self.interrupt(command, run, number, first + 4)
        self.assertGreater(second, first)
        self.tandem(*command)
        self.assertEqual([first, second], [event["step"] for event in tandem_run.read_events(run, "resume")])
        self.assert_went_on_as_if_never_stopped(content, run)

    def test_ctrl_c_saves_that_very_step_and_the_run_goes_on(self):
        # A micro-batch of one makes a step long enough for the signal to meet it.
        content = config(GPT2, train={"steps": STEPS, "batch": 24, "micro_batch": 1}, checkpoint={"every": 7})
        self.check(content, signal.SIGINT)

    def test_sigterm_saves_that_very_step_and_the_run_goes_on(self):
        content = config(MLP, train={"steps": STEPS, "batch": 96, "micro_batch": 1}, checkpoint={"every": 7})
        self.check(content, signal.SIGTERM)

    def test_a_signal_during_the_last_step_still_leads_to_a_summary(self):
        train = {"steps": 1, "batch": 6000, "micro_batch": 1}
        command = self.train_command(config(MLP, train=train), "last")
        process = self.start(*command)
        self.assertTrue(self.wait_until(process, lambda: is_caught(process, signal.SIGINT), "the run to start"))
        process.send_signal(signal.SIGINT)
        self.assertIn(process.wait(DEADLINE_S), (tandem_run.DONE, tandem_run.INTERRUPTED))
        self.tandem(*command)
        self.assertEqual(1, tandem_run.read_summary(self.directory / "last")["steps"])

    def test_a_run_that_was_killed_just_before_its_summary_gets_one(self):
        content = config(RESNET, train={"steps": 3, "eval_every": 3})
        run = self.train(content, "run")
        whole = tandem_run.read_summary(run)
        (run / "summary.json").unlink()
        self.train(content, "run")
        for key in ("steps", "final_loss", "eval_loss", "eval_accuracy", "planned_bytes", "precision"):
            self.assertEqual(whole[key], tandem_run.read_summary(run)[key], key)

    def test_a_run_that_was_killed_while_it_removed_old_checkpoints_leaves_none_behind(self):
        content = config(GPT2, train={"steps": 6}, checkpoint={"every": 3})
        run = self.train(content, "run")
        try:
            tandem_run.checkpoint(run, 3).rename(run / "checkpoints" / ".tmp-old-step-00000003-1")  # as such a kill does
        except OSError as error:
            self.skipTest(f"directories cannot be renamed there: {error}")
        self.tandem(*self.train_command(content, "run"))
        self.assertEqual([], [path.name for path in (run / "checkpoints").glob(".tmp*")])

    def test_a_second_signal_ends_the_run_at_once(self):
        # One step of a hundred thousand passes: it would go on for minutes.
        train = {"steps": 2, "batch": 100000, "micro_batch": 1}
        for first, second in ((signal.SIGINT, signal.SIGINT), (signal.SIGTERM, signal.SIGINT)):
            with self.subTest(first=first.name, second=second.name):
                run = self.directory / first.name
                process = self.start(*self.train_command(config(GPT2, train=train), first.name))
                # Before the first step, the first signal would end it.
                started = lambda: (run / "events.jsonl").exists() and tandem_run.read_events(run, "start")  # noqa: E731
                self.assertTrue(self.wait_until(process, started, "the run to start"))
                time.sleep(0.5)
                process.send_signal(first)
                self.assertTrue(self.wait_until(process, lambda: not is_caught(process, second), "the first signal"))
                process.send_signal(second)
                self.assertEqual(-second, process.wait(DEADLINE_S))
                self.assertEqual([], list((run / "checkpoints").glob("*")))


if __name__ == "__main__":
    tandem_run.main()
