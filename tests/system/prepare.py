"""`tandem prepare` from every kind of file, with a tokenizer of one's own, killed in the middle, and what comes after it."""

import array
import gzip
import json
import random
import shutil
import signal
import subprocess

import small_tokenizer
import tandem_run
from tandem_run import BAD_DATA, BAD_USAGE, GPT2, TandemTest, config


def prose(seed, size):
    source = random.Random(seed)
    text = []
    for _ in range(size // 4):
        text.append(source.choice((*small_tokenizer.WORDS, "Zoë", "7", "...", "\n", "\n\n", "'s", "  ", "\t")))
        text.append(source.choice(("", " ", " ", "\n")))
    return "".join(text)


def tokens_of(folder, split):
    """All tokens of a split, and where documents begin."""
    index = json.loads((folder / "index.json").read_text())
    tokens, documents = [], []
    for shard in index["splits"][split]:
        data = (folder / shard["file"]).read_bytes()
        width = index["token_bytes"]
        here = array.array("H" if width == 2 else "I", data[128:128 + width * shard["tokens"]])
        table = array.array("Q", data[len(data) - 8 * shard["documents"]:])
        documents += [len(tokens) + begin for begin in table]
        tokens += here
    return tokens, documents


def contents(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


class Prepare(TandemTest):
    def setUp(self):
        super().setUp()
        self.tokenizer = small_tokenizer.write(self.directory / "tokenizer")

    def prepare(self, out, *arguments, **options):
        return self.tandem("prepare", "--tokenizer", self.tokenizer, "--out", out, *arguments, **options)

    def ids(self, text):
        file = self.directory / "one"
        file.write_text(text, newline="")
        return json.loads(self.tandem("tokenize", self.tokenizer, "--file", file, "--json").out)["ids"]

    def write_lines(self, name, texts, pack=lambda data: data):
        file = self.directory / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(pack("".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(texts)).encode()))
        return file

    def test_parquet_is_refused_with_what_to_run_instead(self):
        (self.directory / "some").mkdir()
        (self.directory / "some" / "a.txt").write_text("text")
        (self.directory / "some" / "b.parquet").write_bytes(b"PAR1" + bytes(range(1, 200)) + b"PAR1")
        for inputs in (("some/b.parquet",), ("some",), ("some/*.parquet", "--split-on", "x")):
            self.refuse(BAD_DATA, ("b.parquet", "is a Parquet file", "duckdb", "TO 'text.jsonl' (FORMAT json)"), "prepare", "--out",
                        "set", *inputs)

    def test_tokens_are_those_of_whole_documents_from_any_kind_of_file(self):
        texts = [prose(seed, 300) for seed in range(60)]
        long = self.directory / "in" / "a.txt"
        long.parent.mkdir()
        long.write_text(prose("long", 3 << 20), newline="")
        self.write_lines("in/b.jsonl", texts[:20])
        self.write_lines("in/c.jsonl.gz", texts[20:40], gzip.compress)
        zstd = shutil.which("zstd")
        self.write_lines("in/d.jsonl.zst", texts[40:], (lambda data: subprocess.run(
            ["zstd", "-q", "-c"], input=data, capture_output=True, check=True).stdout) if zstd else gzip.compress)
        self.prepare("set", "in", "--eval-fraction", 0, "--shard-tokens", 100000)
        found, documents = tokens_of(self.directory / "set", "train")
        end = self.ids(small_tokenizer.END)
        expected, begins = [], []
        for text in (long.read_bytes().decode(), *texts):
            expected += end if expected else []
            begins.append(len(expected))
            expected += self.ids(text)
        self.assertEqual(begins, documents)
        self.assertEqual(expected, found)

    def test_a_killed_run_goes_on_and_ends_with_the_same_bytes(self):
        (self.directory / "a.txt").write_text(prose("a", 6 << 20), newline="")
        self.write_lines("b.jsonl.gz", [prose(seed, 3000) for seed in range(2000)], gzip.compress)
        arguments = ("a.txt", "b.jsonl.gz", "--shard-tokens", 50000, "--save-every", 0)
        self.prepare("calm", *arguments, "--threads", 1)
        partial = self.directory / "killed.partial"
        for shards in (2, 12, 25):
            process = self.start("prepare", "--tokenizer", self.tokenizer, "--out", "killed", *arguments, "--threads", 2)
            self.wait_for(lambda: process.poll() is not None or len(list(partial.glob("*.tokens"))) >= shards, "shards")
            self.assertIsNone(process.poll(), "it was done before it could be killed")
            process.send_signal(signal.SIGKILL)
            process.wait()
            self.assertFalse((self.directory / "killed").exists())
        result = self.prepare("killed", *arguments, "--threads", 2)
        self.assertIn("note: goes on from killed.partial", result.err)
        self.assertEqual(contents(self.directory / "calm"), contents(self.directory / "killed"))
        self.assertFalse(partial.exists())

    def test_broken_text_is_told_once(self):
        broken = self.directory / "broken.txt"
        broken.write_bytes(b"the \xff owl\n\xe2\x82 reads\n" * 500)
        result = self.prepare("set", broken)
        self.assertEqual(["warning: not all of it was UTF-8: 1000 U+FFFD in place of what was not"],
                         result.err.splitlines())

    def test_broken_text_that_is_trained_on_is_told_once(self):
        tokenizer = small_tokenizer.write(self.directory / "tokenizer")
        broken = self.directory / "broken.txt"
        broken.write_bytes(b"the \xff owl\n\xe2\x82 reads\n" * 500)
        told = f"warning: {broken}: not all of it was UTF-8: 1000 U+FFFD in place of what was not"
        for name, times in ((str(tokenizer), 1), ("bytes", 0)):
            with self.subTest(name):
                content = tandem_run.config({**tandem_run.GPT2, "vocab": 400}, train={"steps": 2, "eval_every": 1},
                                            data={"train": str(broken), "eval": str(broken), "tokenizer": name})
                result = self.tandem("train", self.write_config(content), "--run-dir", self.directory / f"run-{times}")
                self.assertEqual(times, result.err.count(told), result)

    def test_a_bad_line_is_named_and_nothing_is_left(self):
        lines = self.write_lines("a.jsonl", ["the owl"] * 70000)
        with lines.open("a") as file:
            file.write('{"text": "the"\n')
        self.refuse(BAD_DATA, [f"{lines}:70001: not valid JSON"], "prepare", "--out", "set", lines)
        self.refuse(BAD_DATA, [f"{lines}:1: no field 'body' (it has id, text)"], "prepare", "--out", "set", lines,
                    "--field", "body")
        self.refuse(BAD_USAGE, ["tokenizer 'words'", "no such file"], "prepare", "--out", "set", lines, "--tokenizer",
                    "words")

    def test_a_terminal_sees_how_far_it_is(self):
        (self.directory / "a.txt").write_text(prose("a", 1 << 20), newline="")
        shown = self.on_a_terminal("prepare", "--out", "set", "a.txt")
        self.assertRegex(shown, r"KiB of .* MB/s, \d+ s left")

    def test_such_tokens_are_trained_on_evaluated_and_written(self):
        (self.directory / "a.txt").write_text("the owl reads the book. " * 4000)
        self.prepare("set", "a.txt")
        model = {key: value for key, value in GPT2.items() if key != "vocab"}
        content = config(model, data={"train": "set"}, checkpoint={"every": 20}, train={"steps": 150, "lr": 0.01})
        run = self.train(content, "run")
        saved = json.loads((next((run / "checkpoints").glob("step-*")) / "manifest.json").read_text())["config"]
        self.assertEqual("set", saved["data"]["tokenizer"])
        self.assertEqual(max(self.ids(small_tokenizer.END)) + 1, saved["model"]["vocab"])
        evaluated = json.loads(self.tandem("evaluate", run, "--json").out)
        self.assertLess(evaluated["eval_loss"], 2)
        text = self.tandem("sample", run, "--prompt", "the owl", "--tokens", 30, "--temperature", 0).out
        self.assertTrue(text.startswith("the owl reads the book."), text)
        # A text file, and the tokenizer by another name.
        self.tandem("evaluate", run, "--set", "data.eval=a.txt", "--set", f"data.tokenizer={self.tokenizer}")
        other = small_tokenizer.write(self.directory / "other", ("owl",))
        self.refuse(BAD_DATA, ["set: was prepared with tokenizer", "but data.tokenizer is"], "evaluate", run, "--set",
                    f"data.tokenizer={other}")
        self.tandem("train", self.write_config(content), "--run-dir", "text", "--set", "data.train=a.txt", "--set",
                    f"data.tokenizer={self.tokenizer}")
        self.refuse(BAD_USAGE, ["set it to at least"], "train", self.write_config(content), "--run-dir", "small", "--set",
                    "model.vocab=256")


class Mixtures(TandemTest):
    def test_a_mixture_goes_on_bit_for_bit_and_no_set_loses_its_place(self):
        for name, words in (("owls", "the owl reads. "), ("cats", "A cat sleeps by day, "), ("books", "book after book\n")):
            (self.directory / f"{name}.txt").write_text(words * 2000)
        self.tandem("prepare", "--out", "books", "books.txt")
        sets = [{"path": "owls.txt", "weight": 3}, {"path": "cats.txt", "weight": 1}, {"path": "books", "weight": 0.5}]
        content = config(GPT2, data={"train": sets, "eval_samples": 6}, checkpoint={"every": 5},
                         train={"steps": 10, "batch": 12, "eval_every": 5, "schedule": "constant"})
        calm = self.train(content, "calm")
        self.train(content, "run", "--set", "train.steps=5")
        run = self.train(content, "run")
        self.assert_equal_runs(calm, run)
        manifest = json.loads((run / "checkpoints/step-00000010/manifest.json").read_text())
        mixture = manifest["scalars"]["mixture"]["sets"]
        self.assertEqual(120, sum(entry["position"] for entry in mixture))
        for entry in mixture:
            self.assertAlmostEqual(120 * entry["weight"] / 4.5, entry["position"], delta=2)
        # Other weights: each set goes on from its place.
        sets[1]["weight"] = 9
        self.train({**content, "data": {**content["data"], "train": sets}}, "run", "--set", "train.steps=12")
        later = json.loads((run / "checkpoints/step-00000012/manifest.json").read_text())["scalars"]["mixture"]
        self.assertEqual(120, later["start"])
        self.assertEqual([entry["position"] for entry in mixture], [entry["start"] for entry in later["sets"]])

    def test_bad_lists_are_told(self):
        for train, part in ((["a.txt", {"path": "b", "wieght": 2}], "expected path, weight and name, found 'wieght'"),
                            ([{"path": "b", "weight": 0}], "expected a weight above 0, found '0'"),
                            ([{"weight": 2}], "expected a path in {weight: 2}"), ([], "expected a set, or a list such as")):
            self.refuse(BAD_USAGE, [part], "explain", self.write_config(config(GPT2, data={"train": train})))
            (self.directory / "config.yaml").unlink()


if __name__ == "__main__":
    tandem_run.main()
