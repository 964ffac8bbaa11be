"""tandem dash as a program: what it answers, what it refuses, how fast it opens large runs, and a report's file."""

import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))

import tandem_run  # noqa: E402
from tandem_run import BAD_DATA, BAD_USAGE, DONE, MLP, TandemTest, config  # noqa: E402


class DashTest(TandemTest):
    def serve(self, *arguments, env=None):
        """Starts the server on a free port; gives the address that it prints."""
        process = subprocess.Popen([tandem_run.program(), "dash", *map(str, arguments), "--port", "0"], text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.directory,
                                   env={**os.environ, **(env or {})})
        for end in (process.stdout.close, process.stderr.close, process.wait, process.kill):
            self.addCleanup(end)
        self.process = process
        address = process.stdout.readline().strip()
        self.host, self.port = re.match(r"http://(.*):(\d+)/", address).groups()
        return address

    def get(self, path, headers=None, method="GET"):
        connection = http.client.HTTPConnection("127.0.0.1", int(self.port), timeout=60)
        connection.request(method, path, headers=headers or {})
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer, body.decode()

    def synthetic_run(self, name, steps):
        """A run of that many steps, as if trained."""
        run = self.directory / name
        run.mkdir(parents=True)
        with open(run / "metrics.jsonl", "w") as file:
            for step in range(1, steps + 1):
                loss = 99 if step == steps // 3 else 2 + 8 / step
                file.write(f'{{"step":{step},"epoch":0,"loss":{loss},"lr":0.001,"grad_norm":1.25,"loss_scale":1,'
                           f'"tokens":{step * 4096},"tokens_per_s":8518.4811661994,"step_ms":480.83689100030824,'
                           f'"data_wait_ms":0.032698,"rss_bytes":118083584,"device_bytes":0,"mfu":0.10748695622708551,'
                           f'"time":"2026-11-18T05:39:03.733Z"}}\n')
        (run / "config.yaml").write_text(f"name: {name}\ntrain:\n  steps: {steps}\n")
        return run


