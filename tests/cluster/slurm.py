"""`tandem submit --slurm`, `logs` and `cancel` on a real Slurm of three nodes.

Skipped where Slurm is not installed (scripts/setup --cluster) or nodes cannot be made (root can). Run by
scripts/test --cluster.
"""

import json
import os
import pathlib
import signal
import subprocess

from slurm_run import NODES, SECONDS, SlurmTest, network, tandem_run
from tandem_run import LLAMA, config, read_events, read_metrics


class Slurm(SlurmTest):
    def test_three_nodes_give_the_curve_of_one(self):
        content = self.settings(12)
        path = self.write_config(content)
        job = self.submit("--nodes", NODES, path, "--run-dir", "launched")
        direct = self.submit("--nodes", NODES, "--no-launcher", path, "--run-dir", "direct")
        alone = self.undisturbed(content)
        for number, run in ((job, "launched"), (direct, "direct")):
            self.wait_for_end(number)
            self.assert_equal_runs(alone, self.directory / run)
            summary = tandem_run.read_summary(self.directory / run)
            self.assertEqual(NODES, summary["world_size"])
            self.assertEqual("node-0", summary["hostname"])
        self.assertEqual([], list(self.directory.glob(".tandem-secret*")))
        logs = self.at_switch("logs", job).out
        self.assertEqual(self.output(job), logs)
        self.assertIn("step", logs)
        self.assertIn("has ended already", self.at_switch("cancel", job).out)

    def long(self):
        """A run that has not ended when a test interrupts it: thousands of steps, which are then cut short."""
        return self.settings(400)

    def test_preempted_and_requeued(self):
        content = self.long()
        job = self.submit("--nodes", NODES, self.write_config(content), "--run-dir", "run")
        self.wait_for_steps("run", 20)
        urgent = self.cluster.command("sbatch", "--parsable", "--partition=urgent", f"--nodes={NODES}", "--exclusive",
                                      "--output=/dev/null", "--wrap", "sleep 3")
        self.wait_for_end(urgent)
        self.wait_for_end(job)
        self.assertIn("goes back into the queue", self.output(job))
        self.check_goes_on(content, "interrupt")

    def check_goes_on(self, content, how):
        """What was interrupted at least once has every step once, with the numbers of a run that was not."""
        run = self.directory / "run"
        self.assertGreaterEqual(len(read_events(run, "resume")), 1)
        if how:
            self.assertGreaterEqual(len(read_events(run, how)), 1)
        self.assert_equal_runs(self.undisturbed(content), run)
        self.assertEqual([str(step + 1) for step in range(content["train"]["steps"])],
                         [row["step"] for row in read_metrics(run)])

    def test_time_limit_reached_and_requeued(self):
        # Slurm looks at limits twice a minute, and counts whole minutes: the signal comes within a minute.
        content = self.settings(6000)
        job = self.submit("--nodes", NODES, "--time", "1", "--grace", "50", self.write_config(content), "--run-dir", "run")
        self.cluster.wait(lambda: "goes back into the queue" in self.output(job), "the time limit", SECONDS)
        saved = read_events(self.directory / "run", "interrupt")[0]["step"]
        self.cluster.wait(lambda: read_events(self.directory / "run", "resume"), "the next start", SECONDS)
        self.assertEqual(saved, read_events(self.directory / "run", "resume")[0]["step"])
        self.at_switch("cancel", job)
        self.cluster.wait(lambda: self.cluster.show(job)["JobState"] == "CANCELLED", "cancel", SECONDS)
        # What the run has up to here is what one has that is not disturbed.
        rows = read_metrics(self.directory / "run")
        self.assertGreater(len(rows), saved)
        content["train"]["steps"] = len(rows)
        self.assertEqual(rows, read_metrics(self.undisturbed(content)))

    def test_a_lost_node(self):
        content = self.long()
        content["checkpoint"]["every"] = 20
        job = self.submit("--nodes", NODES, self.write_config(content), "--run-dir", "run")
        self.wait_for_steps("run", 50)
        self.lose_node(2)
        self.cluster.command("scontrol", "update", "NodeName=node-2", "State=DOWN", "Reason=lost")
        self.cluster.wait(lambda: self.cluster.show(job)["Restarts"] == "1", "the requeue", SECONDS)
        self.cluster.start_node(2)
        self.cluster.command("scontrol", "update", "NodeName=node-2", "State=RESUME")
        self.wait_for_end(job)
        self.check_goes_on(content, None)

    def lose_node(self, number):
        """As a power cut: everything of a node's ends at once."""
        holder = self.network.nodes[number].holder.pid
        space = os.readlink(f"/proc/{holder}/ns/net")
        daemon = self.cluster.daemons.pop(f"node-{number}")
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if int(process.name) != holder and os.readlink(process / "ns/net") == space:
                    os.kill(int(process.name), signal.SIGKILL)
            except OSError:
                continue
        daemon.wait()

    def test_follow_and_cancel(self):
        job = self.submit("--nodes", NODES, "--name", "long one", self.write_config(self.settings(1000000)), "--run-dir", "run")
        self.wait_for_steps("run", 5)
        follower = subprocess.Popen(self.network.switch.enter(tandem_run.program(), "logs", "long one", "--follow"),
                                    cwd=self.directory, env={**os.environ, **self.environment}, stdout=subprocess.PIPE,
                                    stderr=subprocess.PIPE, text=True)
        status = json.loads(self.at_switch("status", "long one", "--json").out)
        self.assertEqual((job, "RUNNING", "node-[0-2]"), (status["job"], status["state"], status["tasks"][0]["nodes"]))
        self.assertEqual(1000000, status["run_status"]["of"])  # the run's own file, which is written once a second
        self.assertIn(f"job {job} (long one) on slurm: RUNNING\n", self.at_switch("status", job).out)
        self.assertIn("cancelled", self.at_switch("cancel", "long one").out)
        out, _ = follower.communicate(timeout=SECONDS)
        self.assertEqual(0, follower.returncode)
        self.assertEqual(self.output(job), out)
        self.assertEqual("CANCELLED", self.cluster.show(job)["JobState"])
        self.assertEqual("0", self.cluster.show(job)["Restarts"])
        # Slurm's SIGTERM comes first: the work is saved.
        self.assertEqual(1, len(read_events(self.directory / "run", "interrupt")))

    def test_doctor_measures_the_links_of_a_job(self):
        secret = self.directory / "secret"
        secret.write_bytes(os.urandom(32).hex().encode())
        secret.chmod(0o600)
        words = self.cluster.command("env", f"TANDEM_SECRET_FILE={secret}", f"MASTER_ADDR={self.network.nodes[0].address}", "srun",
                                     f"--nodes={NODES}", "--ntasks-per-node=1", "--chdir", self.directory, tandem_run.program(),
                                     "doctor", "--cluster", "--json")
        report = json.loads(words)
        self.assertEqual([f"node-{number}" for number in range(NODES)], [node["name"] for node in report["nodes"]])
        self.assertTrue(all(rate > 0 for row in report["bytes_per_s"] for rate in row if rate is not None))

    def test_an_array_of_seeds(self):
        content = config({**LLAMA, "layers": 1}, train={"steps": 3})
        job = self.submit("--array", "1-3", "--run-dir", "runs/seed-%a", "--set", "train.seed=%a", self.write_config(content))
        losses = set()
        for task in (1, 2, 3):
            self.wait_for_end(f"{job}_{task}")
            losses.add(read_metrics(self.directory / f"runs/seed-{task}")[-1]["loss"])
            self.assertEqual((self.directory / f"slurm-{job}_{task}.out").read_text(),
                             self.at_switch("logs", f"{job}_{task}").out)
        self.assertEqual(3, len(losses))
        self.assertIn("name one of its tasks", self.at_switch("logs", job, expect=2).err)

    def test_hostile_values_stay_values(self):
        evil = "a \"b\" 'c' \\ $(touch hit) `touch hit` ; # &"
        content = config({**LLAMA, "layers": 1}, train={"steps": 2})
        path = self.write_config(content, f"{evil.replace('/', '')}.yaml")
        job = self.submit("--comment", evil, "--name", evil, "--run-dir", evil, path)
        self.wait_for_end(job)
        self.assertTrue((self.directory / evil / "summary.json").exists())
        self.assertFalse((self.directory / "hit").exists())
        self.assertEqual(evil, self.cluster.command("squeue", "-h", "-t", "all", "-j", job, "-o", "%j"))
        self.assertEqual(evil, self.cluster.command("squeue", "-h", "-t", "all", "-j", job, "-o", "%k"))

    def test_what_slurm_refuses_is_one_line(self):
        path = self.write_config(config({**LLAMA, "layers": 1}))
        for words, part in ((("--partition", "none"), "artition"), (("--time", "soon"), "time")):
            result = self.at_switch("submit", "--slurm", *words, path, expect=None)
            self.assert_one_line_error(result, 1, "sbatch: ", part)


if __name__ == "__main__":
    network.main()
