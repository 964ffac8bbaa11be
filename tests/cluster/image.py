"""What scripts/image packs is whole: unpacked, and with nothing else in sight, a user without rights trains with it on a root file
system that cannot be written to. Needs root, for namespaces; container tools are not needed. Run by scripts/test --cluster."""

import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
import tandem_run
from tandem_run import REPOSITORY, TandemTest

# The image's root is all that there is; /work and /tmp are what a pod's volumes are.
WORK = "/work"
INSIDE = """set -e
mount --bind "$0" "$0"
for folder in work tmp; do mount -t tmpfs -o mode=1777 tmpfs "$0/$folder"; done
mount --bind "$1" "$0/work"
mount -t proc proc "$0/proc"
mount -o remount,bind,ro "$0"
root=$0
shift
exec chroot --userspec=65532:65532 --groups= "$root" "$@"
"""


class Image(TandemTest):
    def setUp(self):
        super().setUp()
        if os.geteuid() != 0 or not shutil.which("unshare"):
            raise unittest.SkipTest("needs root and unshare")
        done = subprocess.run([REPOSITORY / "scripts/image"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        self.assertEqual(0, done.returncode, done.stderr)
        self.archive = REPOSITORY / done.stdout.split()[-1]
        self.root, self.work = self.directory / "root", self.directory / "work"
        self.work.mkdir()
        os.chown(self.work, 65532, 65532)
        with tarfile.open(self.archive) as image:
            (self.manifest,) = json.load(image.extractfile("./manifest.json"))
            self.config = json.load(image.extractfile(f"./{self.manifest['Config']}"))
            (layer,) = self.manifest["Layers"]
            content = image.extractfile(f"./{layer}").read()
        self.assertEqual([f"sha256:{hashlib.sha256(content).hexdigest()}"], self.config["rootfs"]["diff_ids"])
        (self.directory / "layer.tar").write_bytes(content)
        with tarfile.open(self.directory / "layer.tar") as layer:
            layer.extractall(self.root)
        self.directory.chmod(0o755)

    def inside(self, *words):
        env = dict(entry.split("=", 1) for entry in self.config["config"]["Env"])
        done = subprocess.run(["unshare", "--mount", "--net", "--pid", "--fork", "sh", "-c", INSIDE, self.root, self.work, *map(str, words)],
                              env={**env, "PATH": os.environ["PATH"]}, capture_output=True, text=True, timeout=240,
                              stdin=subprocess.DEVNULL)
        return tandem_run.Result(done.returncode, done.stdout, done.stderr)

    def test_the_quickstart_trains_there_as_nobody(self):
        self.assertEqual("65532:65532", self.config["config"]["User"])
        self.assertIn("tandem 0.", self.inside("/usr/bin/tandem", "--version").out)
        result = self.inside("/usr/bin/tandem", "train", "/usr/share/tandem/configs/quickstart.yaml", "--run-dir", f"{WORK}/run", "--set",
                             "train.steps=4", "--set", "checkpoint.every=2")
        self.assertEqual(0, result.code, result)
        run = self.work / "run"
        self.assertEqual(4, len(tandem_run.read_metrics(run)))
        self.assertEqual(65532, (run / "metrics.jsonl").stat().st_uid)
        refused = self.inside("/usr/bin/tandem", "train", "/usr/share/tandem/configs/quickstart.yaml", "--run-dir", "/usr/run")
        self.assertEqual(1, refused.code, refused)
        self.assertIn("Read-only file system", refused.err)

    def test_there_is_no_shell_and_the_same_commit_gives_the_same_bytes(self):
        programs = [path.relative_to(self.root) for path in self.root.rglob("*") if path.is_file() and os.access(path, os.X_OK)
                    and ".so" not in path.name]
        self.assertEqual(["usr/bin/tandem"], [str(path) for path in programs if "configs" not in str(path)])
        before = hashlib.sha256(self.archive.read_bytes()).hexdigest()
        subprocess.run([REPOSITORY / "scripts/image"], check=True, capture_output=True, stdin=subprocess.DEVNULL)
        self.assertEqual(before, hashlib.sha256(self.archive.read_bytes()).hexdigest())


if __name__ == "__main__":
    tandem_run.main()
