"""Pipelines whose store is on S3 (a server of another make): what one machine has made, another takes from there."""

import json
import pathlib
import shutil
import sys

from pipeline_folder import PipelineTest, tandem_run
from tandem_run import FAILED, snapshot

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "store"))
import s3_server  # noqa: E402

server = None

DAMAGE = """
import boto3, sys
boto3.client("s3").put_object(Bucket="bucket", Key=sys.argv[1], Body=sys.argv[2].encode())
"""
READ = """
import boto3, sys
sys.stdout.write(boto3.client("s3").get_object(Bucket="bucket", Key=sys.argv[1])["Body"].read().decode())
"""
REMOVE = """
import boto3, sys
for key in sys.argv[1:]: boto3.client("s3").delete_object(Bucket="bucket", Key=key)
"""
MAKE = [sys.executable, "-c", "import os, sys; os.makedirs(sys.argv[1] + '/in side'); open(sys.argv[1] + '/in side/it\\'s $(x)', 'w').write('y');"
        "os.symlink('in side', sys.argv[1] + '/link'); os.makedirs(sys.argv[1] + '/none'); p = sys.argv[1] + '/do'; open(p, 'w').close();"
        "os.chmod(p, 0o755)", "{out}"]


class Remote(PipelineTest):
    def setUp(self):
        super().setUp()
        self.prefix = self.id()
        self.env = {"HOME": str(self.directory), **server.variables}

    def make_folder(self, name, steps=None, **keys):
        """As a clone on another machine."""
        place = self.directory / name
        place.mkdir()
        (place / "in.txt").write_text("text")
        made = {"store": f"s3://bucket/{self.prefix}", "params": {"letter": "n"}, "steps": steps or {
            "a": {"run": "cp {in} {out}", "in": ["in.txt"], "out": "out/a.txt"},
            "b": {"run": "sed s/t/{letter}/ {a.out}", "out": "b.txt"},
            "c": {"run": [*MAKE], "out": "tree"},
            "d": {"run": "cat {a.out} {b.out}", "out": "d.txt", "needs": ["c"]}}, **keys}
        (place / "pipeline.yaml").write_text(json.dumps(made))
        return place

    def go(self, place, *arguments, **options):
        return self.tandem("pipeline", "run", place / "pipeline.yaml", *arguments, env=self.env, **options)

    def objects(self):
        return server.content(self.prefix + "/")[0]

    def record(self, step):
        (name,) = [key for key in self.objects() if key.endswith("/record.json") and f"/{step}-" in key]
        return name, json.loads(server.ask(READ, name))

    def test_another_machine_runs_nothing_again(self):
        one, other = self.make_folder("one"), self.make_folder("other")
        self.assertEqual(list("abcd"), self.ran(self.go(one)))
        result = self.go(other)
        self.assertEqual([], self.ran(result))
        self.assertEqual("textnext", (other / "d.txt").read_text())
        self.assertFalse((other / "b.txt").exists(), "nobody needed it")
        told = json.loads(self.tandem("pipeline", "status", other / "pipeline.yaml", "--json", env=self.env).out)
        self.assertEqual(["done"] * 4, [step["state"] for step in told["steps"]])
        # A change elsewhere runs its descendants, with what they need from the store.
        self.assertEqual(["b", "d"], self.ran(self.go(other, "--param", "letter=m")))
        self.assertEqual("textmext", (other / "d.txt").read_text())
        self.assertEqual([], self.ran(self.go(one, "--param", "letter=m")))
        self.assertEqual("textmext", (one / "d.txt").read_text())

    def test_trees_come_back_as_they_were(self):
        steps = {"c": {"run": [*MAKE], "out": "tree"}}
        one, other = self.make_folder("one", steps), self.make_folder("other", steps)
        self.go(one)
        self.assertEqual([], self.ran(self.go(other)))
        self.assertEqual(snapshot(one / "tree"), snapshot(other / "tree"))
        self.assertEqual("in side", str((other / "tree/link").readlink()))
        self.assertTrue((other / "tree/do").stat().st_mode & 0o100)

    def test_a_record_tells_what_made_it(self):
        one = self.make_folder("one")
        self.go(one)
        _, record = self.record("d")
        _, first = self.record("a")
        self.assertEqual(first["key"], record["needs"]["a"]["key"])
        self.assertEqual("in.txt", first["inputs"][0]["path"])
        self.assertRegex(first["inputs"][0]["digest"], r"^[0-9a-f]{32}$")
        self.assertEqual(["d.txt"], [entry["path"] for entry in record["files"]])
        self.assertTrue({"command", "host", "version", "start", "end"} <= set(record))
        self.assertTrue(any(key.endswith("/log") for key in self.objects()))

    def test_what_was_not_kept_yet_is_kept_then(self):
        """As after a kill between the end of a step and its upload."""
        one = self.make_folder("one")
        self.go(one)
        before = self.objects()
        server.ask(REMOVE, *before)
        for marker in one.glob("artifacts/*/kept"):
            marker.unlink()
        self.assertEqual([], self.ran(self.go(one)))
        self.assertEqual(sorted(before.values()), sorted(self.objects().values()))

    def test_two_at_the_same_time_have_one_result(self):
        steps = {"a": {"run": [sys.executable, "-c", "import os, time; time.sleep(1); print(os.urandom(8).hex())"], "out": "a.txt"}}
        one, other = self.make_folder("one", steps), self.make_folder("other", steps)
        process = self.start("pipeline", "run", one / "pipeline.yaml", env=self.env)
        self.go(other)
        process.wait(tandem_run.DEADLINE_S)
        self.assertEqual((one / "a.txt").read_text(), (other / "a.txt").read_text())
        self.assertEqual(3, len(self.objects()), "the loser's are gone")

    def test_damage_in_the_store_is_told_and_nothing_half_stays(self):
        steps = {"a": {"run": "cp {in} {out}", "in": ["in.txt"], "out": "a.txt"}}
        one = self.make_folder("one", steps)
        self.go(one)
        name, record = self.record("a")
        (data,) = [key for key in self.objects() if key.endswith("/a.txt")]
        good = server.ask(READ, data)
        server.ask(DAMAGE, data, "teXt")
        other = self.make_folder("other", steps)
        result = self.go(other, expect=FAILED)
        self.assertIn("is not what its record says", result.err)
        self.assertFalse((other / "a.txt").exists())
        server.ask(DAMAGE, data, good)
        for path in ("../../../outside", "/tmp/outside", "a/../../outside"):
            server.ask(DAMAGE, name, json.dumps({**record, "files": [{**record["files"][0], "path": path}]}))
            result = self.go(other, expect=FAILED)
            self.assertIn("names a file", result.err)
        self.assertEqual([], list(self.directory.rglob("outside")))
        server.ask(DAMAGE, name, json.dumps(record))
        self.go(other)
        self.assertEqual("text", (other / "a.txt").read_text())

    def test_a_bucket_that_is_not_there(self):
        one = self.make_folder("one", store="s3://no-such-bucket/x")
        result = self.go(one, expect=FAILED)
        self.assertIn("no-such-bucket", result.err)
        shutil.rmtree(one)


def main():
    global server
    with s3_server.S3Server() as server:
        tandem_run.main()


if __name__ == "__main__":
    s3_server.skip_without_server(main)
