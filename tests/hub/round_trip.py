"""What is imported comes out again bit for bit, and what comes out goes in."""

import hub_test
import tandem_run
import tiny_models
from hub_test import FAMILIES, HubTest


class RoundTrip(HubTest):
    def test_an_import_comes_out_as_it_went_in(self):
        for family in FAMILIES:
            for name, options in {"plain": {}, "shards": {"shards": 3}, "fp16": {"dtype": "F16"},
                                  "mixed": {"dtype": "BF16", "mixed": True}}.items():
                with self.subTest(family=family, case=name):
                    directory, tensors = self.make(family, f"{family}-{name}", **options)
                    run = self.directory / f"run-{family}-{name}"
                    self.tandem("import", directory, run)
                    self.assert_same_model(directory, tensors, self.export(run, f"out-{family}-{name}"))

    def test_shards_are_as_small_as_asked_for(self):
        directory, tensors = self.make("llama")
        self.tandem("import", directory, self.directory / "run")
        out = self.export(self.directory / "run", "out", "--max-shard-size", "20kB")
        files = sorted(path.name for path in out.glob("*.safetensors"))
        self.assertGreater(len(files), 3)
        self.assertEqual(f"model-00001-of-{len(files):05}.safetensors", files[0])
        index = self.read_json(out / "model.safetensors.index.json")
        self.assertEqual(set(files), set(index["weight_map"].values()))
        self.assertEqual(sum(len(content) for _, _, content in tensors.values()), index["metadata"]["total_size"])
        self.assert_same_model(directory, tensors, out)

    def test_another_type_is_that_of_all_tensors_and_of_the_config(self):
        directory, tensors = self.make("llama")
        self.tandem("import", directory, self.directory / "run")
        out = self.export(self.directory / "run", "out", "--dtype", "fp32")
        found = tiny_models.read_safetensors(out)
        for name, (_, _, content) in tensors.items():
            wide = b"".join(b"\0\0" + content[i:i + 2] for i in range(0, len(content), 2))
            self.assertEqual(("F32", True), (found[name][0], wide == found[name][2]), name)
        config = self.read_json(out / "config.json")
        self.assertEqual(("float32", "float32"), (config["torch_dtype"], config["dtype"]))

    def test_the_config_has_the_keys_of_both_versions(self):
        for family in ("llama", "qwen2"):
            directory, _ = self.make(family)
            self.tandem("import", directory, self.directory / f"run-{family}")
            before = self.read_json(directory / "config.json")
            after = self.read_json(self.export(self.directory / f"run-{family}", f"out-{family}") / "config.json")
            self.assertLessEqual(before.items(), after.items())
            self.assertEqual(after["rope_theta"], after["rope_parameters"]["rope_theta"])
            self.assertEqual(after["torch_dtype"], after["dtype"])

    def test_a_run_of_our_own_goes_out_and_in(self):
        for model, model_type in ((tandem_run.GPT2, "gpt2"), (tandem_run.LLAMA, "llama"),
                                  ({**tandem_run.LLAMA, "qkv_bias": True, "tied": True}, "qwen2")):
            with self.subTest(model_type=model_type):
                run = self.train(hub_test.ranks.config(model), f"own-{model_type}")
                out = self.export(run, f"own-out-{model_type}")
                self.assertEqual(model_type, self.read_json(out / "config.json")["model_type"])
                self.tandem("import", out, self.directory / f"again-{model_type}")
                again = self.export(self.directory / f"again-{model_type}", f"again-out-{model_type}")
                self.assertEqual(tiny_models.read_safetensors(out), tiny_models.read_safetensors(again))
                ids = ("--ids", "1,2,3,4,5", "--set", "device=cpu", "--set", "threads=1")
                for number, source in enumerate((run, out)):
                    self.tandem("evaluate", source, "--logits", self.directory / f"{number}.npy", *ids)
                self.assertEqual(*((self.directory / f"{number}.npy").read_bytes() for number in (0, 1)))

    def test_a_shorter_context_keeps_its_positions(self):
        directory, tensors = self.make("gpt2")
        self.tandem("import", directory, self.directory / "run", "--set", "model.context=16")
        out = self.export(self.directory / "run", "out")
        found = tiny_models.read_safetensors(out)["transformer.wpe.weight"]
        self.assertEqual([16, tiny_models.HIDDEN], found[1])
        self.assertEqual(tensors["transformer.wpe.weight"][2][:len(found[2])], found[2])
        self.assertEqual(16, self.read_json(out / "config.json")["n_positions"])

    def test_a_kill_during_an_export_leaves_nothing_half_written(self):
        directory, tensors = self.make("llama", shards=2)
        run = self.directory / "run"
        self.tandem("import", directory, run)
        out = self.directory / "exports" / "out"
        seen = set()
        for attempt in range(12):
            process = self.start("export", run, out, "--max-shard-size", "2kB")
            if attempt % 3:  # as soon as there is something; else at any moment
                self.wait_for(lambda: process.poll() is not None or any(out.parent.glob("out*")), "a draft")
            process.kill()
            process.wait()
            seen.add(out.exists())
            if out.exists():
                self.assert_same_model(directory, tensors, out)
                hub_test.shutil.rmtree(out)
        self.assertIn(False, seen)
        self.export(run, out.relative_to(self.directory), "--max-shard-size", "2kB")
        self.assertEqual(["out"], [path.name for path in out.parent.iterdir()])
        self.assert_same_model(directory, tensors, out)


if __name__ == "__main__":
    hub_test.main()
