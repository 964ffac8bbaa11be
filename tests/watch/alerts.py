"""What a run tells while nobody looks: its webhook, loss spikes with the samples that did it, stragglers, and how it stands."""

import http.server
import json
import math
import os
import pathlib
import re
import signal
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))

import tandem_run  # noqa: E402
from tandem_run import BAD_DATA, GPT2, MLP, TandemTest, config  # noqa: E402


class Listener:
    """A server that keeps the JSON objects it is sent."""

    def __init__(self, test, status=200):
        told = self.told = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                told.append((self.headers["Content-Type"], json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
                self.send_response(status)
                self.end_headers()

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        test.addCleanup(server.server_close)
        test.addCleanup(server.shutdown)
        self.url = f"http://127.0.0.1:{server.server_address[1]}/hook"

    def types(self):
        return [told["type"] for _, told in self.told]


class Webhook(TandemTest):
    def test_is_told_of_start_end_and_resume(self):
        listener = Listener(self)
        content = config(MLP, log={"webhook": listener.url}, train={"steps": 4}, checkpoint={"every": 2})
        run = self.train(content, "told")
        self.assertEqual(["start", "end"], listener.types())
        kind, end = listener.told[-1]
        self.assertEqual("application/json", kind)
        self.assertEqual(("told", 4), (end["run"], end["step"]))
        self.assertIn("trained to step 4", end["text"])
        self.train(content, "told", "--set", "train.steps=6")
        self.assertEqual(["resume", "start", "end"], listener.types()[2:])
        self.assertEqual([], tandem_run.read_events(run, "sink"))

    def test_is_told_of_a_failure(self):
        listener = Listener(self)
        path = self.write_config(config(MLP, log={"webhook": listener.url}, train={"lr": 1e30, "clip": 0, "steps": 40}))
        self.assertIn("diverged", self.tandem("train", path, "--run-dir", "bad", expect=1).err)
        self.assertIn("diverged", listener.types())
        self.assertNotIn("failure", listener.types())  # it was told
        self.assertEqual("diverged", json.loads((self.directory / "bad/status.json").read_text())["state"])

    def test_that_nobody_hears_does_not_stop_the_run(self):
        for url in (f"http://127.0.0.1:{tandem_run.free_port()}/x", Listener(self, status=500).url):
            path = self.write_config(config(MLP, log={"webhook": url}))
            self.tandem("train", path, "--run-dir", "deaf", "--resume-from-checkpoint", "none")
            self.assertEqual(5, len(tandem_run.read_metrics(self.directory / "deaf")))


class Spikes(TandemTest):
    def test_are_events_with_the_samples_of_their_batch(self):
        # A step at a huge rate at step 40 makes the next losses stand out.
        content = config(MLP, train={"steps": 45, "lr": 0.5, "schedule": "points", "warmup": 0,
                                     "points": [[0, 0.001], [39, 0.001], [40, 1], [41, 0.001], [45, 0.001]]})
        run = self.train(content, "spike")
        (spike,) = tandem_run.read_events(run, "spike")
        losses = [float(row["loss"]) for row in tandem_run.read_metrics(run)]
        self.assertEqual(41, spike["step"])
        self.assertTrue(math.isclose(spike["loss"], losses[40], rel_tol=1e-6))
        self.assertLess(spike["usual"], spike["loss"])
        batch = content["train"]["batch"]
        self.assertEqual((40 * batch, batch), (spike["first_sample"], spike["num_samples"]))
        self.assertEqual(batch, len(set(spike["samples"])))
        self.assertEqual([], [event for event in tandem_run.read_events(run, "diverging")])


class Status(TandemTest):
    def status(self, *arguments):
        return json.loads(self.tandem("status", *arguments, "--json").out)

    def test_of_a_run_that_trains_is_killed_and_ends(self):
        content = config(GPT2, train={"steps": 1000000}, checkpoint={"every": 5})
        path, run = self.write_config(content), self.directory / "run"
        process = self.start("train", path, "--run-dir", run)
        self.wait_for(lambda: (run / "status.json").exists() and self.status(run)["last_checkpoint"], "a checkpoint", 0.1)
        seen = self.status(run)
        self.assertEqual(("running", True, 1000000, process.pid), (seen["state"], seen["alive"], seen["of"], seen["pid"]))
        self.assertGreater(seen["tokens_per_s"], 0)
        self.assertGreater(seen["eta_s"], 0)
        self.assertEqual([0], [rank["rank"] for rank in seen["ranks"]])
        text = self.tandem("status", run).out
        self.assertRegex(text, r"run: running, step \d+ of 1000000 .* left\nloss \d.*last checkpoint step \d+, process \d+ on ")
        process.kill()
        process.wait()
        seen = self.status(run)
        self.assertEqual(("killed", False), (seen["state"], seen["alive"]))
        process = self.start("train", path, "--run-dir", run)
        # The file that the killed process left says "running", too.
        self.wait_for(lambda: (self.status(run)["pid"], self.status(run)["state"]) == (process.pid, "running"), "the run to go on", 0.1)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(75, process.wait())
        self.assertEqual("interrupted", self.status(run)["state"])

    def test_of_a_run_that_is_done_and_of_none(self):
        run = self.train(config(MLP), "run")
        seen = self.status(run)
        self.assertEqual(("done", 5, 5), (seen["state"], seen["step"], seen["of"]))
        self.assertIn("run: done, step 5 of 5", self.tandem("status", run, "--watch").out)
        (run / "status.json").unlink()
        self.assertEqual("done", self.status(run)["state"])
        (run / "status.json").write_text("[" * 100000)
        self.assertEqual("done", self.status(run)["state"])
        self.refuse(BAD_DATA, ["nowhere", "no run"], "status", "nowhere")


class Stragglers(TandemTest):
    def test_a_rank_that_the_other_waits_for_is_named(self):
        listener = Listener(self)
        content = config(GPT2, parallel={"strategy": "ddp", "data": 2}, log={"webhook": listener.url},
                         train={"steps": 1000000, "batch": 8, "micro_batch": 1, "eval_every": 0}, checkpoint={"every": 0})
        path, run = self.write_config(content), self.directory / "run"
        launch = self.start("launch", "--nproc-per-node", "2", "train", path, "--run-dir", run,
                            env={"TANDEM_TEST_FAULT": "slow:1:20"})

        def ranks():
            try:
                return json.loads((run / "status.json").read_text())["ranks"]
            except (OSError, ValueError):
                return []

        self.wait_for(lambda: "straggler" in listener.types(), "that the straggler is told of")
        self.wait_for(lambda: "slow" in [rank["state"] for rank in ranks()], "status.json to show it")
        self.wait_for(lambda: re.search(r"\n1 .* slow ", self.tandem("status", run).out), "status to show it")
        told = next(told for _, told in listener.told if told["type"] == "straggler")
        self.assertEqual(1, told["rank"])
        self.assertGreater(told["busy_ms"], told["others_ms"])
        self.assertEqual(1, tandem_run.read_events(run, "straggler")[0]["rank"])
        launch.send_signal(signal.SIGTERM)
        self.assertEqual(75, launch.wait())
        self.assertRegex((run / "logs/rank-0.log").read_text(), "rank 1 is slow")


if __name__ == "__main__":
    tandem_run.main()
