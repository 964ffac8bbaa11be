"""Training that starts from a Hugging Face directory: every layout of ranks reads the same weights, and a run needs the
directory only for its first step."""

import pathlib
import shutil
import subprocess
import sys

import hub_test
import reference
import tandem_run
import tiny_models
from hub_test import FAMILIES, STILL, HubTest
from ranks import mesh

LAYOUTS = {
    "one": mesh(),
    "ddp-2": mesh("ddp", data=2),
    "fsdp-2": mesh("fsdp", data=2),
    "fsdp-4": mesh("fsdp", data=4),
    "zero1-2-tensor-2": mesh("zero1", data=2, tensor=2),
    "pipeline-2-fsdp-2": mesh("fsdp", data=2, pipeline=2),
}
CPU = ("--set", "device=cpu", "--set", "threads=1")


class Training(HubTest):
    def test_every_layout_begins_with_the_same_weights(self):
        for family in FAMILIES:
            for precision in ("fp32", "bf16"):
                directory, tensors = self.make(family, f"{family}-{precision}")
                for layout, parallel in LAYOUTS.items():
                    with self.subTest(family=family, precision=precision, layout=layout):
                        content = self.config(directory, precision=precision, parallel=parallel, train=STILL)
                        run = self.train(content, f"{family}-{precision}-{layout}")
                        out = self.export(run, f"out-{family}-{precision}-{layout}")
                        self.assert_same_model(directory, tensors, out)

    def test_an_import_trains_as_the_directory_does(self):
        directory, _ = self.make("llama")
        content = self.config(directory, train={"steps": 4, "lr": 0.01})
        whole = self.train(content, "whole")
        self.tandem("import", directory, self.directory / "imported")
        again = self.train(content, "imported")
        self.assert_equal_runs(whole, again)
        self.assertEqual([], tandem_run.read_events(again, "warning"))

    def test_a_run_goes_on_without_the_directory(self):
        directory, _ = self.make("qwen2")
        content = self.config(directory, train={"steps": 4, "lr": 0.01, "schedule": "constant", "warmup": 0})
        whole = self.train(content, "whole")
        run = self.train({**content, "train": {**content["train"], "steps": 2}}, "run")
        shutil.rmtree(directory)
        self.train(content, "run")
        self.assert_equal_runs(whole, run)
        self.export(run, "out")

    def test_a_run_that_goes_on_elsewhere_takes_the_files_along(self):
        directory, tensors = self.make("llama", mixed=True)
        run = self.train(self.config(directory, train=STILL), "run")
        shutil.rmtree(directory)
        self.tandem("train", run / "config.yaml",  # has every key itself
                     "--run-dir", self.directory / "other", "--set",
                    "train.steps=2", "--resume-from-checkpoint", run / "checkpoints" / "latest")
        self.assertEqual(tandem_run.snapshot(run / "hub"), tandem_run.snapshot(self.directory / "other" / "hub"))
        found = tiny_models.read_safetensors(self.export(self.directory / "other", "out"))
        self.assertEqual(tensors, found)
        # From inside its own folder a checkpoint still finds them.
        self.tandem("export", ".", self.directory / "inside", cwd=tandem_run.checkpoint(self.directory / "other", 2))
        self.assertEqual(tensors, tiny_models.read_safetensors(self.directory / "inside"))

    def test_random_weights_take_only_the_shape(self):
        directory, tensors = self.make("llama")
        content = self.config(directory, model={"init": "random"}, train=STILL)
        for file in directory.glob("*.safetensors"):
            file.unlink()
        out = self.export(self.train(content, "run"), "out")
        found = tiny_models.read_safetensors(out)
        self.assertEqual(sorted(tensors), sorted(found))
        self.assertNotEqual(tensors["model.embed_tokens.weight"][2], found["model.embed_tokens.weight"][2])
        self.assertEqual("BF16", found["model.embed_tokens.weight"][0])

    def test_plans_need_no_weights(self):
        directory, _ = self.make("gpt2")
        (directory / "model.safetensors").unlink()
        self.tandem("plan", self.write_config(self.config(directory)))

    def test_logits_are_those_of_the_family(self):
        ids = [1, 7, 2, 299, 0, 5, 7, 11]
        for family in FAMILIES:
            with self.subTest(family=family):
                directory, tensors = self.make(family)
                self.tandem("import", directory, self.directory / f"run-{family}")
                expected = reference.logits(self.read_json(directory / "config.json"), tensors, ids)
                for source in (directory, self.directory / f"run-{family}"):
                    file = self.directory / "logits.npy"
                    self.tandem("evaluate", source, "--logits", file, "--ids", ",".join(map(str, ids)), *CPU)
                    found = reference.read_npy(file)
                    self.assertEqual((len(ids), tiny_models.VOCAB), (len(found), len(found[0])))
                    for row, wanted in zip(found, expected):
                        for a, b in zip(row, wanted):
                            self.assertLess(abs(a - b), 1e-5 + 1e-4 * abs(b))

    def test_loading_takes_no_memory_beside_the_plan(self):
        directory = self.directory / "20m"
        script = pathlib.Path(__file__).resolve().parents[2] / "bench" / "make_directory.py"
        subprocess.run([sys.executable, script, directory, "--shape", "20m"], check=True, capture_output=True)
        file = (directory / "model.safetensors").stat().st_size
        for layout in ("one", "fsdp-2"):
            with self.subTest(layout):
                content = self.config(directory, precision="bf16", parallel=LAYOUTS[layout], model={"context": 32},
                                      train={"batch": 2, "micro_batch": 1})
                idle = max(row["idle_rss_bytes"] for row in self.bench(content))
                run = self.train(content, layout)
                summary = tandem_run.read_summary(run)
                planned, peak = sum(summary["planned_bytes"].values()), summary["peak_rss_bytes"]
                self.assertGreater(file, 0.05 * planned, "too little to tell")
                away = (peak - idle - planned) / (planned + idle)
                self.assertLessEqual(away, 0.02, f"planned {planned}, idle {idle}, peak {peak}: {away:+.2%}")

    def test_more_tokens_than_positions_are_told(self):
        directory, _ = self.make("llama")
        self.tandem("import", directory, self.directory / "run")
        for source in (directory, self.directory / "run"):
            for count in (40, 41):
                ids = ",".join(["1"] * count)
                said = self.tandem("evaluate", source, "--logits", "x.npy", "--ids", ids, "--set", "device=cpu").err
                note = "note: --ids: has 41 tokens, but the model was made for 40 positions\n"
                self.assertEqual(note if count == 41 else "", said)

    def test_info_of_a_run_that_no_family_holds(self):
        run = self.train({**self.config("x"), "model": {"family": "llama", "layers": 1, "width": 16, "heads": 2, "rope_dims": 4,
                                                        "context": 8, "qk_norm": "head"}}, "odd")
        self.refuse(tandem_run.BAD_USAGE, ("model.rope_dims",), "export", run, self.directory / "out")
        info = hub_test.json.loads(self.tandem("info", run, "--json").out)
        self.assertEqual(("run", "llama", 5), (info["kind"], info["family"], len(info["memory"])))

    def test_info_knows_directories_runs_and_files(self):
        directory, tensors = self.make("qwen2")
        self.tandem("import", directory, self.directory / "run")
        for path in (directory, self.directory / "run", directory / "model.safetensors"):
            info = hub_test.json.loads(self.tandem("info", path, "--json").out)
            counts = [len(content) // 4 for _, _, content in tensors.values()]
            self.assertEqual(sum(counts), info["parameters"], path)
            self.assertIn(str(path), self.tandem("info", path).out)
        info = hub_test.json.loads(self.tandem("info", directory, "--json").out)
        self.assertEqual(("qwen2", "float32", "tokenizer.json"), (info["family"], info["dtype"], info["tokenizer"]))
        needs = {row["strategy"]: row["bytes"] for row in info["memory"]}
        self.assertLess(needs["fsdp"], needs["zero1"])


if __name__ == "__main__":
    hub_test.main()
