"""Whatever is wrong with what the user gives: one line that says so, the promised exit code, nothing left behind."""

import json
import os
import resource
import shutil
import subprocess

import tandem_run
from tandem_run import (BAD_DATA, BAD_USAGE, FAILED, GPT2, LLAMA, MLP, RESNET, TandemTest, checkpoint, config,
                        read_events, read_manifest, read_metrics)


def snapshot(directory):
    """{path: content} of everything under a directory."""
    return {str(path.relative_to(directory)): path.read_bytes() if path.is_file() else None
            for path in directory.rglob("*")}


def flip_byte(path, offset):
    content = bytearray(path.read_bytes())
    content[offset] ^= 0x20
    path.write_bytes(content)


class BadInputTest(TandemTest):
    def refuse(self, code, parts, *arguments, **options):
        """The program refuses with one line, and leaves every file as it was."""
        before = snapshot(self.directory)
        result = self.tandem(*arguments, expect=None, **options)
        self.assert_one_line_error(result, code, *parts)
        self.assertEqual(before, snapshot(self.directory))
        return result


class BadConfigs(BadInputTest):
    def refuse_config(self, parts, text):
        path = self.directory / "config.yaml"
        path.write_text(text if isinstance(text, str) else json.dumps(text, indent=1))
        self.refuse(BAD_USAGE, parts, "train", path, "--run-dir", self.directory / "run")

    def refuse_set(self, parts, *assignments):
        path = self.write_config(config(GPT2))
        flags = [flag for assignment in assignments for flag in ("--set", assignment)]
        self.refuse(BAD_USAGE, parts, "train", path, "--run-dir", self.directory / "run", *flags)

    def test_unknown_keys_name_the_nearest(self):
        self.refuse_config(["config.yaml:2", "model.layer", "did you mean model.layers?"],
                           "model:\n  layer: 2\n")
        self.refuse_config(["trian", "did you mean train"], "trian: {steps: 2}\n")
        self.refuse_set(["train.step", "did you mean train.steps?"], "train.step=3")
        self.refuse_set(["checkpoint.evry", "did you mean checkpoint.every?"], "checkpoint.evry=3")

    def test_wrong_types(self):
        for assignment, expected in {
            "train.steps=many": "a whole number",
            "train.steps=2.5": "a whole number",
            "train.steps=0": "at least 1",
            "train.steps=99999999999999999999": "a whole number",
            "train.lr=fast": "a number",
            "train.lr=-1": "at least 0",
            "train.lr=nan": "a number",
            "train.steps=[1, 2]": "a whole number",
            "model.tied=maybe": "true or false",
            "model.family=gpt3": "gpt2",
            "precision=fp31": "fp32",
            "memory.limit=5parsecs": "bytes",
            "memory.recompute=every:0": "every:K",
            "checkpoint=3": "keys under it",
        }.items():
            with self.subTest(assignment=assignment):
                self.refuse_set([assignment.split("=")[0], expected], assignment)
        self.refuse_config(["train.steps", "a whole number"], "train: {steps: {a: 1}}\n")

    def test_a_list_of_the_wrong_kind(self):
        path = self.write_config(config(RESNET))
        for value in ("[1, two]", "[]", "[0]"):
            with self.subTest(value=value):
                self.refuse(BAD_USAGE, ["model.blocks"], "train", path, "--set", f"model.blocks={value}")

    def test_a_batch_that_does_not_divide_names_the_nearest_that_does(self):
        self.refuse_set(["train.batch", "7", "use train.batch = 6 or 9"], "train.batch=7")

    def test_heads_that_do_not_divide(self):
        self.refuse_set(["model.heads", "model.width", "48", "use model.heads = 4 or 6"], "model.heads=5")
        path = self.write_config(config(LLAMA))
        self.refuse(BAD_USAGE, ["model.kv_heads", "model.heads"], "train", path, "--set", "model.kv_heads=4")

    def test_keys_of_another_family(self):
        self.refuse_set(["model.blocks", "gpt2", "resnet"], "model.blocks=[1]")

    def test_what_this_version_cannot_do(self):
        for assignment in ("parallel.strategy=ddp", "parallel.data=2", "precision=fp8", "device=cuda",
                           "log.tensorboard=true", "model.from=somewhere", "memory.offload=[optimizer]"):
            with self.subTest(assignment=assignment):
                self.refuse_set([assignment.split("=")[0], "this version"], assignment, "train.batch=6")

    def test_files_that_are_no_config(self):
        self.refuse_config(["config.yaml:3", "not valid YAML"], "model:\n  {layers: 2\n")
        self.refuse_config(["config.yaml", "key: value"], "- 1\n- 2\n")
        self.refuse_config(["train.steps", "twice"], "train: {steps: 2, steps: 3}\n")
        self.refuse_config(["config.yaml", "one YAML document"], "name: a\n---\nname: b\n")
        self.refuse(BAD_USAGE, ["nowhere.yaml", "no such file"], "train", "nowhere.yaml")
        self.refuse(BAD_USAGE, ["is a directory"], "train", self.directory)

    def test_bad_set_syntax(self):
        for assignment in ("train.lr", "=3", "", "train.lr="):
            with self.subTest(assignment=assignment):
                self.refuse_set(["--set"], assignment)


