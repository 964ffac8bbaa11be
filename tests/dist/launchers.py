"""The launchers of one launch, one for each node, and what they and their ranks have said."""

import os
import re
import subprocess

import tandem_run


def told(code, out, err):
    """A launcher's result. What a node without rank 0 says of itself is apart: its suite is launch.py."""
    lines = err.splitlines(keepends=True)
    own = [line for line in lines if re.match(r"tandem launch: node \d+ of \d+: ", line)]
    result = tandem_run.Result(code, out, "".join(line for line in lines if line not in own))
    result.about_its_node = "".join(own)
    return result


class Launchers:
    """They end with the test at the latest. What several print goes to files, so that nobody waits for a reader."""

    def __init__(self, test, logs, env):
        self.test, self.logs, self.env = test, logs, env
        self.commands, self.processes = {}, {}  # by node

    def start(self, node, *command):
        self.commands[node] = command
        self.start_again(node)

    def start_again(self, node):
        with open(self.path("out", node), "ab") as out, open(self.path("err", node), "ab") as err:
            process = subprocess.Popen(self.test.at(node, *self.commands[node]), cwd=self.test.directory,
                                       stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                       env={**os.environ, **(self.env or {})})
        self.test.addCleanup(process.wait)
        self.test.addCleanup(lambda: process.poll() is None and process.kill())
        self.processes[node] = process

    def path(self, stream, node):
        return self.logs.with_name(f"{self.logs.name}.{stream}-{node}")

    def errors(self, node):
        return self.path("err", node).read_text(errors="replace")

    def log(self, rank):
        path = self.logs / f"rank-{rank}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def pid(self, rank):
        """Of the last attempt."""
        return int(re.findall(r"^--- .*, rank \d+, pid (\d+)$", self.log(rank), re.M)[-1])

    def poll(self):
        """As that of a process: None while one of them runs."""
        codes = [process.poll() for process in self.processes.values()]
        return None if None in codes else max(codes)

    def wait(self):
        """Their exit codes."""
        return [process.wait(tandem_run.DEADLINE_S) for process in self.processes.values()]

    def results(self):
        """Of each, once all have ended."""
        return [told(code, self.path("out", node).read_text(errors="replace"), self.errors(node))
                for node, code in zip(self.processes, self.wait())]
