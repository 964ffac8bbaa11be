"""What a run's sinks hold after kills and resumes: each step once, with the numbers of metrics.jsonl."""

import json
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "recovery"))

import event_files  # noqa: E402
import kill  # noqa: E402
import tandem_run  # noqa: E402
from tandem_run import GPT2, MLP, config  # noqa: E402

STEPS = 30
KILLS = 4


def rows_of(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


class Tensorboard(kill.StoppedRuns):
    def check(self, run, steps):
        rows = rows_of(run)
        self.assertEqual(list(range(1, steps + 1)), [row["step"] for row in rows])
        self.assertEqual(event_files.expected(rows), event_files.scalars(run))

    def test_has_every_number_of_every_row_and_the_config(self):
        run = self.train(config(MLP, log={"tensorboard": True}, train={"eval_every": 2}), "run")
        self.check(run, 5)
        (file,) = (run / "tensorboard").iterdir()
        self.assertIn(b"    name: run\n", file.read_bytes())

    def test_has_each_step_once_after_kills(self):
        content = config(GPT2, log={"tensorboard": True}, train={"steps": STEPS, "eval_every": 7},
                         checkpoint={"every": 3})
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

    def test_that_cannot_be_written_does_not_stop_the_run(self):
        run = self.directory / "run"
        (run / "logs").mkdir(parents=True)  # a run's, else it would be refused
        (run / "tensorboard").write_text("in the way")
        path = self.write_config(config(MLP, log={"tensorboard": True}), "run.yaml")
        done = self.tandem("train", path, "--run-dir", run)
        self.assertEqual(1, done.err.count("training goes on"), done.err)
        self.assertEqual(1, len(tandem_run.read_events(run, "sink")))
        self.assertEqual(5, len(rows_of(run)))


if __name__ == "__main__":
    tandem_run.main()
