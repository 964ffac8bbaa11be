"""llama.cpp opens our GGUF files, and writes the tokens that we would.

It comes from npm (node-llama-cpp), into the folder --modules, at the first run; without npm the suite is skipped.
"""

import json
import pathlib
import shutil
import subprocess
import sys

import gguf
import hub_test
import reference
from hub_test import FAMILIES

PACKAGE = "node-llama-cpp@3.22"
IDS, COUNT, TEXT = [1, 7, 2, 299, 5], 20, "the inner"
MODULES = None


def fetch(modules):
    """None where it is there, else why not."""
    if not shutil.which("npm") or not shutil.which("node"):
        return "llama.cpp comes from npm, which is not installed"
    if (modules / "node_modules" / "node-llama-cpp").is_dir():
        return None
    modules.mkdir(parents=True, exist_ok=True)
    (modules / "package.json").write_text("{}")
    try:
        done = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(modules), PACKAGE],
                              capture_output=True, text=True, timeout=400)
    except subprocess.TimeoutExpired:
        shutil.rmtree(modules)
        return "npm install took longer than 400 s"
    return None if done.returncode == 0 else f"npm install failed: {done.stderr.strip().splitlines()[-1:]}"


class LlamaCpp(gguf.GgufTest):
    def setUp(self):
        super().setUp()
        if reason := fetch(MODULES):
            self.skipTest(reason)

    def likeliest(self, directory, ids):
        """The token that the program expects after each of these."""
        file = self.directory / "logits.npy"
        self.tandem("evaluate", directory, "--logits", file, "--ids", ",".join(map(str, ids)), "--set", "device=cpu",
                    "--set", "threads=1")
        return [max(range(len(row)), key=row.__getitem__) for row in reference.read_npy(file)]

    def test_it_writes_the_same_tokens(self):
        script = pathlib.Path(__file__).resolve().parent / "greedy.mjs"
        for family in FAMILIES:
            with self.subTest(family=family):
                directory, _, run = self.imported(family)
                file = self.directory / f"{family}.gguf"
                self.tandem("export", run, file, "--format", "gguf", "--quant", "f16")
                done = subprocess.run(["node", script, MODULES, file, ",".join(map(str, IDS)), str(COUNT), TEXT],
                                      capture_output=True, text=True, timeout=200)
                self.assertEqual(0, done.returncode, done.stderr)
                found = json.loads(done.stdout.splitlines()[-1])
                written = found["written"]
                self.assertEqual(COUNT, len(written))
                ours = self.likeliest(directory, IDS + written[:-1])  # what comes later does not change it
                self.assertEqual(ours[len(IDS) - 1:], written)
                self.assertEqual([256, 68, 220, 258, 77, 259], found["tokens"])  # th e _ in n er


if __name__ == "__main__":
    place = sys.argv.index("--modules")
    MODULES = pathlib.Path(sys.argv[place + 1]).resolve()
    del sys.argv[place:place + 2]
    hub_test.main()