class BadCommandLines(BadInputTest):
    def setUp(self):
        super().setUp()
        self.config = self.write_config(config(GPT2))

    def test_unknown_flags_and_subcommands_name_the_nearest(self):
        self.refuse(BAD_USAGE, ["trian", "'train'"], "trian", self.config)
        self.refuse(BAD_USAGE, ["--stpes", "'--steps'"], "bench", self.config, "--stpes", 3)
        self.refuse(BAD_USAGE, ["--run-dri", "'--run-dir'"], "train", self.config, "--run-dri", "x")
        self.refuse(BAD_USAGE, ["--tensor", "'--tensors'"], "inspect", "x", "--tensor")
        self.refuse(BAD_USAGE, ["extra"], "plan", self.config, "extra")

    def test_missing_arguments(self):
        for command in ("train", "plan", "explain", "profile", "bench", "evaluate", "sample", "inspect", "prepare"):
            with self.subTest(command=command):
                self.refuse(BAD_USAGE, ["required"], command)
        self.refuse(BAD_USAGE, ["--run-dir"], "train", self.config, "--run-dir")

    def test_flags_with_bad_values(self):
        for command, target, flag, value in (
            ("bench", self.config, "--steps", "abc"), ("bench", self.config, "--steps", "0"),
            ("bench", self.config, "--warmup", "-1"), ("profile", self.config, "--steps", "1.5"),
            ("evaluate", "x", "--samples", "-3"), ("sample", "x", "--tokens", "-3"),
            ("sample", "x", "--temperature", "-1"), ("sample", "x", "--temperature", "warm"),
            ("sample", "x", "--seed", "-1"), ("prepare", "x", "--shard-tokens", "0")):
            with self.subTest(command=command, flag=flag, value=value):
                result = self.refuse(BAD_USAGE, [flag, "expected", f"found '{value}'"], command, target, f"{flag}={value}",
                                     *(["--out", "y"] if command == "prepare" else []))
                self.assertLess(len(result.err), 200)
        self.refuse(BAD_USAGE, ["--dump", "after:fuse"], "plan", self.config, "--dump", "after:fuze")
        self.refuse(BAD_USAGE, ["--dump", "after:fuse"], "plan", self.config, "--dump", "fuse")
        self.refuse(BAD_USAGE, ["device", "'gpu'"], "train", self.config, "--device", "gpu")

    def test_nonsense_in_the_environment(self):
        nonsense = {"TANDEM_ISA": "sse9"}
        self.refuse(BAD_USAGE, ["TANDEM_ISA", "'sse9'", "avx2"], "train", self.config, "--run-dir", "run", env=nonsense)
        self.refuse(BAD_USAGE, ["TANDEM_ISA"], "plan", self.config, env=nonsense)

    def test_a_run_directory_that_cannot_be_made(self):
        (self.directory / "file").write_text("in the way")
        self.refuse(FAILED, ["file/run"], "train", self.config, "--run-dir", self.directory / "file" / "run")
        self.refuse(FAILED, ["file"], "train", self.config, "--run-dir", self.directory / "file")

    def test_a_trace_that_cannot_be_written(self):
        self.refuse(FAILED, ["nowhere"], "profile", self.config, "--steps", 1, "--trace", "nowhere/trace.json")


