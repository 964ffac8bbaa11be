"""The power is cut while a run trains and saves: every checkpoint that was reported as saved is there and whole, no other is half
there, and the run goes on to the bits of one that nobody disturbed. On ext4 with a journal and without.

The file system lies on a disk that logs each write and flush (power_disk.cpp, FUSE). At a cut, what was flushed is there; of
what was written after the last flush, any part may be. Skips, and says so, where FUSE, loop devices or mkfs.ext4 are missing.

`power_cut.py --tandem PATH --disk PATH [--cuts N]`: N cuts of each file system.
"""

import argparse
import contextlib
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "dist"))

import ranks  # noqa: E402
import tandem_run  # noqa: E402
from ranks import GPT2, config, mesh  # noqa: E402
from tandem_run import DONE  # noqa: E402

STEPS = 40
DISK_BYTES = 48 << 20
BLOCK = 4096
RECORD = struct.Struct("=QQQ")
KINDS = {"with a journal": (), "without a journal": ("-O", "^has_journal")}

options = None  # of the command line


def shell(*command):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120)
    if done.returncode != 0:
        raise OSError(f"{' '.join(map(str, command))}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip()


def read_log(path, length):
    """(offset, bytes) of writes, and None for flushes, in order."""
    data, at, records = path.read_bytes()[:length], 0, []
    while at + RECORD.size <= len(data):
        what, offset, size = RECORD.unpack_from(data, at)
        at += RECORD.size
        if what == 1:
            records.append(None)
        elif at + size > len(data):
            break
        else:
            records.append((offset, data[at:at + size]))
            at += size
    return records


def after_cut(first, records, rng):
    """The disk's bytes: all that was flushed, and of the rest any blocks."""
    disk = bytearray(first)
    flushed = max((number for number, record in enumerate(records) if record is None), default=-1)
    likely = rng.choice((0, 0.1, 0.5, 0.9, 1))
    for number, record in enumerate(records):
        if record is None:
            continue
        offset, data = record
        for begin in range(0, len(data), BLOCK):
            part = data[begin:begin + BLOCK]
            if number < flushed or rng.random() < likely:
                disk[offset + begin:offset + begin + len(part)] = part
    return disk


class PowerCut(ranks.RanksTest):
    @contextlib.contextmanager
    def mounted(self, file, place):
        device = shell("losetup", "--find", "--show", file)
        try:
            shell("mount", "-t", "ext4", device, place)
            try:
                yield
            finally:
                shell("umount", place)
        finally:
            shell("losetup", "-d", device)

    def make_disk(self, kind):
        """The image as it is before the run, and the disk's process."""
        image, logged = self.directory / "image", self.directory / "logged"
        logged.mkdir(exist_ok=True)
        image.write_bytes(b"")
        os.truncate(image, DISK_BYTES)
        try:
            shell("mkfs.ext4", "-q", "-F", *KINDS[kind], image)
            disk = subprocess.Popen([options.disk, image, self.directory / "log", logged], stderr=subprocess.DEVNULL)
        except OSError as error:
            self.skipTest(f"no disk can be made here: {error}")
        self.addCleanup(disk.wait)
        self.addCleanup(lambda: subprocess.call(["umount", "-l", logged], stderr=subprocess.DEVNULL))
        for _ in range(200):
            if (logged / "disk").exists():
                return image.read_bytes(), logged / "disk"
            if disk.poll() is not None:
                self.skipTest("FUSE cannot be mounted here")
            time.sleep(0.05)
        self.fail("the disk does not answer")

    def content(self):
        return config(GPT2, parallel=mesh("fsdp", data=2), train={"steps": STEPS, "batch": 8, "micro_batch": 1},
                      checkpoint={"every": 2, "keep": 3})

    def reported(self, run):
        """Steps whose checkpoints were reported as saved, in order."""
        path = run / "events.jsonl"
        return [event["step"] for event in tandem_run.read_events(run, "checkpoint")] if path.exists() else []

    def train_on(self, disk, place, rng):
        """Trains there; (steps reported so far, bytes of the log a moment later) at random moments."""
        moments, log = [], self.directory / "log"
        try:
            with self.mounted(disk, place):
                launchers = self.start_ranks(2, "train", self.write_config(self.content(), "cut.yaml"), "--run-dir", place / "run")
                while launchers.poll() is None:
                    with contextlib.suppress(OSError, ValueError):  # a line that is being written
                        moments.append((self.reported(place / "run"), log.stat().st_size))
                    time.sleep(rng.uniform(0, 0.02))
                self.assertEqual([DONE], launchers.wait(), launchers.errors(0))
        except OSError as error:
            if not moments:
                self.skipTest(f"no disk can be mounted here: {error}")
            raise
        return moments

    def check(self, kind):
        rng, place = random.Random(len(kind)), self.directory / "place"
        place.mkdir()
        first, disk = self.make_disk(kind)
        whole = self.train(self.content(), "whole")
        moments = self.train_on(disk, place, rng)
        self.assertGreater(len(moments), 20)
        for number, (reported, length) in enumerate(rng.sample(moments, min(options.cuts, len(moments)))):
            with self.subTest(kind=kind, cut=number, reported=reported):
                cut = self.directory / "cut"
                cut.write_bytes(after_cut(first, read_log(self.directory / "log", length), rng))
                found = subprocess.run(["e2fsck", "-fy", str(cut)], capture_output=True, text=True)  # as a machine does when it starts
                self.assertLess(found.returncode, 4, found.stdout)
                self.check_run(cut, place, reported, whole)

    def check_run(self, cut, place, reported, whole):
        run = self.directory / "went-on"
        shutil.rmtree(run, ignore_errors=True)
        with self.mounted(cut, place):
            if (place / "run").exists():
                shutil.copytree(place / "run", run, symlinks=True)
        there = sorted(path.name for path in (run / "checkpoints").glob("step-*"))
        for name in there:
            self.tandem("inspect", run / "checkpoints" / name, "--verify")
        # A newer one may have taken its place since.
        newest = max((int(name.removeprefix("step-")) for name in there), default=0)
        if reported:
            self.assertGreaterEqual(newest, reported[-1], f"reported {reported}, found {there}")
        elif (run / "checkpoints").exists() and not (run / "checkpoints").is_dir():
            (run / "checkpoints").unlink()  # without a journal, what a check of the disk makes of a new directory
        self.train(self.content(), run.name)
        self.assert_equal_runs(whole, run)

    def test_with_a_journal(self):
        self.check("with a journal")

    def test_without_a_journal(self):
        self.check("without a journal")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--disk", required=True, type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--cuts", type=int, default=3)
    options, sys.argv[1:] = parser.parse_known_args()
    if not shutil.which("mkfs.ext4"):
        raise SystemExit(print("skipped: mkfs.ext4 (package e2fsprogs) not found") or 77)
    ranks.main()
