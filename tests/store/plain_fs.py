#!/usr/bin/env python3
"""Suites of other folders on a file system without locks, without renamed directories and without atomic replacement (plain_fs.cpp, FUSE):
whatever they promise of a disk holds there. Skips, and says so, where FUSE cannot be mounted.

--suite names others than those of CI; seen to pass: recovery/branches.py, recovery/changes.py, recovery/lost_ranks.py.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

TESTS = pathlib.Path(__file__).resolve().parents[1]
QUICK = ("recovery/kill.py",)
SKIPPED = 77


def mounted(program, backing, place):
    """The file system's process, once it serves; None where that is not possible here."""
    process = subprocess.Popen([program, backing, place], stdout=subprocess.DEVNULL)
    for _ in range(100):
        if os.path.ismount(place):
            return process
        if process.poll() is not None:
            return None
        time.sleep(0.05)
    process.kill()
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tandem", required=True)
    parser.add_argument("--plain-fs", required=True)
    parser.add_argument("--suite", action="append")
    arguments = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tandem-plain-"))
    backing, place = folder / "backing", folder / "place"
    backing.mkdir()
    place.mkdir()
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        print("skipped: /dev/fuse cannot be opened")
        return SKIPPED
    process = mounted(arguments.plain_fs, backing, place)
    if process is None:
        print("skipped: FUSE cannot be mounted here")
        return SKIPPED
    failed = []
    try:
        try:
            (place / "a").mkdir()
            (place / "a").rename(place / "b")
            raise SystemExit("plain_fs renames directories: it tests nothing")
        except OSError:
            pass
        for suite in arguments.suite or QUICK:
            print(f"== {suite}", flush=True)
            command = [sys.executable, TESTS / suite, "--tandem", arguments.tandem]
            if subprocess.call(command, env={**os.environ, "TANDEM_TEST_DIRECTORY": str(place)}) != 0:
                failed.append(suite)
    finally:
        subprocess.call(["fusermount3", "-u", "-z", place])
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)
    for suite in failed:
        print(f"failed there: {suite}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
