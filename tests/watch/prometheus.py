"""A live run of two ranks beside a real Prometheus, which finds every rank's figures; promtool has nothing to say of the text."""

import json
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import unittest
import urllib.parse
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))

import tandem_run  # noqa: E402
from tandem_run import BAD_USAGE, GPT2, MLP, TandemTest, config, free_port  # noqa: E402

SCRAPE = """
global: {scrape_interval: 1s}
scrape_configs:
  - job_name: tandem
    static_configs: [{targets: ["127.0.0.1:%d"]}]
"""


def fetch(port, path, accept="*/*"):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.read().decode()


def fetch_or_none(port, path):
    try:
        return fetch(port, path)
    except OSError:
        return None


class Prometheus(TandemTest):
    def start_run(self):
        port = free_port()
        content = config(GPT2, parallel={"strategy": "fsdp", "data": 2}, log={"prometheus": f"127.0.0.1:{port}"},
                         train={"steps": 1000000, "batch": 8, "micro_batch": 1, "eval_every": 5}, checkpoint={"every": 0})
        path = self.write_config(content)
        self.start("launch", "--nproc-per-node", "2", "train", path, "--run-dir", self.directory / "run")
        self.wait_for(lambda: 'tandem_step_seconds{run="run",rank="1"}' in (fetch_or_none(port, "/metrics") or ""), "both ranks", 0.1)
        self.wait_for(lambda: "tandem_eval_loss{" in fetch(port, "/metrics"), "an evaluation", 0.1)
        # The launcher's part: it looks a few times a second.
        self.wait_for(lambda: re.search(r'tandem_rank_state{run="run",rank="1",state="\w+"} 1', fetch(port, "/metrics")), "the launcher's word", 0.1)
        self.assertIn('tandem_launcher_restarts_total{run="run"} 0', fetch(port, "/metrics"))
        return port

    @unittest.skipUnless(shutil.which("promtool") and shutil.which("prometheus"), "prometheus is not installed")
    def test_scrapes_a_live_run(self):
        port = self.start_run()
        for accept in ("*/*", "application/openmetrics-text"):
            text = fetch(port, "/metrics", accept)
            checked = subprocess.run(["promtool", "check", "metrics"], input=text if accept == "*/*" else "", capture_output=True, text=True)
            self.assertEqual((0, "", ""), (checked.returncode, checked.stdout, checked.stderr), text)
        self.assertTrue(text.endswith("# EOF\n"))
        (self.directory / "prometheus.yml").write_text(SCRAPE % port)
        web = free_port()
        server = subprocess.Popen(["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data",
                                   f"--web.listen-address=127.0.0.1:{web}"], cwd=self.directory, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)

        def ranks():
            answer = json.loads(fetch_or_none(web, "/api/v1/query?query=tandem_step_seconds") or '{"data":{"result":[]}}')
            return {(sample["metric"]["rank"], sample["metric"]["run"]) for sample in answer["data"]["result"]}

        self.wait_for(lambda: ranks() == {("0", "run"), ("1", "run")}, "Prometheus to have both ranks", 0.2)
        found = json.loads(fetch(web, "/api/v1/query?query=tandem_tokens_total"))["data"]["result"]
        self.assertGreater(float(found[0]["value"][1]), 0)
        self.check_board(web)

    def check_board(self, web):
        """Every query of docs/grafana.json finds something in the run; of a GPU's, Prometheus at least understands them."""
        board = json.loads((pathlib.Path(__file__).resolve().parents[2] / "docs/grafana.json").read_text())
        queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
        self.assertGreater(len(queries), 15)
        for query in queries:
            wanted = urllib.parse.quote(query.replace("$run", ".*"))
            answer = json.loads(fetch(web, f"/api/v1/query?query={wanted}"))
            self.assertEqual("success", answer["status"], query)
            names = set(re.findall(r"tandem_\w+", query))
            self.assertTrue(answer["data"]["result"] or any("gpu" in name for name in names), query)
        source = (pathlib.Path(__file__).resolve().parents[2] / "tandem/metrics/prometheus/prometheus_text.cpp").read_text()
        for name in set(re.findall(r"tandem_gpu_\w+", json.dumps(board))):
            self.assertIn(f'"{name}"', source)

    def test_the_file_for_the_node_exporter_has_the_same_names(self):
        path = self.write_config(config(MLP, log={"prometheus_file": str(self.directory / "tandem.prom")}))
        self.tandem("train", path, "--run-dir", "run")
        text = (self.directory / "tandem.prom").read_text()
        self.assertIn('tandem_step{run="run"} 5\n', text)
        self.assertFalse((self.directory / "tandem.prom.new").exists())
        if shutil.which("promtool"):
            checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
            self.assertEqual((0, "", ""), (checked.returncode, checked.stdout, checked.stderr), text)
        path = self.write_config(config(MLP, log={"prometheus_file": "/nowhere/tandem.prom"}))
        done = self.tandem("train", path, "--run-dir", "other")
        self.assertEqual(1, done.err.count("/nowhere/tandem.prom: cannot be written; training goes on"), done.err)

    def test_a_port_that_is_taken_is_told_once_and_stops_nothing(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            path = self.write_config(config(MLP, log={"prometheus": address}))
            done = self.tandem("train", path, "--run-dir", "run")
        self.assertEqual(1, done.err.count(f"{address}: cannot be listened on: Address already in use"), done.err)
        self.assertEqual(5, len(tandem_run.read_metrics(self.directory / "run")))

    def test_what_is_no_address_is_refused(self):
        path = self.write_config(config(MLP))
        for bad in ("9090", "localhost:", "a:b:c", "localhost:99999"):
            self.refuse(BAD_USAGE, ["log.prometheus", "HOST:PORT", bad], "train", path, "--set", f"log.prometheus={bad}")


if __name__ == "__main__":
    tandem_run.main()
