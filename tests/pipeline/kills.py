"""A pipeline of five real steps, killed at random moments: the end is bit-equal, and no finished step runs twice.

CI kills it 3 times; `--tries 100` does so a hundred times.
"""

import argparse
import json
import random
import sys
import time

from pipeline_folder import PipelineTest, tandem_run
from tandem_run import LLAMA, config, snapshot

STEPS = {
    "prepare": {"run": "tandem prepare --out {out} {in} --threads 1", "in": ["book.txt"], "out": "data/books"},
    "train": {"run": "tandem train base.yaml --run-dir {out} --set data.train={prepare.out}", "in": ["base.yaml"], "needs": ["prepare"],
              "out": "runs/a", "retries": 2, "timeout": "2h"},
    "evaluate": {"run": "tandem evaluate {train.out} --json", "needs": ["train"], "out": "eval.json"},
    "export": {"run": "tandem export {train.out} {out}", "needs": ["train", "evaluate"], "when": "evaluate.eval_loss < 9", "out": "export/a"},
    "info": {"run": "tandem info {export.out} --json", "out": "info.json"},
}
TRIES = 3


class Kills(PipelineTest):
    def make_folder(self, name):
        place = self.directory / name
        place.mkdir()
        rng = random.Random(5)
        words = ["".join(rng.choices("abcdefgh", k=rng.randint(2, 7))) for _ in range(200)]
        (place / "book.txt").write_text("\n".join(" ".join(rng.choices(words, k=12)) for _ in range(400)))
        base = config(LLAMA, data={"tokenizer": "bytes"}, train={"steps": 24}, checkpoint={"every": 4, "keep": 2})
        (place / "base.yaml").write_text(json.dumps(base))
        (place / "pipeline.yaml").write_text(json.dumps({"steps": STEPS}))
        return place

    def finished(self, place):
        return {path.parent.name: path.read_bytes() for path in place.glob("artifacts/*/record.json")}

    def assert_same_end(self, expected, found):
        for out in ("data/books", "export/a"):
            self.assertEqual(snapshot(expected / out), snapshot(found / out))
        self.assertEqual((expected / "eval.json").read_bytes(), (found / "eval.json").read_bytes())
        told = [json.loads((place / "info.json").read_text()) for place in (expected, found)]
        self.assertEqual(*told)
        self.assert_equal_runs(expected / "runs/a", found / "runs/a")

    def test_end_as_if_nobody_had_killed_it(self):
        expected = self.make_folder("expected")
        begin = time.monotonic()
        self.tandem("pipeline", "run", "expected/pipeline.yaml")
        whole_s = time.monotonic() - begin
        self.assertEqual(5, len(self.finished(expected)))
        rng = random.Random(TRIES)
        kills = rounds = 0
        during = {}
        while kills < TRIES:
            place = self.make_folder(f"round-{rounds}")
            rounds += 1
            records = {}
            while True:
                process = self.start("pipeline", "run", f"{place.name}/pipeline.yaml")
                try:
                    process.wait(rng.uniform(0, whole_s))
                    break
                except tandem_run.subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
                    kills += 1
                now = self.finished(place)
                during[len(now)] = during.get(len(now), 0) + 1
                self.assertEqual(records, {name: now.get(name) for name in records}, "a finished step ran again")
                records = now
                if kills >= TRIES:
                    break
            self.tandem("pipeline", "run", f"{place.name}/pipeline.yaml")
            now = self.finished(place)
            self.assertEqual(5, len(now))
            self.assertEqual(records, {name: now[name] for name in records}, "a finished step ran again")
            self.assert_same_end(expected, place)
            tandem_run.shutil.rmtree(place)
            if TRIES > 10:
                print(f"{kills} of {TRIES} kills, {rounds} pipelines with the same end", file=sys.stderr, flush=True)
        print(f"{kills} kills in {rounds} pipelines of {whole_s:.1f} s, by steps that were finished then: {dict(sorted(during.items()))}",
              file=sys.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--tries", type=int, default=TRIES)
    known, rest = parser.parse_known_args()
    TRIES = known.tries
    sys.argv[1:] = rest
    tandem_run.main()
