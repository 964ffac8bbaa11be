"""Every family of models as transformers has saved it (golden/make_families.py): its own logits, and out again bit for
bit."""

import array
import json
import pathlib
import struct

import hub_test
import tiny_models
from hub_test import HubTest

FAMILIES = sorted(path for path in (pathlib.Path(__file__).resolve().parents[1] / "golden" / "families").iterdir())


def floats(content):
    values = array.array("f")
    values.frombytes(content)
    return values


def read_numpy(path):
    content = path.read_bytes()
    (size,) = struct.unpack("<H", content[8:10])
    return floats(content[10 + size:])


class Families(HubTest):
    def logits(self, directory, record, name):
        file = self.directory / f"{name}.npy"
        ids = ",".join(map(str, record["tokens"][0]))
        self.tandem("evaluate", directory, "--logits", file, "--ids", ids, "--set", "device=cpu")
        return read_numpy(file)

    def check(self, directory):
        record = json.loads((directory / "golden.json").read_text())
        golden = directory / "golden.safetensors"
        _, shape, content = tiny_models.read_safetensors(golden)["logits"]
        want = floats(content)[:shape[1] * shape[2]]
        got = self.logits(directory, record, "before")
        self.assertEqual(len(want), len(got))
        worst = max(abs(a - b) / (1e-5 + 1e-4 * abs(b)) for a, b in zip(got, want))
        self.assertLessEqual(worst, 1)

        self.tandem("import", directory, self.directory / "run")
        exported = self.export(self.directory / "run", "out")
        self.assertEqual(tiny_models.read_safetensors(directory / "model.safetensors"),
                         tiny_models.read_safetensors(exported / "model.safetensors"))
        self.assertEqual(got, self.logits(exported, record, "after"))

    def test_transformers_logits_and_bits(self):
        self.assertEqual(12, len(FAMILIES))
        for directory in FAMILIES:
            with self.subTest(directory.name):
                self.check(directory)
            for made in ("run", "out"):
                hub_test.shutil.rmtree(self.directory / made, ignore_errors=True)


if __name__ == "__main__":
    hub_test.main()
