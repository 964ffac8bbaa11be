"""llama.cpp opens our GGUF files, writes the 64 tokens that we would, and is as sure of the next one as we are.

It comes from npm (node-llama-cpp), into the folder --modules, at the first run; without npm the suite is skipped.
"""

import json
import math
import pathlib
import shutil
import subprocess
import sys

import gguf
import hub_test
import reference

PACKAGE = "node-llama-cpp@3.22"
IDS, COUNT, TEXT = [1, 7, 2, 299, 5], 64, "the inner"
MODULES = None

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
LINEAR = {"rope_type": "linear", "factor": 4.0}
# Name: family, seed of its weights, and keys of its config.json.
CASES = {
    "gpt2": ("gpt2", 9, {}),
    "llama": ("llama", 6, {}),
    "llama-3": ("llama", 1, {"rope_scaling": LLAMA3}),
    "llama-3-tied": ("llama", 6, {"rope_scaling": LLAMA3, "tie_word_embeddings": True, "head_dim": 16}),
    "llama-linear-biases": ("llama", 10, {"rope_scaling": LINEAR, "attention_bias": True, "mlp_bias": True}),
    "qwen2": ("qwen2", 11, {}),
    "qwen2-yarn": ("qwen2", 8, {"rope_parameters": {**YARN, "rope_theta": 10000.0}, "tie_word_embeddings": False}),
    "qwen3": ("qwen3", 8, {}),
    "qwen3-untied": ("qwen3", 7, {"tie_word_embeddings": False}),
    "gemma2": ("gemma2", 10, {}),
    "gemma3": ("gemma3_text", 8, {}),
}
DEEP = ("gemma2", 1, {"num_hidden_layers": 46, "query_pre_attn_scalar": 8})
QUANTIZED = ("gpt2", "llama-3-tied", "qwen3", "gemma2", "gemma3")
# llama.cpp rounds what meets an f16 weight to f16 too, which moves these models' logits by up to 0.006. The seeds are ones
# whose two likeliest tokens are never nearer than this, so that no test is about luck.
CLEAR = 0.015


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


def softmax(row):
    top = max(row)
    weights = [math.exp(value - top) for value in row]
    return [weight / sum(weights) for weight in weights]


class LlamaCpp(gguf.GgufTest):
    def setUp(self):
        super().setUp()
        if reason := fetch(MODULES):
            self.skipTest(reason)

    def model(self, name):
        """A directory and its run. Weights of 16 bits, so that an f16 file has the same numbers."""
        family, seed, config = CASES.get(name, DEEP)
        positions = {"n_positions": 96, "n_ctx": 96} if family == "gpt2" else {"max_position_embeddings": 96}
        tokenizer = gguf.fallback_json() if "gemma" in family else gguf.tokenizer_json()
        directory, _, run = self.imported(family, name=name, dtype="F16", config={**positions, **config}, spread=0.2, seed=seed,
                                          tokenizer=tokenizer)
        return directory, run

    def exported(self, run, quant):
        file = self.directory / f"{run.name}-{quant}.gguf"
        self.tandem("export", run, file, "--format", "gguf", "--quant", quant)
        return file

    def llama_cpp(self, files, count):
        """What it makes of each of them."""
        script = pathlib.Path(__file__).resolve().parent / "greedy.mjs"
        done = subprocess.run(["node", script, MODULES, ",".join(map(str, IDS)), TEXT, *(f"{file}:{count}" for file in files)],
                              capture_output=True, text=True, timeout=400)
        self.assertEqual(0, done.returncode, done.stderr)
        found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        self.assertEqual(len(files), len(found), done.stdout)
        for file, answer in zip(files, found):
            self.assertNotIn("error", answer, f"{file.name}: {done.stderr[-2000:]}")
            self.assertEqual(count, len(answer["written"]))
        return found

    def logits(self, directory, ids):
        file = self.directory / "logits.npy"
        self.tandem("evaluate", directory, "--logits", file, "--ids", ",".join(map(str, ids)), "--set", "device=cpu",
                    "--set", "threads=1")
        return reference.read_npy(file)

    def check(self, name, directory, found):
        written = found["written"]
        rows = self.logits(directory, IDS + written)  # what comes later does not change it
        asked = rows[len(IDS) - 1:-1]
        gap = min(top - second for second, top in (sorted(row)[-2:] for row in asked))
        self.assertGreater(gap, CLEAR, "two tokens are nearly as likely: take another seed")
        self.assertEqual([max(range(len(row)), key=row.__getitem__) for row in asked], written)
        self.assertGreater(len(set(written)), 4, "a model that only repeats itself shows little")
        wanted = softmax(rows[-1])
        self.assertEqual(len(wanted), len(found["likely"]))
        for token, likely in found["likely"]:
            self.assertAlmostEqual(wanted[token], likely, delta=0.01 * max(wanted), msg=f"{name}, token {token}")
        words = json.loads(self.tandem("tokenize", directory, TEXT, "--json").out)["ids"]
        self.assertEqual(words, found["tokens"])

    def test_it_writes_the_same_tokens(self):
        models = {name: self.model(name) for name in CASES}
        answers = self.llama_cpp([self.exported(run, "f16") for _, run in models.values()], COUNT)
        for (name, (directory, _)), found in zip(models.items(), answers):
            with self.subTest(name):
                self.check(name, directory, found)

    def moved(self, directory, found):
        """How much of 1 is elsewhere in the probabilities of what comes next."""
        wanted = softmax(self.logits(directory, IDS + found["written"])[-1])
        return sum(abs(wanted[token] - likely) for token, likely in found["likely"]) / 2

    def test_it_scales_scores_by_depth_as_we_do(self):
        """Of a gemma2 of 46 layers, the 27B one's. So many turn small differences into other tokens: one is asked for."""
        directory, run = self.model("deep")
        self.assertLess(self.moved(directory, self.llama_cpp([self.exported(run, "f16")], 1)[0]), 0.02)

    def test_it_opens_other_types(self):
        models = {name: self.model(name) for name in QUANTIZED}
        for quant, most in (("bf16", 0.05), ("q8_0", 0.15)):
            answers = self.llama_cpp([self.exported(run, quant) for _, run in models.values()], 1)
            for (name, (directory, _)), found in zip(models.items(), answers):
                with self.subTest(name, quant=quant):
                    self.assertLess(self.moved(directory, found), most)


if __name__ == "__main__":
    place = sys.argv.index("--modules")
    MODULES = pathlib.Path(sys.argv[place + 1]).resolve()
    del sys.argv[place:place + 2]
    hub_test.main()