class BadData(BadInputTest):
    def refuse_data(self, data, *parts):
        for key in ("data.train", "data.eval"):
            with self.subTest(key=key):
                self.refuse(BAD_DATA, [data, *parts], "train", self.write_config(config(GPT2)), "--run-dir", "run", "--set",
                            f"{key}={data}")

    def prepared(self):
        text = self.directory / "text.txt"
        text.write_text("".join(f"line {number}\n" for number in range(500)))
        self.tandem("prepare", "--out", self.directory / "shards", text)
        return self.directory / "shards"

    def test_missing_empty_and_short_files(self):
        self.refuse_data("nowhere.txt", "no such file")
        (self.directory / "empty.txt").write_text("")
        self.refuse_data("empty.txt", "empty")
        (self.directory / "short.txt").write_text("ten bytes.")
        self.refuse_data("short.txt", "10 tokens", "model.context")
        self.refuse(BAD_USAGE, ["builtin:storys", "did you mean builtin:stories"], "train",
                    self.write_config(config(GPT2)), "--set", "data.train=builtin:storys")

    def test_data_that_does_not_suit_the_model(self):
        self.refuse(BAD_USAGE, ["builtin:shapes", "gpt2"], "train", self.write_config(config(GPT2)), "--set",
                    "data.train=builtin:shapes")
        text = self.directory / "text.txt"
        text.write_text("some text " * 100)
        self.refuse(BAD_USAGE, ["text.txt"], "train", self.write_config(config(MLP)), "--run-dir", "run", "--set",
                    "data.train=text.txt")

    def test_damaged_shards(self):
        shards = self.prepared()
        for name in ("train-00000.tokens", "eval-00000.tokens"):
            whole = (shards / name).read_bytes()
            split = "data.train" if name.startswith("train") else "data.eval"
            damages = {"empty": b"", "half a header": whole[:20], "truncated": whole[:-2], "too long": whole + b"xx",
                       "no header": b"x" * len(whole), "flipped header": whole[:18] + b"\xff" + whole[19:]}
            for damage, content in damages.items():
                with self.subTest(shard=name, damage=damage):
                    (shards / name).write_bytes(content)
                    self.refuse(BAD_DATA, [name], "train", self.write_config(config(GPT2)), "--run-dir", "run", "--set",
                                f"{split}={shards}")
            (shards / name).write_bytes(whole)
        (shards / "eval-00000.tokens").unlink()
        self.refuse(BAD_DATA, ["eval-00000.tokens", "missing"], "train", self.write_config(config(GPT2)), "--set",
                    f"data.eval={shards}")

    def test_a_token_outside_the_vocabulary_is_an_error_and_never_an_address(self):
        shards = self.prepared()
        tokens = shards / "train-00000.tokens"
        content = tokens.read_bytes()
        header = len(content) - 2 * json.loads((shards / "index.json").read_text())["splits"]["train"][0]["tokens"]
        tokens.write_bytes(content[:header] + b"\xff" * (len(content) - header))
        result = self.tandem("train", self.write_config(config(GPT2)), "--run-dir", "run", "--set", f"data.train={shards}",
                             expect=BAD_DATA)
        self.assertIn("train-00000.tokens", result.err.splitlines()[-1])

    def test_damaged_indices(self):
        shards = self.prepared()
        index = shards / "index.json"
        whole = index.read_text()
        for damage in ("", "{", "[]", whole[:100], whole.replace('"version": 1', '"version": 9'),
                       whole.replace('"tokens": ', '"tokens": 1')):
            with self.subTest(content=damage[:20]):
                index.write_text(damage)
                self.refuse(BAD_DATA, ["shards"], "train", self.write_config(config(GPT2)), "--run-dir", "run", "--set",
                            f"data.train={shards}")
        index.unlink()
        self.refuse(BAD_DATA, ["shards"], "train", self.write_config(config(GPT2)), "--set", f"data.train={shards}")

    def test_prepare_leaves_all_or_nothing(self):
        good, empty, binary = (self.directory / name for name in ("good.txt", "empty.txt", "binary.dat"))
        good.write_text("words and words\n" * 50)
        empty.write_text("")
        binary.write_bytes(b"text and \0 zero" * 10)
        self.refuse(BAD_DATA, ["nowhere.txt"], "prepare", "--out", "out", good, "nowhere.txt")
        self.refuse(BAD_DATA, ["empty.txt"], "prepare", "--out", "out", good, empty)
        self.refuse(BAD_DATA, ["binary.dat", "offset 9"], "prepare", "--out", "out", good, binary)
        self.refuse(BAD_USAGE, ["already exists"], "prepare", "--out", self.directory, good)
        self.refuse(BAD_USAGE, ["eval fraction"], "prepare", "--out", "out", good, "--eval-fraction", 1)
        self.refuse(BAD_USAGE, ["bpe"], "prepare", "--out", "out", good, "--tokenizer", "bpe")


