"""What somebody at a terminal sees, and what there is to read beside it: lines, warnings, logs of ranks, events."""

import json
import os
import re

import tandem_run
from tandem_run import GPT2, LLAMA, REPOSITORY, TandemTest, config


class Terminal(TandemTest):
    def test_the_summary_begins_on_a_line_of_its_own(self):
        path = self.write_config(config(GPT2, train={"steps": 3}))
        seen = self.on_a_terminal("train", path)
        lines = seen.replace("\x1b[K", "").split("\n")
        (row,) = [number for number, line in enumerate(lines) if re.search(r"\bsteps +3 in", line)]
        self.assertRegex(lines[row], r"^ *steps +3 in")
        self.assertIn("step 3/3", lines[row - 1])
        self.assertRegex(seen, r"run directory +runs/run\r\n")

    def test_more_threads_than_cores_are_told(self):
        path = self.write_config(config(GPT2, train={"steps": 1}))
        cores = os.cpu_count()
        told = self.tandem("train", path, "--set", f"threads={cores + 1}").err
        self.assertIn(f"warning: threads is {cores + 1}, but this machine has {cores} core", told)
        self.assertNotIn("warning", self.tandem("train", path, "--run-dir", "other", "--set", f"threads={cores}").err)

    def test_a_loss_that_is_no_number_has_no_sign(self):
        path = self.write_config(config(GPT2, train={"steps": 100, "lr": 1e30, "clip": 0, "warmup": 0, "eval_every": 3}))
        result = self.tandem("train", path, expect=tandem_run.FAILED)
        self.assertIn("nan", result.err)
        for text in (result.err, *(file.read_text() for file in (self.directory / "runs/run").rglob("*") if file.is_file())):
            self.assertNotIn("-nan", text)


class Ranks(TandemTest):
    def test_each_rank_keeps_its_times_and_memory_and_the_summary_its_axes(self):
        content = config(LLAMA, checkpoint={"every": 2}, parallel={"tensor": 2})
        path = self.write_config(content)
        launched = ("launch", "--nproc-per-node", 2, "train", path, "--run-dir", "run", "--set")
        out = self.tandem(*launched, "train.steps=3").out
        self.assertRegex(out, r"setup +fp32, tensor 2, world size 2")
        self.assertEqual({"data": 1, "tensor": 2, "pipeline": 1}, tandem_run.read_summary(self.directory / "run")["mesh"])
        self.tandem(*launched, "train.steps=5")
        for rank in range(2):
            rows = [json.loads(line) for line in (self.directory / f"run/logs/rank-{rank}.jsonl").read_text().splitlines()]
            self.assertEqual([1, 2, 3, 4, 5], [row["step"] for row in rows])
            for row in rows:
                self.assertEqual({"step", "step_ms", "data_wait_ms", "comm_wait_ms", "rss_bytes", "device_bytes", "node", "pid"}, set(row))
                self.assertLess(0, row["step_ms"])
                self.assertLess(0, row["rss_bytes"])

    def test_one_rank_has_its_times_in_the_metrics_only(self):
        run = self.train(config(GPT2, train={"steps": 1}), "run")
        self.assertEqual(["rank-0.log"], [file.name for file in (run / "logs").iterdir()])


class Events(TandemTest):
    def test_every_event_that_the_code_writes_is_documented_and_no_other(self):
        written = set()
        for source in (REPOSITORY / "tandem").rglob("*.cpp"):
            if not source.name.endswith("_test.cpp"):
                written |= set(re.findall(r'(?:journal_?|events_)(?:\.|->)(?:event|write)\(\s*"(\w+)"', source.read_text()))
        written |= set(re.findall(r'\bwrite\("(\w+)"', (REPOSITORY / "tandem/metrics/event_log.cpp").read_text()))
        written |= set(re.findall(r'\bevent\("(\w+)"', (REPOSITORY / "tandem/train/journal.cpp").read_text()))
        written |= set(re.findall(r'"type", "(\w+)"', (REPOSITORY / "tandem/launch/places/hang_file.cpp").read_text()))
        page = (REPOSITORY / "docs/interface.md").read_text()
        table = page[page.index("### Events"):]
        documented = set(re.findall(r"^\| `(\w+)` \|", table[:table.find("\n## ")], re.M))
        self.assertLess(8, len(written))
        self.assertEqual(written, documented)


if __name__ == "__main__":
    tandem_run.main()
