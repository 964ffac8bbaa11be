"""What the suites about `tandem launch` share.

The programs are small shell scripts, so that what is tested is the launcher alone. On several nodes (network.py) each
has a launcher, and they share the ranks.
"""

import os
import pathlib
import subprocess

import network  # first: it finds the others
import launchers
import tandem_run
from tandem_run import DONE

VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK",
             "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT",
             "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RUN_ID", "OMP_NUM_THREADS")
SECRETS = ("TANDEM_SECRET", "TANDEM_SECRET_FILE", "TANDEM_INSECURE")
DEADLINE_S = 60

# Writes its environment to env-<rank>-<restarts>, whole or not at all.
SHOW = ("env > .env-$RANK && mv .env-$RANK env-$RANK-$TORCHELASTIC_RESTART_COUNT")
SAVE_ON_SIGNAL = "trap 'touch saved-$RANK; exit 75' INT TERM; touch up-$RANK; while true; do sleep 0.02; done"


def is_alive(pid):
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


class LaunchTest(network.NodesTest):
    def setUp(self):
        super().setUp()
        self.environment = {key: value for key, value in os.environ.items()
                            if key not in VARIABLES + SECRETS}
        self.environment["TMPDIR"] = str(self.directory / "tmp")
        (self.directory / "tmp").mkdir()
        self.num_launches = 0

    def launch(self, *arguments, expect=DONE):
        """By one launcher."""
        return self.result(self.agent(*arguments), expect)

    def launch_ranks(self, num_ranks, *arguments, expect=DONE):
        """One result for each node."""
        return self.results(self.agents(num_ranks, *arguments), expect)

    def agents(self, num_ranks, *arguments):
        """Starts one launcher on each node."""
        self.num_launches += 1
        return [self.agent("--nproc-per-node", share, *self.place(node, self.num_launches), *arguments, node=node)
                for node, share in enumerate(self.shares(num_ranks))]

    def agent(self, *arguments, node=0, **options):
        """Starts a launcher, which ends with the test at the latest."""
        process = subprocess.Popen(self.at(node, tandem_run.program(), "launch", *arguments), text=True,
                                   errors="replace", cwd=self.directory, env=self.environment,
                                   **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE,
                                      "stderr": subprocess.PIPE, **options})
        for stream in (process.stdout, process.stderr):
            if stream:
                self.addCleanup(stream.close)
        self.addCleanup(process.wait)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        return process

    def results(self, agents, expect=DONE):
        return [self.result(agent, expect) for agent in agents]

    def result(self, agent, expect=DONE):
        out, err = agent.communicate(timeout=DEADLINE_S)
        result = launchers.told(agent.returncode, out or "", err or "")
        if expect is not None:
            self.assertEqual(expect, result.code, result)
        return result

    def exists(self, name):
        return (self.directory / name).exists()

    def shown(self, rank, restarts=0, names=VARIABLES):
        """The environment that SHOW wrote."""
        lines = (self.directory / f"env-{rank}-{restarts}").read_text().splitlines()
        pairs = dict(line.split("=", 1) for line in lines if "=" in line)
        return {name: pairs.get(name) for name in names}

    def log(self, rank, directory="logs"):
        """Lines of a rank's log without the launcher's own."""
        lines = (self.directory / directory / f"rank-{rank}.log").read_text().splitlines()
        return [line for line in lines if not line.startswith("--- ")]


def joined(results):
    """What all launchers have printed, as (stdout, stderr)."""
    return "".join(result.out for result in results), "".join(result.err for result in results)
