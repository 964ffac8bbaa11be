"""Checkpoints that are damaged, missing or another model's, and disks that are full: the last good one stays."""

import json
import os
import resource
import shutil
import subprocess

import tandem_run
from tandem_run import (BAD_DATA, BAD_USAGE, FAILED, GPT2, MLP, TandemTest, checkpoint, config, read_events,
                        read_manifest, read_metrics)


def flip_byte(path, offset):
    content = bytearray(path.read_bytes())
    content[offset] ^= 0x20
    path.write_bytes(content)


class BadCheckpoints(TandemTest):
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
        for run in ("other", self.run_dir):
            self.refuse(BAD_DATA, parts, "train", self.longer, "--run-dir", run, "--resume-from-checkpoint", self.last)

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
        self.refuse(BAD_DATA, ["step-00000004", "damaged"], "inspect", self.run_dir, "--verify")
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

    def test_a_manifest_with_a_byte_more(self):
        manifest = self.last / "manifest.json"
        manifest.write_bytes(manifest.read_bytes() + b" ")
        size = manifest.stat().st_size
        self.refuse_everywhere("manifest.json", "its content is right, but not its text",
                               f"expected {size - 1} bytes, found {size}")
        self.assert_goes_on_from_the_one_before()

    def test_values_of_a_megabyte_are_not_shown_whole(self):
        (self.last / "manifest.json").write_text(json.dumps({"version": "x" * 1_000_000, "digest": ""}))
        for result in (self.refuse(BAD_DATA, ["manifest.json: expected format version", "read it with"], "inspect", self.last),
                       self.tandem("train", self.longer, "--run-dir", self.run_dir)):
            self.assertIn("[... ", result.err)
            self.assertLess(len(result.err), 10_000)
        for name in ("events.jsonl", "logs/rank-0.log"):
            self.assertLess((self.run_dir / name).stat().st_size, 20_000)

    def test_a_manifest_nested_deeper_than_a_stack(self):
        for depth in (100_000, 300_000):
            for text in ("[" * depth + "]" * depth, '{"version":2,"digest":"","a":' + "[" * depth + "]" * depth + "}"):
                (self.last / "manifest.json").write_text(text)
                self.refuse(BAD_DATA, ["manifest.json", "nested"], "inspect", self.last)
                self.refuse(BAD_DATA, ["manifest.json", "nested"], "train", self.longer, "--run-dir", "other",
                            "--resume-from-checkpoint", self.last)
        self.assert_goes_on_from_the_one_before()

    def test_metrics_nested_deeper_than_a_stack(self):
        shutil.copytree(self.run_dir, self.directory / "other")
        with open(self.run_dir / "metrics.jsonl", "a") as file:
            file.write('{"step":5,"a":' + "[" * 300_000 + "]" * 300_000 + "}\n")
        result = self.tandem("inspect", self.run_dir, "--compare", "other", expect=None)
        self.assert_one_line_error(result, BAD_DATA, "metrics.jsonl: line 5", "nested")

    def test_a_manifest_of_a_terabyte(self):
        os.truncate(self.last / "manifest.json", 1 << 40)
        for command in (("inspect", self.last), ("train", self.longer, "--run-dir", "other", "--resume-from-checkpoint", self.last)):
            result = self.tandem(*command, expect=None)
            self.assert_one_line_error(result, BAD_DATA, "manifest.json", "expected at most")
        self.assert_goes_on_from_the_one_before()

    def assert_no_file(self, path, *command):
        """What is no file is not waited for: opened as one, a FIFO that nobody writes to takes for ever."""
        kept = path.with_name("kept")
        path.rename(kept)
        for make, kind in ((os.mkfifo, "FIFO"), (os.mkdir, "directory"), (lambda name: os.symlink("/dev/zero", name), "device")):
            with self.subTest(path=path.name, kind=kind):
                make(path)
                try:
                    result = self.tandem(*command, expect=None, timeout=60)
                finally:
                    path.rmdir() if kind == "directory" else path.unlink()
                self.assertEqual(BAD_DATA, result.code, result)
                self.assertIn(f"{path.name}: expected a regular file, found a {kind}", result.err.splitlines()[-1])
        kept.rename(path)

    def test_what_is_no_file_is_not_waited_for(self):
        train = "train", self.longer, "--run-dir", self.run_dir
        resume = "train", self.longer, "--run-dir", "other", "--resume-from-checkpoint", self.last
        shutil.copytree(self.run_dir, self.directory / "copy")
        for name in ("manifest.json", "rank-00000.ckpt"):
            self.assert_no_file(self.last / name, "inspect", self.last, "--verify")
            self.assert_no_file(self.last / name, *resume)
        for name in ("metrics.jsonl", "metrics.csv", "events.jsonl", "logs/rank-0.log"):
            self.assert_no_file(self.run_dir / name, *train)
        self.assert_no_file(self.run_dir / "metrics.jsonl", "inspect", self.run_dir, "--compare", "copy")

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
        self.refuse(BAD_DATA, ["nowhere"], "train", self.longer, "--run-dir", "other", "--resume-from-checkpoint",
                    "nowhere")

    def test_a_checkpoint_of_another_model(self):
        others = {"another family": config(GPT2), "another width": config({**MLP, "width": 80}),
                  "more layers": config({**MLP, "layers": 4}), "fewer layers": config({**MLP, "layers": 2}),
                  "another optimizer": config(MLP, train={"optimizer": "sgd"})}
        for name, content in others.items():
            with self.subTest(change=name):
                path = self.write_config(content, "other.yaml")
                told = "another optimizer's state" if "optimizer" in name else "another model"
                self.refuse(BAD_DATA, ["step-00000004", told], "train", path, "--run-dir", self.run_dir)
                self.refuse(BAD_DATA, [told], "train", path, "--run-dir", "fresh",
                            "--resume-from-checkpoint", self.last)
        self.refuse(BAD_DATA, ["another model"], "evaluate", self.last, "--set", "model.width=80")

    def test_text_from_a_model_of_images(self):
        self.refuse(BAD_USAGE, ["not a language model"], "sample", self.run_dir)


class FullDisks(TandemTest):
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

    def test_a_disk_with_room_for_what_is_kept_is_enough(self):
        # Three are kept, and there is no room for a fourth before the oldest goes. With less room the advice works.
        disk = self.small_disk("7m")
        command = "train", self.write_config(self.CONTENT), "--run-dir", disk / "run"
        self.tandem(*command, "--set", "checkpoint.keep=3")
        self.assertEqual([6, 7, 8], [int(path.name[5:]) for path in sorted((disk / "run/checkpoints").glob("step-*"))])
        subprocess.run(["mount", "-o", "remount,size=6m", disk], check=True)
        longer = "--set", "train.steps=10"
        result = self.tandem(*command, *longer, "--set", "checkpoint.keep=0", expect=FAILED)
        self.assertIn("free some space or set checkpoint.keep (3 are kept)", result.err)
        self.tandem(*command, *longer, "--set", "checkpoint.keep=2")
        for step in (9, 10):
            self.tandem("inspect", checkpoint(disk / "run", step), "--verify")

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
