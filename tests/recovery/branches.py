"""Going back, going on differently, and stopping where nobody expects it."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
import tandem_run
from tandem_run import BAD_USAGE, FAILED, GPT2, INTERRUPTED, TandemTest, config, free_port, read_events, read_metrics


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
        def is_there():
            rows = (run / "metrics.jsonl").read_text().splitlines()
            steps = [json.loads(row)["step"] for row in rows if row.endswith("}")]
            return len(steps) != 8 and step in steps and (run / "checkpoints/latest").exists()

        self.wait_for(is_there, f"step {step}", interval=0.002)

    def test_a_signal_before_the_first_step_is_an_interruption_too(self):
        path = self.write_config(config({**GPT2, "layers": 40}, train={"steps": 100000}))
        process = self.start("train", path, "--run-dir", self.directory / "run")
        self.wait_for((self.directory / "run").exists, "the run directory", interval=0.0005)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(INTERRUPTED, process.wait(timeout=60))

    def test_a_signal_while_the_step_is_compiled_ends_the_run_at_once(self):
        deep = {**GPT2, "layers": 400, "width": 6}
        # A search for recomputation that fits compiles it dozens of times.
        for number, memory in ((signal.SIGTERM, {}), (signal.SIGINT, {"limit": "1MiB"}), (signal.SIGINT, {"recompute": "auto"})):
            path = self.write_config(config(deep, memory=memory))
            process = self.start("train", path, "--run-dir", self.directory / "run")
            self.wait_for_listener(process)
            process.send_signal(number)
            _, err = process.communicate(timeout=60)
            self.assertEqual(INTERRUPTED, process.returncode, err)
            self.assertEqual(["tandem: error: interrupted while the step was compiled; nothing is lost"],
                             err.decode().splitlines())
            self.assertFalse((self.directory / "run").exists())

    def wait_for_listener(self, process):
        """Until the program catches SIGTERM."""
        def listens():
            status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
            caught = next(line for line in status.splitlines() if line.startswith("SigCgt"))
            return int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1

        self.wait_for(listens, "the program to listen")

    def test_a_closed_terminal_is_an_interruption_but_not_under_nohup(self):
        path = self.write_config(config(GPT2, train={"steps": 100000}, checkpoint={"every": 0}))
        process = self.start("train", path, "--run-dir", self.directory / "run")
        metrics = self.directory / "run/metrics.jsonl"
        # Before the first step nothing is saved.
        self.wait_for(lambda: metrics.exists() and metrics.stat().st_size > 0, "the first step")
        process.send_signal(signal.SIGHUP)
        self.assertEqual(INTERRUPTED, process.wait(timeout=60))
        self.assertEqual(1, len(list((self.directory / "run/checkpoints").glob("step-*"))))
        ignoring = subprocess.Popen([tandem_run.program(), "train", str(path), "--run-dir", str(self.directory / "run")],
                                    stderr=subprocess.DEVNULL, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        self.addCleanup(ignoring.wait)
        self.addCleanup(ignoring.kill)
        self.wait_for_listener(ignoring)
        ignoring.send_signal(signal.SIGHUP)
        time.sleep(0.5)
        self.assertIsNone(ignoring.poll())

    def test_a_rank_that_waits_for_others_can_be_interrupted(self):
        path = self.write_config(config(GPT2, parallel={"strategy": "ddp", "data": 2}))
        for rank in (0, 1):  # with a store and without
            env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2",
                   "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
            process = subprocess.Popen([tandem_run.program(), "train", str(path)], env=env, cwd=self.directory,
                                       stderr=subprocess.PIPE, text=True)
            self.wait_for_listener(process)
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=20)
            self.assertEqual(INTERRUPTED, process.returncode, err)
            self.assertIn("interrupted before all ranks had come", err)

    def test_a_diverged_run_stops_with_an_error_and_keeps_its_good_checkpoint(self):
        content = config(GPT2, train={"steps": 10}, checkpoint={"every": 10})
        run = self.train(content, "run")
        path = self.write_config(content, "run.yaml")
        result = self.tandem("train", path, "--run-dir", run, "--set", "train.steps=200", "--set", "train.lr=1e30", "--set",
                             "train.clip=0", "--set", "checkpoint.every=5", expect=FAILED)
        self.assertIn("diverged", result.err.splitlines()[-1])
        self.assertEqual(["step-00000010"], [p.name for p in (run / "checkpoints").glob("step-*")])

    def test_a_run_that_diverges_in_fp16_keeps_its_last_good_checkpoint_and_names_it(self):
        for keep in (1, 2):
            content = config(GPT2, precision="fp16", train={"steps": 6}, checkpoint={"every": 1, "keep": keep})
            run = self.train(content, f"keep-{keep}")
            path = self.directory / f"keep-{keep}.yaml"
            result = self.tandem("train", path, "--run-dir", run, "--set", "train.steps=100", "--set", "train.lr=1e9", "--set",
                                 "train.clip=0", "--set", "train.warmup=0", expect=FAILED)
            good = run / "checkpoints/step-00000006"
            self.assertIn(f"--resume-from-checkpoint {good}", result.err.splitlines()[-1])
            (event,) = read_events(run, "diverged")
            self.assertEqual(6, event["good_step"])
            self.tandem("inspect", good, "--verify")
            self.assertLessEqual(len(list((run / "checkpoints").glob("step-*"))), keep)
            # The advice works, and steps that were lost are no part of what follows.
            again = self.tandem("train", path, "--run-dir", run, "--resume-from-checkpoint", good, "--set", "train.steps=8")
            self.assertIn("resumed from step 6", again.err)
            self.assertEqual(8, len(read_metrics(run)))

    def test_a_summary_tells_the_steps_of_this_start_and_of_all(self):
        content = config(GPT2, train={"steps": 4}, checkpoint={"every": 4})
        path = self.write_config(content, "run.yaml")
        run = self.directory / "run"
        first = self.tandem("train", path, "--run-dir", run)
        self.assertRegex(first.out, r"steps +4 in [^,\n]+\n")
        second = self.tandem("train", path, "--run-dir", run, "--set", "train.steps=7")
        self.assertRegex(second.out, r"steps +3 in .*, 7 in total\n")
        summary = tandem_run.read_summary(run)
        self.assertEqual((7, 3), (summary["steps"], summary["steps_this_start"]))

    def test_a_folder_of_somebody_elses_files_is_no_run_directory(self):
        path = self.write_config(config(GPT2, train={"steps": 1}))
        mine = self.directory / "mine"
        mine.mkdir()
        (mine / "thesis.tex").write_text("years of work")
        for resume in ("latest", "none"):
            self.refuse(BAD_USAGE, [str(mine), "thesis.tex", "--run-dir"], "train", path, "--run-dir", mine,
                        "--resume-from-checkpoint", resume)
        self.refuse(BAD_USAGE, ["is a file"], "train", path, "--run-dir", path)
        # What the run itself is printing into is not somebody else's.
        run = self.directory / "logged"
        run.mkdir()
        (run / ".keep").touch()
        with open(run / "out.txt", "w") as out:
            done = subprocess.run([tandem_run.program(), "train", str(path), "--run-dir", str(run)], stdout=out, stderr=out)
        self.assertEqual(0, done.returncode, (run / "out.txt").read_text())

    def test_two_runs_cannot_share_a_directory(self):
        path = self.write_config(config(GPT2, train={"steps": 100000}))
        run = self.directory / "run"
        process = self.start("train", path, "--run-dir", run)
        self.wait_for((run / "metrics.jsonl").exists, "the metrics")
        for resume in ("latest", "none"):
            result = self.tandem("train", path, "--run-dir", run, "--resume-from-checkpoint", resume, expect=None)
            self.assert_one_line_error(result, BAD_USAGE, str(run), "another process is training there")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(INTERRUPTED, process.wait(timeout=60))
        steps = [int(row["step"]) for row in read_metrics(run)]
        self.assertEqual(list(range(1, len(steps) + 1)), steps)

    def test_a_config_that_no_run_has_written_is_not_overwritten(self):
        run = self.directory / "mine"
        run.mkdir()
        path = self.write_config(config(GPT2, train={"steps": 2}), run / "config.yaml")
        text = (run / "config.yaml").read_text()
        self.refuse(BAD_USAGE, [str(run), "config.yaml"], "train", path, "--run-dir", run)
        self.assertEqual(text, (run / "config.yaml").read_text())

    def test_a_finished_run_keeps_its_config(self):
        content = config(GPT2, train={"steps": 4})
        run = self.train(content, "run")
        text = (run / "config.yaml").read_text()
        self.tandem("train", self.write_config(content, "run.yaml"), "--run-dir", run, "--set", "train.steps=2")
        self.assertEqual(text, (run / "config.yaml").read_text())

    def test_a_log_that_nobody_reads_does_not_end_a_run(self):
        path = self.write_config(config(GPT2, train={"steps": 30}))
        run = self.directory / "run"
        reader, writer = os.pipe()
        os.close(reader)
        result = subprocess.run([tandem_run.program(), "train", str(path), "--run-dir", str(run)], stdout=writer, stderr=writer)
        os.close(writer)
        self.assertEqual(0, result.returncode)
        self.assertEqual(30, len(read_metrics(run)))

    def test_data_that_has_changed_is_told(self):
        text = self.directory / "book.txt"
        text.write_text("a song of seas and sails " * 200)
        content = config(GPT2, train={"steps": 2}, checkpoint={"every": 2}, data={"train": str(text), "eval": str(text)})
        run = self.train(content, "run")
        path = self.write_config(content, "run.yaml")
        told = "has other contents than before"
        self.assertNotIn(told, self.tandem("train", path, "--run-dir", run, "--set", "train.steps=4").err)
        text.write_text("a song of seas and snails " * 200)
        self.assertIn(told, self.tandem("train", path, "--run-dir", run, "--set", "train.steps=6").err)

    def test_a_run_without_loss_scaling_goes_on_in_fp16_with_its_first_scale(self):
        content = config(GPT2, train={"steps": 2}, checkpoint={"every": 2})
        run = self.train(content, "run")
        self.tandem("train", self.write_config(content, "run.yaml"), "--run-dir", run, "--set", "precision=fp16", "--set",
                    "train.steps=4", "--set", "train.loss_scale=1024")
        self.assertEqual(["1.0", "1.0", "1024.0", "1024.0"], [str(float(row["loss_scale"])) for row in read_metrics(run)])

    def test_a_damaged_row_of_metrics_costs_no_other_and_is_told(self):
        content = config(GPT2, train={"steps": 6}, checkpoint={"every": 3})
        run = self.train(content, "run")
        whole = (run / "metrics.jsonl").read_text()
        damaged = whole.replace('{"step":2,', '{"step":2;')
        (run / "metrics.jsonl").write_text(damaged)
        (run / "metrics.csv").unlink()
        told = self.tandem("train", self.write_config(content, "run.yaml"), "--run-dir", run, "--set", "train.steps=8").err
        self.assertIn("metrics.jsonl: was damaged and lacks steps 2; ", told)
        self.assertIn("metrics.csv: is missing", told)
        self.assertEqual(2, len(read_events(run, "damaged_metrics")))
        self.assertEqual(["1", "3", "4", "5", "6", "7", "8"], [row["step"] for row in read_metrics(run)])
        self.assertEqual(damaged, (run / "metrics.jsonl.damaged-1").read_text())
        # A run that goes on elsewhere has no earlier rows, and none are missed.
        other = self.tandem("train", self.directory / "run.yaml", "--run-dir", "other", "--resume-from-checkpoint",
                            run / "checkpoints/latest", "--set", "train.steps=9").err
        self.assertNotIn("warning", other)

    def test_starting_over_moves_the_run_aside_however_its_directory_is_written(self):
        content = config(GPT2, train={"steps": 1})
        run = self.train(content, "run")
        self.tandem("train", self.write_config(content, "run.yaml"), "--run-dir", f"{run}/", "--resume-from-checkpoint", "none")
        self.assertTrue((self.directory / "run.1/metrics.jsonl").exists())
        self.assertEqual(1, len(read_metrics(run)))


if __name__ == "__main__":
    tandem_run.main()