class BadCheckpoints(BadInputTest):
    def setUp(self):
        super().setUp()
        self.content = config(MLP, train={"steps": 4}, checkpoint={"every": 2})
        self.run_dir = self.train(self.content, "run")
        self.last = checkpoint(self.run_dir, 4)
        self.longer = self.write_config({**self.content, "train": {**self.content["train"], "steps": 6}}, "longer.yaml")

    def refuse_everywhere(self, *parts):
        """Every command that is given this one checkpoint refuses it."""
        self.refuse(BAD_DATA, parts, "evaluate", self.last)
        self.refuse(BAD_DATA, parts, "inspect", self.last, "--verify")
        self.refuse(BAD_DATA, parts, "train", self.longer, "--run-dir", "other", "--resume-from-checkpoint", self.last)
        self.refuse(BAD_DATA, parts, "train", self.longer, "--run-dir", self.run_dir, "--resume-from-checkpoint", self.last)

    def assert_goes_on_from_the_one_before(self):
        """Training says what it skips, goes on from step 2, and gets where it would have got."""
        result = self.tandem("train", self.longer, "--run-dir", self.run_dir)
        self.assertIn("skipped a bad checkpoint", result.err)
        self.assertIn("step-00000004", result.err)
        self.assertEqual(2, read_events(self.run_dir, "resume")[-1]["step"])
        self.assertEqual(1, len(read_events(self.run_dir, "bad_checkpoint")))
        self.assertEqual(6, len(read_metrics(self.run_dir)))
        self.tandem("inspect", checkpoint(self.run_dir, 6), "--verify")

    def test_a_flipped_byte_of_data(self):
        data = self.last / "rank-00000.ckpt"
        for offset in (0, data.stat().st_size // 2, data.stat().st_size - 1):
            with self.subTest(offset=offset):
                flip_byte(data, offset)
                self.refuse(BAD_DATA, ["rank-00000.ckpt", "digest"], "inspect", self.last, "--verify")
                self.refuse(BAD_DATA, ["rank-00000.ckpt", "digest"], "train", self.longer, "--run-dir", "other",
                            "--resume-from-checkpoint", self.last)
                flip_byte(data, offset)
        self.tandem("inspect", self.last, "--verify")
        flip_byte(data, 100)
        self.refuse_everywhere("rank-00000.ckpt", "damaged")
        self.assert_goes_on_from_the_one_before()

    def test_a_flipped_byte_of_the_manifest(self):
        manifest = self.last / "manifest.json"
        size = manifest.stat().st_size
        for offset in range(3, size, size // 12):
            with self.subTest(offset=offset):
                flip_byte(manifest, offset)
                self.refuse(BAD_DATA, ["manifest.json"], "inspect", self.last)
                flip_byte(manifest, offset)
        self.tandem("inspect", self.last)
        flip_byte(manifest, size // 3)
        self.refuse_everywhere("manifest.json")
        self.assert_goes_on_from_the_one_before()

    def test_a_missing_data_file(self):
        (self.last / "rank-00000.ckpt").unlink()
        self.refuse_everywhere("rank-00000.ckpt")
        self.assert_goes_on_from_the_one_before()

    def test_a_truncated_data_file(self):
        data = self.last / "rank-00000.ckpt"
        data.write_bytes(data.read_bytes()[:-4])
        self.refuse_everywhere("rank-00000.ckpt")
        self.assert_goes_on_from_the_one_before()

    def test_a_missing_and_an_empty_manifest(self):
        (self.last / "manifest.json").write_text("")
        self.refuse_everywhere("manifest.json")
        (self.last / "manifest.json").unlink()
        self.refuse_everywhere("manifest.json")
        self.assert_goes_on_from_the_one_before()

    def test_no_good_checkpoint_left(self):
        for step in (2, 4):
            flip_byte(checkpoint(self.run_dir, step) / "rank-00000.ckpt", 5)
        self.refuse(BAD_DATA, ["none of 2 checkpoints", "--resume-from-checkpoint none"], "train", self.longer,
                    "--run-dir", self.run_dir)
        self.tandem("train", self.longer, "--run-dir", self.run_dir, "--resume-from-checkpoint", "none")
        self.assertEqual(6, len(read_metrics(self.run_dir)))
        self.assertTrue((self.directory / "run.1").is_dir(), "the earlier run was not kept")

    def test_paths_that_hold_no_checkpoint(self):
        (self.directory / "empty").mkdir()
        for command in ("evaluate", "sample", "inspect"):
            self.refuse(BAD_DATA, ["nowhere"], command, "nowhere")
            self.refuse(BAD_DATA, ["empty"], command, "empty")
        self.refuse(BAD_DATA, ["nowhere"], "train", self.longer, "--run-dir", "other", "--resume-from-checkpoint", "nowhere")

    def test_a_checkpoint_of_another_model(self):
        others = {"another family": config(GPT2), "another width": config({**MLP, "width": 80}),
                  "more layers": config({**MLP, "layers": 4}), "fewer layers": config({**MLP, "layers": 2}),
                  "another optimizer": config(MLP, train={"optimizer": "sgd"})}
        for name, content in others.items():
            with self.subTest(change=name):
                path = self.write_config(content, "other.yaml")
                self.refuse(BAD_DATA, ["step-00000004", "another model"], "train", path, "--run-dir", self.run_dir)
                self.refuse(BAD_DATA, ["another model"], "train", path, "--run-dir", "fresh", "--resume-from-checkpoint",
                            self.last)
        self.refuse(BAD_DATA, ["another model"], "evaluate", self.last, "--set", "model.width=80")

    def test_text_from_a_model_of_images(self):
        self.refuse(BAD_USAGE, ["not a language model"], "sample", self.run_dir)


class FullDisks(BadInputTest):
    CONTENT = config({**MLP, "width": 128}, train={"steps": 8}, checkpoint={"every": 1, "keep": 0})  # 1.6 MB each

    def assert_failed_save(self, result, run, whole_steps):
        """One error line at the end; every checkpoint that is there is whole, and no part of another."""
        self.assertEqual(FAILED, result.code, result)
        errors = [line for line in result.err.splitlines() if line.startswith("tandem: error: ")]
        self.assertEqual(errors, result.err.splitlines()[-1:])
        self.assertIn("checkpoints", errors[0])
        names = sorted(path.name for path in (run / "checkpoints").iterdir())
        self.assertEqual([*(["latest"] if whole_steps else []), *(f"step-{step:08}" for step in whole_steps)], names)
        for step in whole_steps:
            self.tandem("inspect", checkpoint(run, step), "--verify")
            self.assertEqual(step, read_manifest(run, step)["step"])

    def assert_goes_on(self, run):
        """With room again, the run ends as if nothing had been."""
        self.tandem("train", self.write_config(self.CONTENT), "--run-dir", run)
        self.assert_equal_runs(self.train(self.CONTENT, "undisturbed"), run)

    def small_disk(self, size):
        disk = self.directory / "disk"
        disk.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", disk], capture_output=True)
        if mounted.returncode != 0:
            self.skipTest("mounting takes root")
        self.addCleanup(subprocess.run, ["umount", disk], check=True)
        return disk

    def test_a_disk_that_fills_up_keeps_the_last_good_checkpoint(self):
        for mode in ("true", "false"):
            with self.subTest(asynchronous=mode):
                self.setUp()
                disk = self.small_disk("7m")
                command = "train", self.write_config(self.CONTENT), "--run-dir", disk / "run"
                result = self.tandem(*command, "--set", f"checkpoint.async={mode}", expect=None)
                steps = [int(path.name[5:]) for path in sorted((disk / "run" / "checkpoints").glob("step-*"))]
                self.assertGreaterEqual(len(steps), 2)
                self.assertLess(len(steps), 8)
                self.assertEqual(list(range(1, len(steps) + 1)), steps)
                self.assert_failed_save(result, disk / "run", steps)
                self.assertIn("disk full", result.err)
                subprocess.run(["mount", "-o", "remount,size=40m", disk], check=True)
                self.assert_goes_on(disk / "run")

    def test_a_disk_without_any_room_gets_no_run(self):
        disk = self.small_disk("64k")
        (disk / "filler").write_bytes(b"x" * (60 << 10))
        result = self.tandem("train", self.write_config(self.CONTENT), "--run-dir", disk / "run", expect=None)
        self.assert_one_line_error(result, FAILED, str(disk))
        self.assertEqual([], [path.name for path in disk.rglob("*tmp-*")])

    def test_a_write_that_fails_midway_leaves_no_part_of_a_checkpoint(self):
        # The file system has room, so nothing warns beforehand; the kernel cuts the write in the middle.
        limit = 1 << 20
        path, run = self.write_config(self.CONTENT), self.directory / "run"
        for mode in ("true", "false"):
            with self.subTest(asynchronous=mode):
                shutil.rmtree(run, ignore_errors=True)
                result = self.tandem("train", path, "--run-dir", run, "--set", f"checkpoint.async={mode}", expect=None,
                                     restore_signals=False,  # Python ignores SIGXFSZ: so does the program then
                                     preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
                self.assert_failed_save(result, run, [])
        self.assert_goes_on(run)

    def test_prepare_on_a_full_disk_leaves_nothing(self):
        disk = self.small_disk("256k")
        text = self.directory / "text.txt"
        text.write_text("much text " * 100000)
        result = self.tandem("prepare", "--out", disk / "shards", text, expect=None)
        self.assert_one_line_error(result, FAILED, str(disk))
        self.assertEqual([], os.listdir(disk))

    def test_what_was_refused_for_lack_of_room_is_not_counted_as_done(self):
        disk = self.small_disk("7m")
        run = disk / "run"
        self.tandem("train", self.write_config(self.CONTENT), "--run-dir", run, expect=FAILED)
        self.assertFalse((run / "summary.json").exists())
        self.assertEqual([], read_events(run, "end"))


if __name__ == "__main__":
    tandem_run.main()
