"""The most likely mistakes of a newcomer: each ends in one line that says what to do, and what it says works.

A mistake is a command line, its exit code, words of the message, and the command line that the message leads to,
which then has to succeed.
"""

import gzip
import os
import re
import socket
import subprocess

import tandem_run
from tandem_run import (BAD_DATA, BAD_USAGE, DOES_NOT_FIT, DONE, FAILED, GPT2, MLP, RESNET, TandemTest, checkpoint,
                        config)


class Mistakes(TandemTest):
    def setUp(self):
        super().setUp()
        self.config = self.write_config(config(GPT2, train={"steps": 2}))
        self.images = self.write_config(config(MLP, train={"steps": 2}), "images.yaml")

    def mend(self, code, parts, wrong, right=None):
        """`wrong` is refused with one line that holds `parts`; `right`, which the line leads to, works."""
        result = self.refuse(code, parts, *wrong)
        if right is not None:
            self.tandem(*right)
        return result.err

    def mend_set(self, code, parts, wrong, right, command="explain"):
        self.mend(code, parts, (command, self.config, "--set", wrong), (command, self.config, "--set", right))

    def mend_file(self, parts, wrong, right):
        path = self.directory / "mine.yaml"
        path.write_text(wrong)
        self.mend(BAD_USAGE, ["mine.yaml", *parts], ("explain", path))
        path.write_text(right)
        self.tandem("explain", path)

    # --- names of keys and flags

    def test_keys_by_the_name_that_other_programs_give_them(self):
        self.mend_set(BAD_USAGE, ["no such key; did you mean train.lr?"], "train.learning_rate=3e-4", "train.lr=3e-4")
        self.mend_set(BAD_USAGE, ["no such key; did you mean model.width?"], "model.hidden_size=96", "model.width=96")
        self.mend_set(BAD_USAGE, ["no such key; did you mean train.batch?"], "batch_size=12", "train.batch=12")
        self.mend_set(BAD_USAGE, ["no such key; did you mean train.lr?"], "train,lr=3e-4", "train.lr=3e-4")
        self.mend_set(BAD_USAGE, ["no such key; did you mean train.steps?"], "train.stpes=3", "train.steps=3")
        error = self.mend(BAD_USAGE, ["no such key"], ("explain", self.config, "--set", "flavour=vanilla"))
        self.assertNotIn("did you mean", error)

    def test_flags_that_are_keys(self):
        for wrong, right in ((("--lr", "3e-4"), "--set train.lr=3e-4"), (("--lr=3e-4",), "--set train.lr=3e-4"),
                             (("--precision", "bf16"), "--set precision=bf16"),
                             (("--batch-size", "12"), "--set train.batch=12"),
                             (("--epochs", "3"), "--set train.epochs=3"),
                             (("--learning-rate", "3e-4"), "--set train.lr=3e-4")):
            with self.subTest(wrong=wrong):
                self.mend(BAD_USAGE, [f"unexpected '{wrong[0]}'", f"a config's key is set with {right}."],
                          ("plan", self.config, *wrong), ("plan", self.config, *right.split()))

    def test_flags_that_are_the_beginning_of_another(self):
        run = self.directory / "run"
        self.tandem("train", self.config, "--run-dir", run)
        self.mend(BAD_USAGE, ["unexpected '--resume'", "did you mean '--resume-from-checkpoint'?"],
                  ("train", self.config, "--run-dir", run, "--resume", "latest"),
                  ("train", self.config, "--run-dir", run, "--resume-from-checkpoint", "latest"))
        self.mend(BAD_USAGE, ["did you mean '--run-dir'?"], ("train", self.config, "--run", run))

    def test_slips_in_flags_name_the_flag(self):
        """Every long flag of every command, with a letter left out, one doubled, two swapped, in capitals."""
        for command in ("train", "launch", "plan", "profile", "bench", "prepare", "evaluate", "sample", "inspect"):
            flags = set(re.findall(r"^ +(?:-\w,)?(--[a-z][a-z-]+)", self.tandem(command, "--help").out, re.M))
            self.assertIn("--help", flags)
            more = ("--out", "out") if command == "prepare" else ()
            for flag in sorted(flags - {"--set", "--out"}):  # of which any slip is another word
                middle = len(flag) // 2
                for slip in (flag[:middle] + flag[middle + 1:], flag[:middle] + flag[middle] + flag[middle:],
                             flag[:middle] + flag[middle + 1] + flag[middle] + flag[middle + 2:], flag.upper()):
                    if slip in (flag, "--sed"):  # as near to --set
                        continue
                    with self.subTest(command=command, slip=slip):
                        self.refuse(BAD_USAGE, [f"unexpected '{slip}'; did you mean '{flag}'?"], command, slip, "x",
                                    *more)

    def test_assignments_without_their_flag(self):
        right = ("plan", self.config, "--set", "train.lr=3e-4")
        self.mend(BAD_USAGE, ["did you mean --set train.lr=3e-4?"], ("plan", self.config, "train.lr=3e-4"), right)
        self.mend(BAD_USAGE, ["--set train.lr: expected key=value, such as --set train.lr=0.001"],
                  ("plan", self.config, "--set", "train.lr", "3e-4"), right)
        self.mend(BAD_USAGE, ["did you mean '--set'?"], ("plan", self.config, "-set", "train.lr=3e-4"), right)
        self.mend(BAD_USAGE, ["--set train.lr:3e-4: expected key=value"], ("plan", self.config, "--set", "train.lr:3e-4"),
                  right)

    def test_a_config_without_a_command(self):
        self.mend(BAD_USAGE, ["a command comes first: tandem train config.yaml."], ("config.yaml",),
                  ("train", "config.yaml"))

    # --- values

    def test_values_by_other_names(self):
        for key, wrong, right in (("precision", "FP16", "fp16"), ("precision", "float16", "fp16"),
                                  ("precision", "bfloat16", "bf16"), ("train.optimizer", "Adam", "adamw"),
                                  ("parallel.strategy", "full_shard", "fsdp")):
            with self.subTest(value=wrong):
                self.mend_set(BAD_USAGE, [key, f"found '{wrong}'; did you mean {right}?"], f"{key}={wrong}",
                              f"{key}={right}")
        self.mend_set(BAD_USAGE, ["log.csv", "found 'yes'; use true"], "log.csv=yes", "log.csv=true")
        self.mend_set(BAD_USAGE, ["train.lr", "found '0,001'; use 0.001"], "train.lr=0,001", "train.lr=0.001")
        self.mend_set(BAD_USAGE, ["memory.limit", "such as 512MiB or 2GB"], "memory.limit=2G", "memory.limit=2GB")

    def test_zero3_is_fsdp(self):
        out = self.tandem("explain", self.config, "--set", "parallel.strategy=zero3", "--set", "parallel.data=2").out
        self.assertRegex(out, r"(?m)^parallel\.strategy +fsdp ")

    def test_numbers_that_do_not_divide(self):
        self.mend_set(BAD_USAGE, ["use train.batch = 6 or 9"], "train.batch=7", "train.batch=9")
        self.mend_set(BAD_USAGE, ["use model.heads = 4 or 6"], "model.heads=5", "model.heads=6")

    def test_what_the_machine_lacks(self):
        self.mend_set(BAD_USAGE, ["precision", "fp8 needs a GPU; use fp32, bf16 or fp16"], "precision=fp8",
                      "precision=bf16")
        if "cuda not built" in self.tandem("--version").out:
            self.mend(BAD_USAGE, ["device: cuda", "built without CUDA", "use cpu"],
                      ("plan", self.config, "--device", "cuda"), ("plan", self.config, "--device", "cpu"))

    # --- YAML

    def test_yaml(self):
        self.mend_file([":2:", "indented by a tab; use spaces"], "train:\n\tlr: 0.1\n", "train:\n  lr: 0.1\n")
        self.mend_file([":1:", "expected `key: value` pairs, found 'train.lr = 0.1'"], "train.lr = 0.1\n",
                       "train.lr: 0.1\n")
        self.mend_file([":1:", "expected `key: value` pairs, found 'threads:2'"], "threads:2\n", "threads: 2\n")
        self.mend_file([":3:", "train.lr", "given twice, first at", "keep one"], "train:\n  lr: 1\n  lr: 2\n",
                       "train:\n  lr: 1\n")
        self.mend_file(["not a text file"], "name: a\0b\n", "name: ab\n")

    # --- files and folders

    def test_configs_that_are_not_where_they_are_looked_for(self):
        (self.directory / "configs").mkdir()
        (self.directory / "configs" / "llama-7b-offload.yaml").write_text(self.config.read_text())
        self.mend(BAD_USAGE, ["llama-7b.yaml: no such file in", str(self.directory),
                              "did you mean configs/llama-7b-offload.yaml?"],
                  ("plan", "llama-7b.yaml"), ("plan", "configs/llama-7b-offload.yaml"))
        self.mend(BAD_USAGE, ["is a directory; expected a YAML config"], ("plan", "configs"))

    def test_files_that_cannot_be_read(self):
        with socket.socket(socket.AF_UNIX) as unreadable:  # by anyone: root reads every plain file
            unreadable.bind(str(self.directory / "socket.yaml"))
            self.mend(BAD_DATA, ["socket.yaml: expected a regular file"], ("explain", "socket.yaml"),
                      ("explain", "config.yaml"))
        if os.geteuid() == 0:
            return
        self.config.chmod(0)
        result = self.tandem("explain", "config.yaml", expect=None)
        self.assert_one_line_error(result, FAILED, "config.yaml: cannot open: Permission denied")

    def test_a_place_that_cannot_be_written(self):
        self.mend(FAILED, ["/proc/run"], ("train", self.config, "--run-dir", "/proc/run"),
                  ("train", self.config, "--run-dir", "run"))

    def test_a_store_of_checkpoints_in_the_run_that_it_is_to_outlive(self):
        (self.directory / "runs").mkdir()
        (self.directory / "other").symlink_to("runs")
        for store in ("runs/x", "runs/x/checkpoints", "runs/x/a/../b", "other/x/copies"):
            self.mend(BAD_USAGE, ["checkpoint.store", "run's own directory"], ("train", self.config, "--run-dir", "runs/x", "--set", f"checkpoint.store={store}"))
        self.tandem("train", self.config, "--run-dir", "runs/x", "--set", "checkpoint.store=runs/x-copies")

    def test_a_place_for_measurements_that_is_not_there(self):
        self.mend(BAD_USAGE, ["--out none/m.yaml", "no such folder: none"], ("calibrate", "--out", "none/m.yaml"))

    def test_numbers_that_are_too_large(self):
        huge = "99999999999"
        for words in (("sweep", self.config, "--grid", "train.lr=1,2", "--jobs", huge), ("pipeline", "run", "p.yaml", "--jobs", huge),
                      ("launch", "--max-restarts", huge, "true"), ("launch", "--master-port", "70000", "true"), ("dash", "--port", "65536"),
                      ("prepare", "--out", "x", "--threads", huge, "a.txt"), ("calibrate", "--repeats", huge),
                      ("plan", self.config, "--search", "--max-gpus", huge)):
            with self.subTest(words=words):
                self.mend(BAD_USAGE, ["expected a whole number of at least", "and at most"], words)

    def test_checkpoints_that_are_not_there(self):
        run = self.directory / "run"
        self.tandem("train", self.config, "--run-dir", run)
        self.mend(BAD_DATA, ["runs/nothing: no such checkpoint or run directory"], ("evaluate", "runs/nothing"),
                  ("evaluate", run))
        self.mend(BAD_DATA, [checkpoint(run, 7)],
                  ("train", self.config, "--run-dir", run, "--resume-from-checkpoint", checkpoint(run, 7)),
                  ("train", self.config, "--run-dir", run, "--resume-from-checkpoint", checkpoint(run, 2)))

    def test_a_run_that_is_done(self):
        run = self.directory / "run"
        self.tandem("train", self.config, "--run-dir", run)
        again = self.tandem("train", self.config, "--run-dir", run)
        self.assertIn("already trained to step 2", again.err)
        self.tandem("train", self.config, "--run-dir", run, "--set", "train.steps=3")
        self.assertEqual(3, len(tandem_run.read_metrics(run)))

    # --- data

    def test_text_for_a_model_of_images(self):
        (self.directory / "some.txt").write_text("some text\n" * 1000)
        self.tandem("prepare", "--out", "shards", "some.txt")
        run = self.directory / "run"
        self.tandem("train", self.images, "--run-dir", run)
        for data in ("some.txt", "shards", "builtin:stories"):
            for key in ("data.train", "data.eval"):
                advice = [key, data, "does not suit model.family mlp, which takes images; use builtin:shapes"]
                flags = ("--set", f"{key}={data}", "--set", "model.classes=256")
                for command in ("train", "plan", "bench", "profile", "explain"):
                    with self.subTest(command=command, key=key, data=data):
                        error = self.mend(BAD_USAGE, advice, (command, self.images, *flags))
                        self.assertNotIn("model.vocab", error)
            self.mend(BAD_USAGE, ["data.eval", "takes images; use builtin:shapes"],
                      ("evaluate", run, "--set", f"data.eval={data}"), ("evaluate", run, "--samples", "4"))
        resnet = self.write_config(config(RESNET), "resnet.yaml")
        self.mend(BAD_USAGE, ["resnet, which takes images"], ("train", resnet, "--set", "data.train=some.txt"))
        self.mend(BAD_USAGE, ["data.train", "gpt2, which takes text; use builtin:stories"],
                  ("train", self.config, "--set", "data.train=builtin:shapes"),
                  ("train", self.config, "--set", "data.train=builtin:stories"))

    def test_images_of_another_size_than_the_set_has(self):
        """They were read past their end: of the labels behind them, and of what lay behind the loader's memory."""
        for command in ("train", "plan", "bench"):
            self.mend(BAD_USAGE, ["builtin:shapes have 3 channels, found model.channels = 4; use 3"],
                      (command, self.images, "--set", "model.channels=4"))
        self.tandem("plan", self.images, "--set", "model.channels=3")

    def test_files_that_are_no_text(self):
        text = "some text\n" * 1000
        packed = self.directory / "packed.txt.gz"
        packed.write_bytes(gzip.compress(text.encode()))
        zero = self.directory / "zero.txt"
        zero.write_bytes(b"some text\n\0" + text.encode())
        empty = self.directory / "empty.txt"
        empty.write_text("")
        self.mend(BAD_DATA, [packed, "gzip-compressed: expected plain text; run tandem prepare --out DIR"],
                  ("train", self.config, "--run-dir", "run", "--set", f"data.train={packed}"),
                  ("prepare", "--out", "packed", packed))
        for file, parts in ((zero, ["byte 0 at offset 10", "remove such bytes: tr -d"]), (empty, ["file is empty"])):
            with self.subTest(file=file.name):
                by_prepare = self.mend(BAD_DATA, [file, *parts], ("prepare", "--out", "out", file))
                by_train = self.mend(BAD_DATA, [file, *parts],
                                     ("train", self.config, "--run-dir", "run", "--set", f"data.train={file}"))
                self.assertEqual(by_prepare, by_train)
        plain = self.directory / "plain.txt"
        plain.write_bytes(zero.read_bytes().replace(b"\0", b""))
        self.tandem("train", self.config, "--run-dir", "run", "--set", f"data.train={plain}")

    # --- memory

    def test_a_model_that_is_too_big_names_changes_that_fit(self):
        big = self.write_config(config({**GPT2, "layers": 6, "width": 96, "context": 128}, memory={"limit": "18MiB"}),
                                "big.yaml")
        for flags in ((), ("--set", "data.prefetch=1000"), ("--set", "memory.recompute=auto")):
            with self.subTest(flags=flags):
                result = self.tandem("plan", big, *flags, expect=DOES_NOT_FIT)
                change = re.search(r"the cheapest change that fits is (.*) \([\d.]+ MiB\)", result.err)
                self.assertIsNotNone(change, result.err)
                self.tandem("plan", big, *flags, *change[1].split())

    def test_a_model_that_is_far_too_big_is_told_what_it_does_not_do_yet(self):
        def advice(**flags):
            sets = [word for key, value in flags.items() for word in ("--set", f"{key.replace('__', '.')}={value}")]
            error = self.tandem("plan", self.config, "--set", "memory.limit=100kB", *sets, expect=DOES_NOT_FIT).err
            return error.split("still need")[1]

        self.assertIn("precision=bf16", advice())
        self.assertNotIn("bf16", advice(precision="bf16"))
        self.assertIn("parallel.strategy=fsdp on more ranks", advice())
        sharded = advice(parallel__strategy="fsdp", parallel__data=2)
        self.assertNotIn("fsdp", sharded)
        self.assertIn("more ranks", sharded)
        self.assertIn("a shorter model.context", advice(model__context=4096, model__layers=1, model__width=6))
        self.assertNotIn("model.context", advice())

    def test_much_that_is_prepared_ahead_is_named(self):
        flags = ("--set", "data.prefetch=1000000", "--set", "memory.limit=100MiB")
        result = self.tandem("plan", self.config, *flags, expect=DOES_NOT_FIT)
        self.assertIn("the cheapest change that fits is --set data.prefetch=4 (", result.err)
        self.tandem("plan", self.config, *flags, "--set", "data.prefetch=4")

    def test_a_long_search_shows_on_a_terminal_that_it_goes_on(self):
        shown = self.on_a_terminal("plan", self.config, "--set", "model.layers=300", "--set", "memory.limit=100kB",
                                   expect=DOES_NOT_FIT, stdout=subprocess.DEVNULL)
        self.assertIn("does not fit; looking for the cheapest change that does", shown)
        self.assertRegex(shown.split("\r\x1b[K")[-1], r"^tandem: error: memory: the plan needs .*\n$")

    def test_sizes_without_bound(self):
        self.mend_set(BAD_USAGE, ["model.layers", "at most 2048"], "model.layers=100000", "model.layers=40", "plan")
        self.mend_set(BAD_USAGE, ["data.workers", "at most 4096"], "data.workers=1000000", "data.workers=4")


class Ranks(TandemTest):
    def test_more_ranks_than_the_mesh_has(self):
        path = self.write_config(config(GPT2, train={"steps": 2}))
        started = self.tandem("launch", "--nproc-per-node", 2, "train", path, "--run-dir", self.directory / "run",
                              expect=None)
        self.assertNotEqual(DONE, started.code)
        self.assertIn("parallel.strategy=ddp", started.err)
        self.tandem("launch", "--nproc-per-node", 2, "train", path, "--run-dir", self.directory / "run", "--set",
                    "parallel.strategy=ddp", "--set", "train.micro_batch=3")


if __name__ == "__main__":
    tandem_run.main()
