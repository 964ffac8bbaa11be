"""What a run's sinks hold after kills and resumes: each step once, with the numbers of metrics.jsonl. TANDEM_SINK_KILLS=20 for more."""

import json
import os
import pathlib
import random
import sys
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "recovery"))

import event_files  # noqa: E402
import kill  # noqa: E402
import tandem_run  # noqa: E402
import wandb_files  # noqa: E402
from tandem_run import GPT2, MLP, config  # noqa: E402

KILLS = int(os.environ.get("TANDEM_SINK_KILLS", "4"))
STEPS = max(30, 5 * KILLS)
ALL = {"tensorboard": True, "wandb": "offline", "comet": "offline"}


def rows_of(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def read_comet(run):
    """(experiment.json, the lines of messages.json) of the only archive, whose sums are right."""
    (path,) = (run / "comet").iterdir()
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None and set(archive.namelist()) == {"messages.json", "experiment.json"}
        return json.loads(archive.read("experiment.json")), [json.loads(line) for line in archive.read("messages.json").splitlines()]


class Sinks(kill.StoppedRuns):
    def check(self, run, steps):
        rows = rows_of(run)
        self.assertEqual(list(range(1, steps + 1)), [row["step"] for row in rows])
        self.assertEqual(event_files.expected(rows), event_files.scalars(run))
        self.check_wandb(run, rows)
        self.check_comet(run, rows)

    def check_wandb(self, run, rows):
        kinds, found, _, settings, summary = wandb_files.read(run)
        for row in found:
            self.assertGreaterEqual(row.pop("_runtime"), 0)
            self.assertGreater(row.pop("_timestamp"), 1.7e9)
        numbers = [{"_step" if key == "step" else key: value for key, value in row.items() if key != "time"} for row in rows]
        self.assertEqual(numbers, found)
        self.assertEqual(numbers[-1], summary)
        self.assertEqual("run", kinds[0])
        self.assertEqual(["exit", "final"], kinds[-2:])
        self.assertEqual((1, 1), (kinds.count("exit"), kinds.count("run")))
        self.assertEqual(self.steps, settings["train"]["steps"])

    def check_comet(self, run, rows):
        experiment, messages = read_comet(run)
        self.assertEqual("create", experiment["resume_strategy"])
        self.assertLessEqual(experiment["start_time"], experiment["stop_time"])
        (archive,) = (run / "comet").iterdir()
        self.assertEqual(archive.stem, experiment["offline_id"])
        found = {}
        for message in messages:
            if message["type"] == "metric_msg":
                metric = message["payload"]["metric"]
                found.setdefault(metric["step"], []).append((metric["metricName"], metric["metricValue"]))
        expected = {row["step"]: sorted((key, value) for key, value in row.items() if key not in ("step", "epoch", "time")) for row in rows}
        self.assertEqual(expected, {step: sorted(numbers) for step, numbers in found.items()})
        parameters = {message["payload"]["param"]["paramName"]: message["payload"]["param"]["paramValue"]
                      for message in messages if message["type"] == "parameter_msg"}
        self.assertEqual(str(self.steps), parameters["train.steps"])
        self.assertIn({"key": "Name", "value": run.name}, [message["payload"] for message in messages if message["type"] == "log_other"])

    def test_have_every_number_of_every_row_and_the_config(self):
        self.steps = 5
        run = self.train(config(MLP, log=ALL, train={"eval_every": 2}), "run")
        self.check(run, 5)
        (file,) = (run / "tensorboard").iterdir()
        self.assertIn(b"    name: run\n", file.read_bytes())

    def test_have_each_step_once_after_kills(self):
        self.steps = STEPS
        content = config(GPT2, log=ALL, train={"steps": STEPS, "eval_every": 7}, checkpoint={"every": 3})
        rng = random.Random(7)
        run = self.directory / "killed"
        for _ in range(KILLS):
            process = self.start(*self.train_command(content, "killed"))
            before = kill.num_lines(run / "metrics.jsonl")
            more = rng.randrange(1, 8)
            self.wait_until(process, lambda: kill.num_lines(run / "metrics.jsonl") >= min(before + more, STEPS), "steps")
            process.kill()
            process.wait()
        self.tandem(*self.train_command(content, "killed"))
        self.check(run, STEPS)
        self.assertGreater(len(list((run / "tensorboard").iterdir())), 1)

    def test_histograms_count_every_weight_and_gradient_once_on_any_mesh(self):
        log = {"tensorboard": True, "histograms": 2}
        untied = {**GPT2, "tied": False}
        run = self.train(config(untied, log=log, train={"steps": 5}), "one")
        alone = event_files.histograms(run)
        parameters = json.loads((run / "plan.json").read_text())["parameters"]
        for kind in ("weights/", "gradients/"):
            tags = {tag: seen for tag, seen in alone.items() if tag.startswith(kind)}
            self.assertEqual(parameters, sum(seen[0][1] for seen in tags.values()))
            for tag, seen in tags.items():
                self.assertEqual([2, 4], [step for step, _, _ in seen], tag)
                for _, count, buckets in seen:
                    self.assertEqual(count, sum(buckets.values()), tag)
        self.assertTrue(any(len(buckets) > 5 for tag, seen in alone.items() if tag.startswith("gradients/") for _, _, buckets in seen))
        for strategy in ("ddp", "zero1", "fsdp"):
            path = self.write_config(config(untied, log=log, train={"steps": 2, "batch": 8, "micro_batch": 1}, parallel={"strategy": strategy, "data": 2}))
            self.tandem("launch", "--nproc-per-node", "2", "train", path, "--run-dir", self.directory / strategy)
            found = event_files.histograms(self.directory / strategy)
            expected = {tag: seen[0][1] for tag, seen in alone.items() if strategy != "ddp" or tag.startswith("weights/")}
            self.assertEqual(expected, {tag: seen[0][1] for tag, seen in found.items()}, strategy)

    def test_the_gradient_of_a_tied_table_has_no_histogram(self):
        run = self.train(config(GPT2, log={"tensorboard": True, "histograms": 2}, train={"steps": 2}), "tied")
        found = event_files.histograms(run)
        self.assertIn("weights/embed.weight", found)
        self.assertNotIn("gradients/embed.weight", found)
        self.assertGreater(sum(tag.startswith("gradients/") for tag in found), 5)

    def test_that_cannot_be_written_do_not_stop_the_run(self):
        run = self.directory / "run"
        (run / "logs").mkdir(parents=True)  # a run's, else it would be refused
        for name in ALL:
            (run / name).write_text("in the way")
        path = self.write_config(config(MLP, log=ALL), "run.yaml")
        done = self.tandem("train", path, "--run-dir", run)
        self.assertEqual(3, done.err.count("training goes on"), done.err)
        self.assertEqual(3, len(tandem_run.read_events(run, "sink")))
        self.assertEqual(5, len(rows_of(run)))

    def test_that_are_none_are_refused(self):
        path = self.write_config(config(MLP))
        for setting, words in (("log.wandb=true", ["log.wandb", "none", "offline", "online"]),
                               ("log.comet=online", ["log.comet", "none", "offline"]), ("log.webhook=example.org", ["log.webhook", "http://"]),
                               ("log.histograms=5", ["log.histograms", "log.tensorboard"]), ("log.prometheus_file=a", ["log.prometheus_file", ".prom"])):
            self.refuse(tandem_run.BAD_USAGE, words, "train", path, "--set", setting)


if __name__ == "__main__":
    tandem_run.main()
