"""What is asked of a pipeline whose steps run on a cluster, whichever it is."""

import json
import pathlib
import random
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
import tandem_run
from tandem_run import LLAMA, config, snapshot

HOSTILE = "a 'b' \"c\" $(touch hurt) `touch hurt`; touch hurt\n${HOME} \\ * {x} ~ %j"


class ClusterPipeline:
    """Mixed into a test that has `place` (a folder that nodes see), `keys` (of the pipeline's file) and `run_there` (tandem where the
    cluster can be reached)."""

    def write_steps(self, steps, **keys):
        (self.place / "pipeline.yaml").write_text(json.dumps({**self.keys, **keys, "steps": steps}))

    def go(self, *arguments, **options):
        return self.run_there("pipeline", "run", self.place / "pipeline.yaml", *arguments, **options)

    def told(self):
        status = json.loads(self.run_there("pipeline", "status", self.place / "pipeline.yaml", "--json").out)
        return {step["step"]: step for step in status["steps"]}

    def check_five_steps(self, here):
        rng = random.Random(5)
        words = ["".join(rng.choices("abcdefgh", k=rng.randint(2, 7))) for _ in range(200)]
        book = "\n".join(" ".join(rng.choices(words, k=12)) for _ in range(400))
        base = config(LLAMA, data={"tokenizer": "bytes"}, train={"steps": 24}, checkpoint={"every": 4, "keep": 2})
        steps = {
            "prepare": {"run": "tandem prepare --out {out} {in} --threads 1", "in": ["book.txt"], "out": "data/books", "on": "local"},
            "train": {"run": "tandem train base.yaml --run-dir {out} --set data.train={prepare.out}", "in": ["base.yaml"], "out": "runs/a"},
            "evaluate": {"run": "tandem evaluate {train.out} --json", "out": "eval.json"},
            "export": {"run": "tandem export {train.out} {out}", "when": "evaluate.eval_loss < 9", "out": "export/a"},
            "info": {"run": "tandem info {export.out} --json", "out": "info.json"}}
        for folder in (self.place, here):
            (folder / "book.txt").write_text(book)
            (folder / "base.yaml").write_text(json.dumps(base))
        self.write_steps(steps)
        (here / "pipeline.yaml").write_text(json.dumps({"steps": steps}))
        self.go()
        self.tandem("pipeline", "run", here / "pipeline.yaml")
        for out in ("data/books", "export/a"):
            self.assertEqual(snapshot(here / out), snapshot(self.place / out))
        self.assert_equal_runs(here / "runs/a", self.place / "runs/a")
        self.assertEqual((here / "eval.json").read_bytes(), (self.place / "eval.json").read_bytes())
        told = self.told()
        self.assertNotIn("job", told["prepare"])
        self.assertEqual(self.keys["on"], told["train"]["job"]["on"])
        self.assertNotIn("started", self.go().err)

    def check_hostile(self, program):
        """`program` prints its words, each with a zero byte behind it."""
        self.write_steps({"a": {"run": [*program, "{bad}", "$(touch hurt)"], "out": "it's a.txt"}}, params={"bad": HOSTILE})
        self.go()
        self.assertEqual([HOSTILE, "$(touch hurt)"], (self.place / "it's a.txt").read_text().split("\0")[:2])
        self.assertEqual([], list(self.directory.rglob("hurt")))

    def check_killed_runner(self, steps, started, finish):
        """A runner that is killed while its job runs: the job runs on, and the next runner waits for it and starts no other."""
        self.write_steps(steps)
        process = self.start_there("pipeline", "run", self.place / "pipeline.yaml")
        self.wait_for(started, "the step to run")
        process.kill()
        process.wait()
        again = self.start_there("pipeline", "run", self.place / "pipeline.yaml")
        time.sleep(1)
        finish()
        self.assertEqual(0, again.wait(tandem_run.DEADLINE_S), again.stderr.read())
        self.assertEqual(1, self.told()["a"]["attempts"])
