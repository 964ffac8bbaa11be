"""data.documents = separate, from the data to the weights: what is kept apart, on any mesh, killed or not."""

import json
import random

import tandem_run
from tandem_run import BAD_DATA, BAD_USAGE, GPT2, LLAMA, TandemTest, config, read_metrics

WORDS = "a little red hen found some corn and said who will help me plant it not I said the duck".split()


def documents(count, seed=1):
    """Most are shorter than a sequence, so that several share one; some are longer."""
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.choice((1, 2, 3, 5, 30)))) for _ in range(count)]


class SeparateDocuments(TandemTest):
    def setUp(self):
        super().setUp()
        lines = "\n".join(json.dumps({"text": text}) for text in documents(400))
        (self.directory / "docs.jsonl").write_text(lines)
        self.tandem("prepare", "--out", "set", "docs.jsonl")

    def content(self, model=LLAMA, documents="separate", data="set", **sections):
        return config(model, data={"train": data, "eval": "set", "documents": documents},
                      train={"steps": 6, "batch": 8, "micro_batch": 2, "eval_every": 3}, **sections)

    def test_every_way_of_recomputing_gives_the_same_bits_and_joined_others(self):
        for model, precision in ((GPT2, "fp32"), (LLAMA, "bf16")):
            with self.subTest(model=model["family"]):
                name = f"{model['family']}-"
                kept = self.train(self.content(model, precision=precision), name + "kept")
                again = self.train(self.content(model, precision=precision, memory={"recompute": "full"}, threads=2),
                                   name + "again")
                self.assert_equal_runs(kept, again)
                joined = self.train(self.content(model, "joined", precision=precision), name + "joined")
                losses = [[row["loss"] for row in read_metrics(run)] for run in (kept, joined)]
                self.assertTrue(all(a != b for a, b in zip(*losses)), losses)
                rows = json.loads(self.tandem("evaluate", kept, "--samples", 6, "--json").out)
                # In 16 bits the mean is of numbers that were rounded elsewhere.
                self.assertAlmostEqual(float(read_metrics(kept)[-1]["eval_loss"]), rows["eval_loss"], places=6)

    def test_a_killed_run_goes_on_to_the_same_bits(self):
        content = self.content(checkpoint={"every": 5})
        content["train"]["steps"] = 150
        command = ("train", self.write_config(content), "--run-dir", self.directory / "killed")
        process = self.start(*command)
        self.wait_for((self.directory / "killed" / "checkpoints" / "step-00000010").exists, "a checkpoint")
        process.kill()
        process.wait()
        steps = len(read_metrics(self.directory / "killed"))
        self.assertLess(steps, 150, "it was done before the kill: nothing is tested")
        self.tandem(*command)
        self.assert_equal_runs(self.train(content, "whole"), self.directory / "killed")

    def test_ddp_and_fsdp_have_the_same_bits(self):
        runs = []
        for strategy in ("ddp", "fsdp"):
            content = self.content(parallel={"strategy": strategy, "data": 2})
            self.tandem("launch", "--nproc-per-node", 2, "train", self.write_config(content), "--run-dir",
                        self.directory / strategy)
            runs.append(self.directory / strategy)
        self.assert_equal_runs(*runs)

    def test_other_commands_know_it(self):
        path = self.write_config(self.content())
        dumped = self.tandem("plan", path, "--dump", "after:documents").out
        self.assertIn('input "segments"', dumped)
        self.assertIn('input "positions"', dumped)
        self.tandem("profile", path)
        self.tandem("bench", path, "--steps", 1, "--warmup", 0)
        run = self.train(self.content(), "run")
        self.tandem("sample", run, "--prompt", "a little", "--tokens", 5)
        self.tandem("evaluate", run, "--logits", "logits.npy", "--ids", "97,32,98")

    def test_stories_are_documents_and_mixtures_may_have_a_text_file_among_them(self):
        floors = {}
        for kind in ("joined", "separate"):
            content = config({**LLAMA, "context": 600}, data={"documents": kind}, train={"steps": 1, "batch": 1, "micro_batch": 1})
            run = self.train(content, kind)
            floors[kind] = json.loads(self.tandem("evaluate", run, "--samples", 2, "--json").out)["loss_floor"]
        self.assertLess(floors["separate"], floors["joined"])
        (self.directory / "book.txt").write_text("It was a dark night. " * 100)
        self.train(self.content(data=[{"path": "set", "weight": 1}, {"path": "book.txt", "weight": 1}]), "mixed")

    def test_what_has_no_documents_is_refused(self):
        (self.directory / "book.txt").write_text("It was a dark night. " * 100)
        path = self.write_config(self.content(data="book.txt"))
        self.refuse(BAD_USAGE, ("data.documents", "book.txt is one document", "--split-on", "joined"), "train", path,
                    "--run-dir", "run")
        self.refuse(BAD_USAGE, ("data.documents", "joined"), "plan",
                    self.directory / self.write_config(self.content(documents="apart"), "apart.yaml"))
        index = json.loads((self.directory / "set" / "index.json").read_text())
        self.assertEqual(2, index["version"])
        for split in index["splits"].values():  # as version 1 wrote it
            for shard in split:
                file = self.directory / "set" / shard["file"]
                head = bytearray(file.read_bytes())
                head[72:80] = bytes(8)
                head[8] = 1
                file.write_bytes(bytes(head[:128 + 2 * shard["tokens"]]))
                shard["documents"] = 0
        (self.directory / "set" / "index.json").write_text(json.dumps(index))
        self.refuse(BAD_DATA, ("set", "where documents begin", "prepare it again", "joined"), "train",
                    self.write_config(self.content()), "--run-dir", "run")


if __name__ == "__main__":
    tandem_run.main()
