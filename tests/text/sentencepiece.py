"""Ids and texts of .model files equal those of sentencepiece's own programs: spm_encode and spm_decode.

Tiny models of every kind are trained by spm_train (Debian's package `sentencepiece`; without it the suite is skipped and says
so). Where npm has brought llama 2's tokenizer.json into --modules (tests/text/tokenizers.py does), the .model that it was made
of is written again and has to give its tokens. `--strings N` is how many strings each model gets (the long form: 20000).
"""

import argparse
import json
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

import strings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))

import tandem_run  # noqa: E402
from tandem_run import BAD_DATA, BAD_USAGE, LLAMA, TandemTest, config  # noqa: E402

SYMBOLS = ["--user_defined_symbols=<mark>,▁of▁the,\u00a7", "--control_symbols=<ctl>,<|im_end|>"]
KINDS = {
    "unigram": ["--model_type=unigram", "--vocab_size=600", *SYMBOLS],
    "unigram_bytes": ["--model_type=unigram", "--vocab_size=900", "--byte_fallback=true", *SYMBOLS],
    "bpe": ["--model_type=bpe", "--vocab_size=600"],
    # As llama's: nothing is normalised, spaces stay, digits are apart.
    "bpe_bytes": ["--model_type=bpe", "--vocab_size=900", "--byte_fallback=true", "--normalization_rule_name=identity",
                  "--remove_extra_whitespaces=false", "--split_digits=true", "--allow_whitespace_only_pieces=true", *SYMBOLS],
    "no_prefix": ["--model_type=unigram", "--vocab_size=400", "--add_dummy_prefix=false", "--bos_id=-1", "--pad_id=3",
                  "--normalization_rule_name=nfkc_cf", "--unk_surface=?"],
    "suffix": ["--model_type=bpe", "--vocab_size=500", "--treat_whitespace_as_suffix=true"],
    "char": ["--model_type=char", "--vocab_size=200"],
    "word": ["--model_type=word", "--vocab_size=300", "--hard_vocab_limit=false"],
}
LONG = 300


def corpus():
    """The pages of this repository, which are text of any length, and some of every script."""
    pages = sorted((tandem_run.REPOSITORY / "docs").glob("*.md"))
    lines = [line for page in pages for line in page.read_text().splitlines() if line.strip()][:3000]
    source = random.Random(5)
    return lines + [" ".join(strings.one(source, []).split()) for _ in range(300)]


def field(number, value):
    def varint(rest):
        out = b""
        while rest >= 0x80:
            out += bytes([rest & 0x7f | 0x80])
            rest >>= 7
        return out + bytes([rest])

    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    return varint(number << 3) + varint(value)


def model_of(tokenizer):
    """The sentencepiece model that a tokenizer.json of llama 2's kind was made of: merges are ranked by their scores."""
    vocab = sorted(tokenizer["model"]["vocab"].items(), key=lambda entry: entry[1])
    ranks = {}
    for rank, merge in enumerate(tokenizer["model"]["merges"]):
        ranks.setdefault("".join(merge.split(" ") if isinstance(merge, str) else merge), -float(rank))
    out = b""
    for text, number in vocab:
        kind = 2 if text == "<unk>" else 3 if text in ("<s>", "</s>") else 6 if text.startswith("<0x") else 1
        out += field(1, field(1, text.encode()) + field(2, ranks.get(text, -1e9 if kind == 1 else 0.0)) + field(3, kind))
    out += field(2, field(3, 2) + field(35, 1) + field(40, 0) + field(41, 1) + field(42, 2))
    return out + field(3, field(1, b"identity") + field(3, 1) + field(4, 0) + field(5, 1))