class Answers(DashTest):
    def test_a_real_run_with_its_curves_memory_and_arena(self):
        self.train(config(MLP, train={"steps": 8, "eval_every": 4}), "runs/a")
        self.serve("runs")
        runs = json.loads(self.get("/api/runs")[1])
        self.assertEqual([("a", "done", 8, 8)], [(r["id"], r["state"], r["step"], r["of"]) for r in runs])
        curves = json.loads(self.get("/api/series?id=a&names=loss,eval_loss")[1])
        rows = [json.loads(line) for line in (self.directory / "runs/a/metrics.jsonl").read_text().splitlines()]
        self.assertEqual([row["loss"] for row in rows], curves["loss"]["y"])
        self.assertEqual([4, 8], curves["eval_loss"]["s"])
        detail = json.loads(self.get("/api/run?id=a")[1])
        self.assertGreater(detail["plan"]["planned_total"], 0)
        self.assertEqual(["8"], [row["value"] for row in detail["config"] if row["key"] == "train.steps"])
        arena = json.loads(self.get("/api/arena?id=a")[1])
        self.assertTrue(arena["buffers"])
        for offset, size, first, last in arena["buffers"]:
            self.assertLessEqual(offset + size, arena["arena_bytes"])
            self.assertLessEqual(first, last)
        self.process.send_signal(signal.SIGTERM)
        self.assertEqual(DONE, self.process.wait(60))

    def test_a_run_of_many_steps_keeps_what_stands_out(self):
        steps = int(os.environ.get("TANDEM_DASH_STEPS", "20000"))
        self.synthetic_run("runs/long", steps)
        self.serve("runs")
        start = time.monotonic()
        curves = json.loads(self.get("/api/series?id=long&points=1000&names=loss,lr,grad_norm,mfu,step_ms")[1])
        print(f"{steps} steps open in {time.monotonic() - start:.2f} s; server {self.peak_mib():.0f} MiB")
        self.assertIn(99, curves["loss"]["y"])
        self.assertLess(len(curves["loss"]["y"]), 1100)
        finer = json.loads(self.get(f"/api/series?id=long&points=1000&names=loss&from={steps // 3 - 5}&to={steps // 3 + 5}")[1])
        self.assertEqual(11, len(finer["loss"]["y"]))

    def test_many_runs_are_listed(self):
        count = int(os.environ.get("TANDEM_DASH_RUNS", "40"))
        for number in range(count):
            self.synthetic_run(f"runs/run-{number}", 5)
        self.serve("runs")
        start = time.monotonic()
        self.assertEqual(count, len(json.loads(self.get("/api/runs")[1])))
        print(f"{count} runs listed in {time.monotonic() - start:.2f} s")

    def peak_mib(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024


class Refusals(DashTest):
    def setUp(self):
        super().setUp()
        self.synthetic_run("runs/a", 3)
        (self.directory / "outside").write_text("not yours")

    def test_paths_and_hosts(self):
        self.serve("runs")
        for path in ("/..%2f..%2foutside", "/../outside", "/runs/a/metrics.jsonl", "/api/run?id=../outside", "/api/run?id=%2e%2e",
                     "/api/series?id=/etc", "/api/nothing", "/%2e%2e/outside"):
            with self.subTest(path=path):
                answer, body = self.get(path)
                self.assertIn(answer.status, (400, 404))
                self.assertNotIn("not yours", body)
        self.assertEqual(421, self.get("/", {"Host": "rebound.example"})[0].status)
        self.assertEqual(405, self.get("/", method="POST")[0].status)
        answer, _ = self.get("/")
        self.assertIn("default-src 'none'", answer.getheader("Content-Security-Policy"))

    def test_another_host_needs_the_token(self):
        address = self.serve("runs", "--host", "0.0.0.0")
        token = re.search(r"token=([0-9a-f]{32})$", address)[1]
        self.assertEqual(401, self.get("/")[0].status)
        self.assertEqual(401, self.get("/api/runs")[0].status)
        answer, _ = self.get("/?token=" + token)
        self.assertEqual(200, answer.status)
        cookie = answer.getheader("Set-Cookie").split(";")[0]
        self.assertEqual(200, self.get("/api/runs", {"Cookie": cookie})[0].status)

    def test_run_directories_that_are_none(self):
        odd = self.directory / "runs" / "odd"
        odd.mkdir()
        os.mkfifo(odd / "events.jsonl")
        (odd / "metrics.jsonl").write_bytes(b"\xff\xfe{]\n" + b"[" * 100000 + b'\n{"step":1,"loss":2}\n')
        (odd / "config.yaml").symlink_to("../../outside")
        (odd / "plan.json").write_text("[" * 100000)
        (odd / "summary.json").write_text('{"a":' * 5000)
        self.serve("runs")
        self.assertEqual({"a", "odd"}, {run["id"] for run in json.loads(self.get("/api/runs")[1])})
        answer, body = self.get("/api/run?id=odd")
        self.assertEqual(200, answer.status)
        self.assertNotIn("not yours", body)
        self.assertEqual([2], json.loads(self.get("/api/series?id=odd&names=loss")[1])["loss"]["y"])
        self.assertEqual("null", self.get("/api/arena?id=odd")[1])

    def test_slow_and_greedy_clients(self):
        self.serve("runs")
        clients = [socket.create_connection(("127.0.0.1", int(self.port))) for _ in range(500)]
        for client in clients:
            self.addCleanup(client.close)
            client.sendall(b"GET /api/runs HTTP/1.1\r\nX-Slow: ")
        self.assertEqual(200, self.get("/api/runs")[0].status)
        clients[0].sendall(b"a" * 20000)
        self.assertIn(b"431", clients[0].recv(100))

    def test_mistakes_on_the_command_line(self):
        self.refuse(BAD_DATA, ["nowhere", "no such folder"], "dash", "nowhere")
        self.refuse(BAD_USAGE, ["no such address"], "dash", "runs", "--host", "no.such.host.invalid")
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            self.refuse(1, [f"127.0.0.1:{port}", "in use"], "dash", "runs", "--port", port)
        (self.directory / "empty").mkdir()
        self.refuse(BAD_DATA, ["no run"], "report", "empty", "--out", "report.html")


class Compare(DashTest):
    def test_of_a_run_with_itself_and_with_another(self):
        for name, lr in (("a", 0.002), ("b", 0.004)):
            self.train(config(MLP, train={"steps": 4, "lr": lr}), name)
        same = self.tandem("compare", "a", "a").out
        self.assertIn("losses are equal bit for bit in all 4 steps", same)
        differs = self.tandem("compare", "a", "b", "--plot", "loss").out
        self.assertRegex(differs, r"train\.lr +0\.002 +0\.004")
        self.assertIn("losses differ from step 2 on", differs)
        self.assertRegex(differs, "[\u2801-\u28ff]")
        self.assertEqual(["train.lr"], [row["key"] for row in json.loads(self.tandem("compare", "a", "b", "--json").out)["config"]])
        self.refuse(BAD_DATA, ["nowhere", "metrics.jsonl"], "compare", "a", "nowhere")


class Report(DashTest):
    def test_is_one_file_with_all_runs_that_asks_nobody(self):
        for name in ("a", "b</script>"):
            self.synthetic_run(f"runs/{name.replace('/', '')}", 4)
        self.tandem("report", "runs", "--out", "report.html")
        page = (self.directory / "report.html").read_text()
        data = json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.S)[1])
        self.assertEqual({"a", "b<script>"}, set(data["series"]))
        self.assertEqual(4, len(data["series"]["a"]["loss"]["y"]))
        self.assertEqual([], re.findall(r'(?:src|href)="(?!data:|#)[^"]*"', page))


if __name__ == "__main__":
    tandem_run.main()
