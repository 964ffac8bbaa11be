"""What the tests of Hugging Face directories share."""

import json
import pathlib
import shutil
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / folder) for folder in ("system", "dist")]

import ranks
import tandem_run
import tiny_models

FAMILIES = ("gpt2", "llama", "qwen2")
KEPT = ("generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
STILL = {"lr": 0, "weight_decay": 0}  # a step that moves nothing


class HubTest(ranks.RanksTest):
    def make(self, family, name=None, **options):
        """A directory, and its tensors."""
        path = self.directory / (name or family)
        return path, tiny_models.make(family, path, **options)

    def config(self, directory, model=None, **sections):
        """On the CPU, on one thread, a few quick steps."""
        content = ranks.config({"family": "gpt2"}, **sections)
        content["model"] = {"from": str(directory), **(model or {})}
        content["train"] = {"steps": 1, "batch": 4, "micro_batch": 1, "eval_every": 0, **sections.get("train", {})}
        content["checkpoint"] = {"every": 1}
        return content

    def export(self, source, name, *flags):
        self.tandem("export", source, self.directory / name, *flags)
        return self.directory / name

    def assert_same_model(self, directory, tensors, exported):
        """Tensor for tensor the same bits, and the other files byte for byte."""
        found = tiny_models.read_safetensors(exported)
        self.assertEqual(sorted(tensors), sorted(found))
        for name, (dtype, shape, content) in tensors.items():
            self.assertEqual((dtype, list(shape)), found[name][:2], name)
            self.assertTrue(content == found[name][2], f"{name} has other bits")
        for name in KEPT:
            self.assertEqual((directory / name).read_bytes(), (exported / name).read_bytes(), name)

    def read_json(self, path):
        return json.loads(path.read_text())


main = ranks.main
