"""The page of `tandem dash` in a browser, beside a run that trains: points appear, runs are laid over each other, zoom, keys,
phone and dark; no error, no request that leaves the server, no violation that axe-core knows.

The browser is Debian's chromium, its driver and axe-core come from npm into --modules at the first run. Without them the suite is
skipped and says so. With --shots DIR it leaves pictures.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))

import dash  # noqa: E402
import tandem_run  # noqa: E402
from tandem_run import GPT2, config  # noqa: E402

PACKAGES = ("playwright-core@1", "axe-core@4")
_modules = _shots = None


def missing():
    """Why the browser cannot be had; empty where it can."""
    for program in ("chromium", "npm", "node"):
        if not shutil.which(program):
            return f"{program} is not installed"
    if all((_modules / "node_modules" / package.split("@")[0]).is_dir() for package in PACKAGES):
        return ""
    _modules.mkdir(parents=True, exist_ok=True)
    (_modules / "package.json").write_text("{}")
    try:
        done = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--prefix", _modules, *PACKAGES],
                              capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        shutil.rmtree(_modules)
        return "npm install took longer than 120 s"
    return f"npm install failed: {done.stderr.strip()[-200:]}" if done.returncode else ""


class Page(dash.DashTest):
    @classmethod
    def setUpClass(cls):
        reason = missing()
        if reason:
            raise unittest.SkipTest(reason)

    def test_beside_a_run_of_two_ranks(self):
        self.train(config(GPT2, train={"steps": 30, "eval_every": 10, "lr": 0.001}, checkpoint={"every": 10}), "runs/<b>before<b>")
        self.tandem("profile", self.directory / "runs/<b>before<b>.yaml", "--steps", "1", "--trace", self.directory / "runs/<b>before<b>/trace.json")
        content = config(GPT2, parallel={"strategy": "fsdp", "data": 2}, train={"steps": 1000000, "batch": 8, "micro_batch": 1, "eval_every": 20},
                         checkpoint={"every": 20})
        path = self.write_config(content, "live.yaml")
        self.start("launch", "--nproc-per-node", "2", "train", path, "--run-dir", self.directory / "runs/live")
        metrics = self.directory / "runs/live/metrics.jsonl"
        self.wait_for(lambda: metrics.exists() and metrics.read_bytes().count(b"\n") > 5, "steps")
        address = self.serve("runs")
        done = subprocess.run(["node", pathlib.Path(__file__).with_name("page.mjs"), _modules, shutil.which("chromium"), address, "live",
                               "<b>before<b>", _shots or ""], capture_output=True, text=True, timeout=tandem_run.DEADLINE_S)
        self.assertEqual(0, done.returncode, done.stderr)
        seen = json.loads(done.stdout)
        self.assertEqual([], seen["errors"])
        self.assertEqual([], seen["requests"])
        self.assertEqual([], seen["violations"])
        self.assertGreater(seen["later"], seen["first"])
        self.assertIn("<b>before<b>", seen["lines"])
        self.assertIn("live", seen["lines"])
        self.assertEqual([True, True, True, True], [seen["zoomed"], seen["panned"], seen["tip"], seen["reset"]])
        lags = sorted(seen["lags"])
        print(f"points are drawn {lags[len(lags) // 2]:.2f} s after their steps, at most {lags[-1]:.2f} s")
        if "TANDEM_BARS" in os.environ:  # the clock decides nothing where others use the machine, too
            self.assertLess(lags[-1], 2)
        self.assertTrue(all(os.uname().nodename in rank for rank in seen["ranks"]), seen["ranks"])
        self.assertIn("train.lr", seen["differing"])
        self.assertRegex(seen["timeline"], r"Timeline of one step of .*: \d\d+ commands on 1 streams")
        self.assertEqual(["dark", True], seen["dark"])
        self.assertTrue(seen["phone"][1], "the page is wider than a phone")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--modules", required=True, type=pathlib.Path)
    parser.add_argument("--shots")
    known, rest = parser.parse_known_args()
    _modules, _shots = known.modules.resolve(), known.shots
    sys.argv = [sys.argv[0], *rest]
    tandem_run.main()