class Sentencepiece(TandemTest):
    count, modules = LONG, None
    models = None

    @classmethod
    def setUpClass(cls):
        if not all(shutil.which(program) for program in ("spm_train", "spm_encode", "spm_decode")):
            raise unittest.SkipTest("sentencepiece's programs are not installed")
        temporary = tempfile.TemporaryDirectory(prefix="tandem-spm-")
        cls.addClassCleanup(temporary.cleanup)
        cls.models = pathlib.Path(temporary.name)
        (cls.models / "corpus").write_text("\n".join(corpus()))
        for name, flags in KINDS.items():
            subprocess.run(["spm_train", f"--input={cls.models / 'corpus'}", f"--model_prefix={cls.models / name}",
                            "--num_threads=1", "--minloglevel=2", "--character_coverage=0.98", *flags], check=True, capture_output=True)

    def lines(self, *arguments):
        return [json.loads(line) for line in self.tandem("tokenize", *arguments).out.split("\n") if line]

    def spm(self, program, model, lines, form):
        done = subprocess.run([program, f"--model={model}", form], input=b"\n".join(lines) + b"\n", capture_output=True,
                              check=True)
        return done.stdout.split(b"\n")[:-1]

    def texts(self, name):
        added = ["<mark>", " of the ", "\u00a7", "<ctl>", "<s>", "</s>", "▁", "<unk>", "<0x0A>"]
        return [text.replace("\n", " ") for text in strings.strings(f"{name}-{self.count}", self.count, added)]

    def test_ids_and_texts_are_those_of_its_own_programs(self):
        for name in KINDS:
            with self.subTest(name):
                model, texts = self.models / f"{name}.model", self.texts(name)
                (self.directory / "lines").write_text("".join(json.dumps(text) + "\n" for text in texts))
                found = self.lines(model, "--lines", "lines")
                expected = [[int(word) for word in line.split()] for line in
                            self.spm("spm_encode", model, [text.encode() for text in texts], "--output_format=id")]
                self.assertEqual(len(texts), len(expected))
                self.assertEqual([], [(texts[i], found[i], expected[i]) for i in range(len(texts)) if found[i] != expected[i]][:2])
                self.check_decoding(model, expected)

    def check_decoding(self, model, encoded):
        """Of what was encoded, and of any ids: halves of characters, controls, the unknown."""
        size = 1 + max(number for ids in encoded for number in ids)
        (self.directory / "each").write_text("".join(f"[{number}]\n" for number in range(size)))
        each = self.lines(model, "--lines", "each", "--decode", "--skip-special")
        line_feed = [number for number, text in enumerate(each) if "\n" in text]  # spm_decode has a line for each row
        source = random.Random(7)
        ids = encoded + [[number for number in (source.randrange(size) for _ in range(source.randrange(1, 9)))
                          if number not in line_feed] for _ in range(self.count)]
        ids = [row for row in ids if row]
        (self.directory / "ids").write_text("".join(json.dumps(row) + "\n" for row in ids))
        found = self.lines(model, "--lines", "ids", "--decode", "--skip-special")
        expected = [line.decode(errors="replace") for line in self.spm(
            "spm_decode", model, [" ".join(map(str, row)).encode() for row in ids], "--input_format=id")]
        self.assertEqual(len(ids), len(expected))
        self.assertEqual([], [(ids[i], found[i], expected[i]) for i in range(len(ids)) if found[i] != expected[i]][:2])

    def test_broken_utf8_and_zeros_have_the_same_ids(self):
        source = random.Random(3)
        texts = [bytes(source.choice((0x00, 0x20, 0x61, 0x80, 0xc3, 0xa9, 0xe2, 0x96, 0x81, 0xf0, 0x9f, 0xff, 0xed, 0xa0))
                       for _ in range(40)) for _ in range(6)] + [b"caf\xe9 au lait", b"\xed\xa0\x80 \xf4\x90\x80\x80 \xc0\x80"]
        for name in ("unigram_bytes", "bpe_bytes", "bpe"):
            model = self.models / f"{name}.model"
            expected = self.spm("spm_encode", model, texts, "--output_format=id")
            for text, ids in zip(texts, expected):
                (self.directory / "text").write_bytes(text)
                found = json.loads(self.tandem("tokenize", model, "--file", "text", "--json").out)["ids"]
                self.assertEqual([int(word) for word in ids.split()], found, (name, text))

    def test_a_file_gives_the_tokens_of_the_tokenizer_json_made_of_it(self):
        file = self.modules and self.modules / "node_modules" / "@lenml" / "tokenizer-llama2" / "models" / "tokenizer.json"
        if not file or not file.exists():
            self.skipTest("npm has not brought llama 2's tokenizer.json")
        (self.directory / "llama.model").write_bytes(model_of(json.loads(file.read_text())))
        # Sentencepiece reads the names of control pieces as text; spaces before a first word count once in the other.
        texts = [text for text in self.texts("llama2") if not text.startswith(" ") and "<" not in text]
        (self.directory / "lines").write_text("".join(json.dumps(text) + "\n" for text in texts))
        ours, theirs = self.lines("llama.model", "--lines", "lines"), self.lines(file, "--lines", "lines")
        self.assertEqual([], [(texts[i], ours[i], theirs[i]) for i in range(len(texts)) if ours[i] != theirs[i]][:2])

    def test_a_set_is_prepared_trained_on_and_sampled_from(self):
        model = self.models / "bpe_bytes.model"
        shutil.copy(model, self.directory / "some.model")
        lines = corpus()[:600]
        (self.directory / "text.jsonl").write_text("\n".join(json.dumps({"text": line}) for line in lines))
        self.tandem("prepare", "--tokenizer", "some.model", "--out", "set", "text.jsonl", "--eval-fraction", 0.2)
        self.assertEqual(model.read_bytes(), (self.directory / "set" / "tokenizer.model").read_bytes())
        (self.directory / "some.model").unlink()  # the set has its own
        content = config({key: value for key, value in LLAMA.items() if key != "vocab"},
                         data={"train": "set", "documents": "separate"}, train={"steps": 3})
        run = self.train(content, "run")
        self.assertEqual(900, json.loads(self.tandem("info", run, "--json").out)["model"]["vocab"])
        self.assertTrue(self.tandem("sample", run, "--prompt", "A step", "--tokens", 8).out.startswith("A step"))
        index = json.loads((self.directory / "set" / "index.json").read_text())
        first = json.loads(self.tandem("tokenize", model, lines[0], "--whole", "--json").out)["ids"]
        self.assertEqual(1, first[0], "a text begins with <s>")
        shard = (self.directory / "set" / index["splits"]["train"][0]["file"]).read_bytes()[128:]
        self.assertEqual([*first, 2], list(struct.unpack(f"<{len(first) + 1}H", shard[:2 * len(first) + 2])))

    def test_bad_files_are_refused_with_one_line(self):
        good = (self.models / "unigram.model").read_bytes()
        cases = {"empty": b"", "cut": good[:len(good) // 2], "text": b"not a model\n" * 9, "json": b"{\"model\": {}}",
                 "pieces": good[:200], "map": good.replace(b"\x01\x01\x01\x01", b"\xff\xff\xff\xff")}
        source = random.Random(11)
        for number in range(12):
            damaged = bytearray(good)
            at = source.randrange(len(good) - 400)
            damaged[at:at + 400] = source.randbytes(400)
            cases[f"damaged{number}"] = bytes(damaged)
        for name, content in cases.items():
            (self.directory / "bad.model").write_bytes(content)
            result = self.tandem("tokenize", "bad.model", "any text \u00e9 at all", expect=None)
            if result.code != 0:
                self.assert_one_line_error(result, BAD_DATA, "bad.model")
            else:
                self.assertTrue(name.startswith("damaged") or name == "map", name)
                self.assertEqual("", result.err)
        self.refuse(BAD_USAGE, ("absent.model", "no such file"), "tokenize", "absent.model", "text")


def main():
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--modules", type=pathlib.Path)
    parser.add_argument("--strings", type=int, default=LONG)
    known, rest = parser.parse_known_args()
    Sentencepiece.count, Sentencepiece.modules = known.strings, known.modules and known.modules.resolve()
    sys.argv = [sys.argv[0], *rest]
    tandem_run.main()


if __name__ == "__main__":
    main()
