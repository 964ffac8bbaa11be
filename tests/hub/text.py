"""A directory's tokenizer is that of the text it is trained on, and of what it writes."""

import shutil

import hub_test
import small_tokenizer
from hub_test import HubTest
from tandem_run import BAD_USAGE

CPU = ("--set", "device=cpu", "--set", "threads=1")


class Text(HubTest):
    def make_with_tokenizer(self):
        directory, _ = self.make("llama")
        return small_tokenizer.write(directory, words=("the", "owl", "cat"))

    def write(self, source, *flags):
        return self.tandem("sample", source, "--prompt", "the owl", "--tokens", 8, *flags, *CPU).out

    def test_model_from_is_all_it_takes(self):
        directory = self.make_with_tokenizer()
        book = self.directory / "book.txt"
        book.write_text("the owl reads the book at night, the cat reads it by day.\n" * 200)
        content = self.config(directory, data={"train": str(book), "eval": str(book)},
                              train={"steps": 4, "lr": 0.01, "schedule": "constant", "warmup": 0})
        explained = self.tandem("explain", self.write_config(content)).out
        self.assertRegex(explained, rf"data.tokenizer\s+{directory}\s+derived from model.from")
        whole = self.train(content, "whole")
        run = self.train({**content, "train": {**content["train"], "steps": 2}}, "run")
        before = self.write(run)
        self.assertTrue(before.startswith("the owl"), before)
        shutil.rmtree(directory)
        self.assertEqual(before, self.write(run), "the run has a copy of its tokenizer")
        self.assertEqual(before, self.write(f"{run}/checkpoints/step-00000002/"), "however the path is spelled")
        self.train(content, "run")
        self.assert_equal_runs(whole, run)

    def test_an_import_reads_its_text_with_its_own_tokenizer(self):
        directory = self.make_with_tokenizer()
        book = self.directory / "book.txt"
        book.write_text("the owl reads the book at night.\n" * 200)
        run = self.directory / "run"
        self.tandem("import", directory, run)
        config = run / "config.yaml"
        result = self.tandem("train", config, "--run-dir", run, *CPU, expect=None)
        self.assert_one_line_error(result, BAD_USAGE, "builtin:stories")
        self.tandem("train", config, "--run-dir", run, "--set", f"data.train={book}", "--set", f"data.eval={book}",
                    "--set", "train.steps=2", *CPU)
        self.assertTrue(self.write(run).startswith("the owl"))
        exported = self.export(run, "out")
        self.assertEqual((directory / "tokenizer.json").read_bytes(), (exported / "tokenizer.json").read_bytes())

    def test_bytes_where_they_are_asked_for(self):
        directory = self.make_with_tokenizer()
        book = self.directory / "book.txt"
        book.write_text("the owl reads the book at night.\n" * 200)
        content = self.config(directory, data={"train": str(book), "eval": str(book), "tokenizer": "bytes"})
        self.assertNotIn(f"data.tokenizer  {directory}", self.tandem("explain", self.write_config(content)).out)
        self.train(content, "run")

    def test_what_was_imported_writes_with_its_own_tokenizer(self):
        directory = self.make_with_tokenizer()
        self.tandem("import", directory, self.directory / "run")
        self.assertEqual(self.write(directory), self.write(self.directory / "run"))
        self.assertEqual(self.write(directory, "--top-k", 1, "--seed", 1), self.write(directory, "--temperature", 0))

    def test_flags_that_are_none(self):
        directory = self.make_with_tokenizer()
        for flags in (("--top-k", "-1"), ("--top-p", "much"), ("--top-p", "1.5"), ("--top-p", "0")):
            result = self.tandem("sample", directory, *flags, expect=None)
            self.assert_one_line_error(result, BAD_USAGE, flags[0])


if __name__ == "__main__":
    hub_test.main()
