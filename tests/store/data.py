#!/usr/bin/env python3
"""Token shards in an S3 server of another make: prepared to there, trained on from there through the machine's cache, with the bits of
the same set on the disk."""

import random
import signal

import s3_proxy
import store_run
import small_images  # beside tandem_run, whose folder store_run knows
import tandem_run
from store_run import StoreTest
from tandem_run import BAD_DATA, BAD_USAGE, GPT2, RESNET, config

BLOCK = 256 << 10


class Data(StoreTest):
    def setUp(self):
        super().setUp()
        dice = random.Random(7)
        words = ["".join(dice.choice("abcdefgh \n") for _ in range(7)) for _ in range(500)]
        self.text = self.directory / "book.txt"
        self.text.write_text(" ".join(dice.choice(words) for _ in range(250_000)))
        self.cache = self.directory / "cache"

    def prepare(self, out, **options):
        return self.run_tandem("prepare", "--out", out, "--shard-tokens", 300_000, "--split-on", "\\n", self.text,
                               XDG_CACHE_HOME=str(self.cache), **options)

    def config_of(self, data, **sections):
        storage = {"storage": {"cache": str(self.cache / "blocks"), "cache_size": 64 << 20, **sections.pop("storage", {})}}
        return config({**GPT2, "context": 64}, data={"train": str(data), "eval": str(data), "documents": "separate", "eval_samples": 6},
                      train={"steps": 6, "batch": 8, "micro_batch": 2, "eval_every": 3, "schedule": "constant", **sections.pop("train", {})}, **storage, **sections)

    def test_trains_on_images_as_on_the_disk(self):
        photos = small_images.write_classes(self.directory / "photos", random.Random(1))
        for out in (self.directory / "images", self.store):
            self.run_tandem("prepare", "--images", photos, "--eval-fraction", 0.2, "--out", out, XDG_CACHE_HOME=str(self.cache))
        self.assertEqual([], list((self.cache / "tandem").glob("prepare-*")))
        whole, far = (self.train_there({**self.config_of(place), "model": {**RESNET, "classes": 3}, "data": {
            "train": str(place), "eval": str(place), "flip": True, "crop": 0.5, "eval_samples": 6}}, name)
            for place, name in ((self.directory / "images", "near"), (self.store, "far")))
        self.assert_equal_runs(whole, far)
        self.run_tandem("prepare", "--images", photos, "--out", self.store, expect=BAD_USAGE)

    def test_trains_on_it_as_on_the_disk_and_reads_it_once(self):
        self.prepare(self.directory / "set")
        said = self.prepare(self.store).out
        self.assertIn("for training", said)
        self.run_tandem("copy", self.store, self.directory / "back")
        expected = {path.name: path.read_bytes() for path in (self.directory / "set").iterdir()}
        self.assertEqual(expected, {path.name: path.read_bytes() for path in (self.directory / "back").iterdir()})
        self.assertEqual([], list((self.cache / "tandem").glob("prepare-*")))
        size = sum(len(content) for name, content in expected.items() if name.endswith(".tokens"))
        whole = self.train_there(self.config_of(self.directory / "set"), "whole")
        with s3_proxy.Proxy(store_run.server) as proxy:
            self.variables = proxy.variables
            # Stopped in the middle and gone on: the position is exact.
            self.train_there(self.config_of(self.store, train={"steps": 3}), "far")
            far = self.train_there(self.config_of(self.store), "far")
            self.assert_equal_runs(whole, far)
            read = sum(bytes for name, bytes in proxy.read.items() if name.endswith(".tokens"))
            self.assertGreater(read, 0)
            self.assertLessEqual(read, size)
            proxy.reset()
            ranks = {"parallel": {"strategy": "ddp", "data": 2}}
            two = self.train_there(self.config_of(self.directory / "set", **ranks), "two", ranks=2)
            far = self.train_there(self.config_of(self.store, **ranks), "far_two", ranks=2)
            self.assert_equal_runs(two, far)
            again = sum(bytes for name, bytes in proxy.read.items() if name.endswith(".tokens"))
            self.assertLessEqual(read + again, size)  # what was there from the run before is not fetched again
            # No room for all of it, and an answer now and then is lost.
            proxy.trouble = lambda request: "cut_answer" if request.number % 7 == 0 else None
            small = self.train_there(self.config_of(self.store, storage={"cache_size": 8 * BLOCK}), "small")
            self.assert_equal_runs(whole, small)
        self.assertLessEqual(sum(path.stat().st_size for path in (self.cache / "blocks").glob("blocks-*")), 8 * BLOCK + 4096)
        self.assert_no_secret(far)

    def test_that_is_killed_on_its_way_goes_on(self):
        self.prepare(self.directory / "set")
        with s3_proxy.Proxy(store_run.server) as proxy:
            self.variables = proxy.variables
            process = self.start("prepare", "--out", self.store, "--shard-tokens", 300_000, "--split-on", "\\n", "--save-every", 0,
                                 self.text, env=self.environment(XDG_CACHE_HOME=str(self.cache)))

            def kill_at_the_third(request):
                if len(proxy.written) < 2:
                    return None
                process.kill()
                return "cut_before"

            proxy.trouble = kill_at_the_third
            self.assertEqual(-signal.SIGKILL, process.wait(tandem_run.DEADLINE_S))
            proxy.trouble = lambda request: None
            result = self.run_tandem(*self.command(self.config_of(self.store), "early"), expect=BAD_DATA)
            self.assertIn("not a prepared set", result.err)
            self.prepare(self.store)
        self.variables = store_run.server.variables
        self.run_tandem("copy", self.store, self.directory / "back")
        for path in (self.directory / "set").iterdir():
            self.assertEqual(path.read_bytes(), (self.directory / "back" / path.name).read_bytes(), path.name)
        result = self.prepare(self.store, expect=BAD_USAGE)
        self.assertIn("already holds a set", result.err)

    def test_a_shard_that_is_missing_is_told(self):
        self.prepare(self.store)
        store_run.server.ask("import boto3, sys; boto3.client('s3').delete_object(Bucket='bucket', Key=sys.argv[1])",
                             self.prefix() + "train-00001.tokens")
        result = self.run_tandem(*self.command(self.config_of(self.store), "run"), expect=BAD_DATA)
        self.assertIn("train-00001.tokens: shard is missing; run tandem prepare again", result.err)
        self.assertFalse((self.directory / "run").exists())


if __name__ == "__main__":
    store_run.main()
