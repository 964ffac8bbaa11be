"""Directories that are wrong are refused with one line and the promised exit code, and nothing is made of them."""

import json

import hub_test
import tiny_models
from hub_test import HubTest
from tandem_run import BAD_DATA, BAD_USAGE


class BadDirectory(HubTest):
    def check(self, directory, code, *parts):
        """Training, import, and what only looks."""
        config = self.write_config(self.config(directory))
        self.refuse(code, parts, "train", config, "--run-dir", self.directory / "run")
        self.refuse(code, parts, "import", directory, self.directory / "run")
        self.refuse(code, parts, "info", directory)

    def change(self, directory, **keys):
        path = directory / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **keys}))

    def test_configs_that_cannot_be_built(self):
        for name, keys in {"model_type": {"model_type": "mamba"}, "hidden_act": {"hidden_act": "relu"},
                           "rope_type": {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}},
                           "quantization_config": {"quantization_config": {"bits": 4}},
                           "num_experts": {"num_experts": 4}, "pretraining_tp": {"pretraining_tp": 2}}.items():
            with self.subTest(name):
                directory, _ = self.make("llama", name)
                self.change(directory, **keys)
                self.check(directory, BAD_USAGE, "config.json", name)

    def test_configs_that_are_no_configs(self):
        directory, _ = self.make("llama")
        for text in ("", "[]", "{", '{"model_type": "llama", "model_type": "gpt2"}', "{" * 100):
            (directory / "config.json").write_text(text)
            self.check(directory, BAD_DATA, "config.json")
        (directory / "config.json").unlink()
        self.refuse(BAD_USAGE, ("holds no config.json",), "import", directory, self.directory / "run")

    def test_weights_that_do_not_fit_the_config(self):
        directory, tensors = self.make("llama")
        name = "model.layers.1.mlp.up_proj.weight"
        cases = {"missing": {key: value for key, value in tensors.items() if key != name},
                 "extra": {**tensors, "model.layers.9.mlp.up_proj.weight": tensors[name]},
                 "shape": {**tensors, name: ("BF16", [tiny_models.HIDDEN, tiny_models.FFN], tensors[name][2])},
                 "type": {**tensors, name: ("I16", tensors[name][1], tensors[name][2])}}
        for case, changed in cases.items():
            with self.subTest(case):
                (directory / "model.safetensors").write_bytes(tiny_models.safetensors(changed))
                self.check(directory, BAD_DATA, "mlp.up_proj.weight")

    def test_files_that_are_damaged(self):
        directory, _ = self.make("llama")
        file = directory / "model.safetensors"
        good = file.read_bytes()
        for content in (good[:-1], good + b"x", good[:5], b"", b"\xff" * 8 + good[8:], good[:8] + b"[" + good[9:]):
            file.write_bytes(content)
            self.check(directory, BAD_DATA, "model.safetensors")

    def test_shards_that_are_missing_and_an_index_that_lies(self):
        directory, _ = self.make("llama", shards=3)
        index = directory / "model.safetensors.index.json"
        good = json.loads(index.read_text())
        for name, file in (("model.norm.weight", "model-00009-of-00003.safetensors"),
                           ("model.norm.weight", "model-00001-of-00003.safetensors"),
                           ("model.normal.weight", "model-00002-of-00003.safetensors"),
                           ("model.norm.weight", "../llama/model-00001-of-00003.safetensors")):
            lying = {**good, "weight_map": {**good["weight_map"], name: file}}
            if lying != good:
                index.write_text(json.dumps(lying))
                self.check(directory, BAD_DATA, "safetensors")
        index.write_text(json.dumps(good))
        (directory / "model-00002-of-00003.safetensors").unlink()
        self.check(directory, BAD_DATA, "model-00002-of-00003.safetensors", "not there")

    def test_tied_heads_that_differ(self):
        directory, tensors = self.make("qwen2")
        embed = tensors["model.embed_tokens.weight"]
        for content, works in ((embed[2], True), (embed[2][4:] + b"\0\0\0\0", False)):
            tensors["lm_head.weight"] = (embed[0], embed[1], content)
            (directory / "model.safetensors").write_bytes(tiny_models.safetensors(tensors))
            if works:
                self.tandem("info", directory)
            else:
                self.check(directory, BAD_DATA, "lm_head.weight")

    def test_keys_that_contradict_the_directory(self):
        directory, _ = self.make("llama")
        path = self.write_config(self.config(directory, model={"width": 64}))
        self.refuse(BAD_USAGE, ("model.width", "config.json has 32"), "train", path)
        gpt2, _ = self.make("gpt2")
        path = self.write_config(self.config(gpt2, model={"context": 41}))
        self.refuse(BAD_USAGE, ("model.context", "40 positions"), "train", path)
        path = self.write_config(self.config(self.directory / "nowhere"))
        self.refuse(BAD_USAGE, ("model.from", "no such directory"), "train", path)

    def test_bytes_are_no_tokens_of_a_small_vocabulary(self):
        directory, tensors = self.make("llama")
        for name in ("model.embed_tokens.weight", "lm_head.weight"):
            dtype, shape, content = tensors[name]
            tensors[name] = (dtype, [99, shape[1]], content[:99 * 2 * shape[1]])
        (directory / "model.safetensors").write_bytes(tiny_models.safetensors(tensors))
        self.change(directory, vocab_size=99)
        path = self.write_config(self.config(directory))
        self.refuse(BAD_USAGE, ("data.tokenizer", "99"), "train", path, "--run-dir", self.directory / "run")
        self.tandem("import", directory, self.directory / "run")  # which reads no text
        self.tandem("evaluate", self.directory / "run", "--logits", self.directory / "x.npy", "--ids", "1,98")

    def test_exports_that_cannot_be(self):
        directory, _ = self.make("llama")
        run = self.directory / "run"
        self.tandem("import", directory, run)
        self.refuse(BAD_USAGE, ("not empty",), "export", run, directory)
        self.refuse(BAD_USAGE, ("--dtype",), "export", run, self.directory / "out", "--dtype", "int8")
        self.refuse(BAD_USAGE, ("--max-shard-size",), "export", run, self.directory / "out", "--max-shard-size", "big")
        self.refuse(BAD_DATA, ("nowhere",), "export", self.directory / "nowhere", self.directory / "out")
        self.refuse(BAD_USAGE, ("holds a run already",), "import", directory, run)
        self.refuse(BAD_USAGE, ("--ids", "300"), "evaluate", run, "--logits", "x.npy", "--ids", "1,300")


if __name__ == "__main__":
    hub_test.main()
