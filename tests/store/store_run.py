"""What the suites of runs with a store share. A test has a prefix of its own on a server that all share."""

import json
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))

import s3_server  # noqa: E402
import tandem_run  # noqa: E402
from tandem_run import DONE, GPT2, TandemTest, config  # noqa: E402

STEPS = 8

server = None


class StoreTest(TandemTest):
    def setUp(self):
        super().setUp()
        self.store = f"s3://bucket/{self.id()}"
        self.variables = server.variables

    def content(self, store=True, **sections):
        checkpoint = {"every": 2, "keep": 2, **({"store": self.store} if store else {}), **sections.pop("checkpoint", {})}
        train = {"steps": STEPS, "schedule": "constant", "eval_every": 0, **sections.pop("train", {})}
        return config(GPT2, train=train, checkpoint=checkpoint, **sections)

    def command(self, content, run, *arguments, ranks=1):
        launch = ("launch", "--nproc-per-node", ranks, "--max-restarts", 0) if ranks > 1 else ()
        path = self.write_config(content, f"{run}.yaml")
        return *launch, "train", path, "--run-dir", self.directory / run, *arguments

    def environment(self, **changes):
        """Nothing of the machine's own keys."""
        return {"HOME": str(self.directory), **self.variables, **changes}

    def run_tandem(self, *arguments, expect=DONE, **changes):
        return self.tandem(*arguments, expect=expect, env=self.environment(**changes))

    def train_there(self, content, run, *arguments, ranks=1, **options):
        self.run_tandem(*self.command(content, run, *arguments, ranks=ranks), **options)
        return self.directory / run

    def assert_same(self, one, other):
        self.run_tandem("inspect", one, "--compare", other)

    def prefix(self):
        return self.store.removeprefix("s3://bucket/") + "/"

    def assert_all_is_named(self, beside=()):
        """Whatever lies in the store belongs to a checkpoint, or gc names it: nothing is lost sight of. `gc` names nothing but `beside`."""
        listed = self.run_tandem("gc", self.store).out
        objects, uploads, texts = server.content_and_texts(self.prefix())
        names = {key.removeprefix(self.prefix()) for key in objects}
        claims = sorted(name for name in names if name.startswith("claim-"))
        needed = {"latest", "best", *claims[-1:]}
        may_be = {"alive-" + json.loads(texts[self.prefix() + name])["run"] for name in claims[-1:]}  # while it lives, or was killed
        for name in names:
            if name.endswith("/manifest.json"):
                folder = name.removesuffix("manifest.json")
                manifest = json.loads(texts[self.prefix() + name])
                needed |= {name, *(folder + file["name"] for file in manifest["files"])}
        names = {name for name in names if not name.startswith("runs/")}  # what runs say of themselves
        for name in names - needed - may_be:
            self.assertIn(name + " ", listed)
            self.assertIn(name, beside)
        for upload in uploads:
            self.assertIn(upload, listed)
            self.assertIn(upload, beside)
        self.assertEqual(set(), needed - names - {"latest", "best"})
        self.assertIn(f" {len(beside)} object", listed)

    def assert_no_secret(self, *folders):
        secrets = [server.variables[name].encode() for name in ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID")]
        for folder in folders:
            for path in pathlib.Path(folder).rglob("*"):
                if path.is_file() and not path.is_symlink():
                    for secret in secrets:
                        self.assertNotIn(secret, path.read_bytes(), path)


def main():
    def run():
        global server
        with s3_server.S3Server() as server:
            tandem_run.main()
    # The suites are scripts, this is a module: one and the same `server`.
    s3_server.skip_without_server(run)
