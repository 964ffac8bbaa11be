"""Going back, going on differently, and stopping where nobody expects it."""

import json
import pathlib
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
import tandem_run
from tandem_run import FAILED, GPT2, INTERRUPTED, TandemTest, config, read_metrics


class Branches(TandemTest):
    def test_after_going_back_latest_is_on_the_new_branch_even_if_killed_at_once(self):
        content = config(GPT2, train={"steps": 8}, checkpoint={"every": 4, "keep": 0})
        run = self.train(content, "run")
        path = self.write_config(content, "run.yaml")
        process = self.start("train", path, "--run-dir", run, "--resume-from-checkpoint",
                             run / "checkpoints/step-00000004", "--set", "checkpoint.every=0", "--set", "train.steps=4000")
        self.wait_for_step(run, 5)
        process.kill()
        process.wait()
        again = self.tandem("train", path, "--run-dir", run)
        self.assertIn("resumed from step 4", again.err)
        self.assert_equal_runs(self.train(content, "undisturbed"), run)

    def wait_for_step(self, run, step):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            rows = (run / "metrics.jsonl").read_text().splitlines()
            steps = [json.loads(row)["step"] for row in rows if row.endswith("}")]
            if len(steps) != 8 and step in steps and (run / "checkpoints/latest").exists():
                return
            time.sleep(0.002)
        self.fail("the run never got there")

    def test_a_signal_before_the_first_step_is_an_interruption_too(self):
        path = self.write_config(config({**GPT2, "layers": 40}, train={"steps": 100000}))
        process = self.start("train", path, "--run-dir", self.directory / "run")
        while not (self.directory / "run").exists():
            time.sleep(0.0005)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(INTERRUPTED, process.wait(timeout=60))

    def test_a_diverged_run_stops_with_an_error_and_keeps_its_good_checkpoint(self):
        content = config(GPT2, train={"steps": 10}, checkpoint={"every": 10})
        run = self.train(content, "run")
        path = self.write_config(content, "run.yaml")
        result = self.tandem("train", path, "--run-dir", run, "--set", "train.steps=200", "--set", "train.lr=1e30", "--set",
                             "train.clip=0", "--set", "checkpoint.every=50", expect=FAILED)
        self.assertIn("diverged", result.err.splitlines()[-1])
        self.assertEqual(["step-00000010"], [p.name for p in (run / "checkpoints").glob("step-*")])

    def test_a_run_without_loss_scaling_goes_on_in_fp16_with_its_first_scale(self):
        content = config(GPT2, train={"steps": 2}, checkpoint={"every": 2})
        run = self.train(content, "run")
        self.tandem("train", self.write_config(content, "run.yaml"), "--run-dir", run, "--set", "precision=fp16", "--set",
                    "train.steps=4", "--set", "train.loss_scale=1024")
        self.assertEqual(["1.0", "1.0", "1024.0", "1024.0"], [str(float(row["loss_scale"])) for row in read_metrics(run)])

    def test_starting_over_moves_the_run_aside_however_its_directory_is_written(self):
        content = config(GPT2, train={"steps": 1})
        run = self.train(content, "run")
        self.tandem("train", self.write_config(content, "run.yaml"), "--run-dir", f"{run}/", "--resume-from-checkpoint", "none")
        self.assertTrue((self.directory / "run.1/metrics.jsonl").exists())
        self.assertEqual(1, len(read_metrics(run)))


if __name__ == "__main__":
    tandem_run.main()
