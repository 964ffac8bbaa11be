"""log.wandb: online, against a server that answers as W&B's does: each step once whatever is killed, nothing waits for it, the key stays secret."""

import json
import os
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "recovery"))

import kill  # noqa: E402
import tandem_run  # noqa: E402
from tandem_run import BAD_USAGE, GPT2, MLP, config  # noqa: E402
from wandb_server import Wandb  # noqa: E402

KILLS = int(os.environ.get("TANDEM_SINK_KILLS", "3"))
STEPS = max(30, 5 * KILLS)


def rows_of(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


class Online(kill.StoppedRuns):
    def setUp(self):
        super().setUp()
        self.server = Wandb(self)

    def only_run(self):
        ((place, run),) = self.server.runs.items()
        return place, run

    def check(self, directory, steps):
        """The server has the rows of metrics.jsonl, line by line."""
        place, run = self.only_run()
        self.assertEqual([], self.server.refused)
        self.assertEqual(list(range(len(run.history))), sorted(run.history))
        found = [json.loads(run.history[line]) for line in range(len(run.history))]
        expected = [{"_step" if key == "step" else key: value for key, value in row.items() if key != "time"} for row in rows_of(directory)]
        for row in found:
            self.assertGreaterEqual(row.pop("_runtime"), 0)
            self.assertGreater(row.pop("_timestamp"), 1.7e9)
        self.assertEqual(list(range(1, steps + 1)), [row["_step"] for row in found])
        self.assertEqual(expected, found)
        self.assertEqual(steps, json.loads(run.summary)["_step"])
        self.assertEqual((True, 0), (run.complete, run.exit_code))
        return place, run

    def test_a_run_is_there_with_its_config_and_its_end(self):
        run = self.directory / "told"
        path = self.write_config(config(MLP, log={"wandb": "online", "webhook": "http://127.0.0.1:9/hook-secret"}, train={"steps": 6, "eval_every": 2}))
        self.tandem("train", path, "--run-dir", run, env={**self.server.env, "WANDB_PROJECT": "of mine", "WANDB_ENTITY": "team/a"})
        place, seen = self.check(run, 6)
        self.assertEqual(("team/a", "of mine"), place[:2])
        self.assertEqual("told", seen.display_name)
        self.assertEqual(6, seen.config["train"]["value"]["steps"])
        self.assertNotIn("hook-secret", json.dumps(seen.config))
        (folder,) = (run / "wandb").iterdir()
        self.assertTrue(folder.name.startswith("run-") and folder.name.endswith("-" + place[2]), folder)
        self.assertEqual([], tandem_run.read_events(run, "sink"))

    def test_each_step_is_there_once_after_kills(self):
        self.steps = STEPS
        content = config(GPT2, log={"wandb": "online"}, train={"steps": STEPS, "eval_every": 7}, checkpoint={"every": 3})
        rng = random.Random(11)
        run = self.directory / "killed"
        hit = 0
        for _ in range(KILLS):
            process = self.start(*self.train_command(content, "killed"), env=self.server.env)
            before = kill.num_lines(run / "metrics.jsonl")
            more = rng.randrange(1, 8)
            # Half of them when the server has rows that will be taken again.
            server_has = rng.random() < 0.5
            alive = self.wait_until(process, lambda: kill.num_lines(run / "metrics.jsonl") >= min(before + more, STEPS), "steps")
            if alive and server_has:
                written = self.only_run()[1].written if self.server.runs else 0
                alive = self.wait_until(process, lambda: self.server.runs and self.only_run()[1].written > written, "rows at the server")
            hit += alive
            process.kill()
            process.wait()
        self.tandem(*self.train_command(content, "killed"), env=self.server.env)
        _, seen = self.check(run, STEPS)
        print(f"{hit} of {KILLS} kills met the run; the server was given {seen.written} lines for {STEPS} steps")
        self.assertGreater(hit, KILLS // 2)
        if KILLS >= 10:
            self.assertGreater(seen.written, STEPS, "no step was taken again")

    def test_a_server_that_is_away_is_told_once_and_the_next_start_catches_up(self):
        self.server.fail = 503
        content = config(MLP, log={"wandb": "online"}, train={"steps": 5}, checkpoint={"every": 5})
        path = self.write_config(content)
        run = self.directory / "away"
        done = self.tandem("train", path, "--run-dir", run, env=self.server.env)
        self.assertEqual(1, done.err.count("training goes on"), done.err)
        self.assertIn("wandb sync", done.err)
        self.assertEqual(5, len(rows_of(run)))
        self.server.fail = None
        self.tandem("train", path, "--run-dir", run, "--set", "train.steps=8", env=self.server.env)
        self.check(run, 8)

    def test_no_server_at_all_and_a_refused_key_do_not_stop_a_run(self):
        path = self.write_config(config(MLP, log={"wandb": "online"}))
        for name, env, words in (("none", {**self.server.env, "WANDB_BASE_URL": f"http://127.0.0.1:{tandem_run.free_port()}"}, "is not told"),
                                 ("key", {**self.server.env, "WANDB_API_KEY": "another-one"}, "does not accept the key")):
            done = self.tandem("train", path, "--run-dir", self.directory / name, env=env)
            self.assertIn(words, done.err)
            self.assertEqual(5, len(rows_of(self.directory / name)))

    def test_the_key_is_in_no_file_no_output_and_no_command_line(self):
        run = self.directory / "secret"
        content = config(MLP, log={"wandb": "online"}, train={"steps": 6, "batch": 8, "micro_batch": 1}, parallel={"strategy": "ddp", "data": 2})
        path = self.write_config(content)
        process = self.start("launch", "--nproc-per-node", "2", "train", path, "--run-dir", run, env=self.server.env)
        lines = []
        while process.poll() is None:
            for entry in pathlib.Path("/proc").iterdir():
                try:
                    lines += [(entry / "cmdline").read_bytes()] if entry.name.isdigit() else []
                except (OSError, ProcessLookupError):
                    pass
        output = process.stderr.read()
        self.assertEqual(0, process.returncode, output)
        key = Wandb.KEY.encode()
        self.assertEqual([], [line for line in lines if key in line])
        self.assertNotIn(key, output)
        files = [file for file in run.rglob("*") if file.is_file()]
        self.assertGreater(len(files), 5)
        self.assertEqual([], [file for file in files if key in file.read_bytes()])
        self.check(run, 6)

    def test_a_run_without_a_key_is_refused_before_it_begins(self):
        path = self.write_config(config(MLP, log={"wandb": "online"}))
        for env, words in (({"WANDB_API_KEY": ""}, ["WANDB_API_KEY", "offline"]), ({"WANDB_API_KEY": "a b"}, ["WANDB_API_KEY"]),
                           ({**self.server.env, "WANDB_BASE_URL": "wandb.example.org"}, ["WANDB_BASE_URL", "https://"])):
            done = self.tandem("train", path, "--run-dir", self.directory / "none", expect=BAD_USAGE, env=env)
            for word in words:
                self.assertIn(word, done.err)
            self.assertEqual(1, len(done.err.strip().splitlines()), done.err)


if __name__ == "__main__":
    tandem_run.main()
