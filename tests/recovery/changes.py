"""Going on, evaluating and sampling with another config than the checkpoint's."""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
import tandem_run
from tandem_run import BAD_DATA, GPT2, LLAMA, TandemTest, checkpoint, config, read_events


class Changes(TandemTest):
    def trained(self, model, **sections):
        content = config(model, train={"steps": 2, **sections.pop("train", {})}, checkpoint={"every": 2}, **sections)
        return self.train(content, "run"), self.directory / "run.yaml"

    def test_a_resume_with_another_model_is_refused_by_the_name_of_the_key(self):
        run, path = self.trained(LLAMA)
        for key, value, before in (("model.heads", 2, 6), ("model.rope_theta", 500000, 10000.0), ("model.norm_eps", 0.1, 1e-05),
                                   ("model.kv_heads", 1, 2), ("model.layers", 2, 3), ("train.optimizer", "sgd", "adamw")):
            sets = ("--set", f"{key}={value}", "--set", "train.steps=4")
            told = (f"error: {key}: is {value}", f"was trained with {before}", f"set {key}={before}", "step-00000002")
            self.refuse(BAD_DATA, told, "train", path, "--run-dir", run, *sets)
            self.refuse(BAD_DATA, told, "train", path, "--run-dir", self.directory / "other", "--resume-from-checkpoint",
                        checkpoint(run, 2), *sets)

    def test_a_trained_run_is_not_said_to_be_done_with_another_model(self):
        run, path = self.trained(GPT2)
        self.refuse(BAD_DATA, ["error: model.heads: is 4"], "train", path, "--run-dir", run, "--set", "model.heads=4")

    def test_every_rank_refuses(self):
        run, path = self.trained(GPT2)
        result = self.tandem("launch", "--nproc-per-node", 2, "train", path, "--run-dir", run, "--set", "train.steps=4", "--set",
                             "parallel.strategy=ddp", "--set", "train.micro_batch=3", "--set", "model.heads=4", expect=BAD_DATA)
        self.assertIn("model.heads: is 4", result.err)

    def test_the_weights_are_not_used_in_another_function(self):
        run, _ = self.trained(LLAMA)
        for command in (("evaluate",), ("sample", "--tokens", 4)):
            for key, value in (("model.heads", 2), ("model.rope_theta", 500000), ("model.norm_eps", 0.1)):
                self.refuse(BAD_DATA, [f"error: {key}: is {value}", f"leave out --set {key}"], *command, run, "--set",
                            f"{key}={value}")
            self.tandem(*command, run, "--set", "model.context=48", "--set", "train.optimizer=sgd", "--set", "precision=bf16")

    def test_what_is_free_to_change_is_listed(self):
        run, path = self.trained(GPT2)
        sets = ("--set", "train.steps=4", "--set", "train.lr=0.004", "--set", "train.clip=0.5", "--set", "precision=bf16")
        text = "changed after step 2: train.steps 2 -> 4, train.lr 0.002 -> 0.004, train.clip 1.0 -> 0.5, precision fp32 -> bf16"
        self.assertIn(text, self.tandem("train", path, "--run-dir", run, *sets).err.splitlines())
        self.assertIn(text, (run / "logs/rank-0.log").read_text())
        (event,) = read_events(run, "changed")
        self.assertEqual({"before": 0.002, "after": 0.004}, event["changes"]["train.lr"])
        self.assertEqual(4, len(event["changes"]))
        first, *rest = (run / "config.yaml").read_text().splitlines()
        self.assertEqual("# " + text, first)
        self.assertIn("  lr: 0.004", rest)

        again = self.tandem("train", path, "--run-dir", run, *sets, "--set", "train.steps=5")  # what is the same is not told
        self.assertIn("changed after step 4: train.steps 4 -> 5", again.err.splitlines())
        self.assertEqual(["# " + text, "# changed after step 4: train.steps 4 -> 5"],
                         (run / "config.yaml").read_text().splitlines()[:2])
        self.tandem("explain", run / "config.yaml")

    def test_another_context_is_told_as_such(self):
        text = self.directory / "book.txt"
        text.write_text("a song of seas and sails " * 200)
        run, path = self.trained(LLAMA, data={"train": str(text), "eval": "builtin:stories"})
        result = self.tandem("train", path, "--run-dir", run, "--set", "train.steps=4", "--set", "model.context=48")
        self.assertIn("warning: model.context was 40 and is now 48", result.err)
        self.assertNotIn("other contents", result.err)


if __name__ == "__main__":
    tandem_run.main()
