"""What `tandem submit --dry-run` prints does what it says, whatever names and values hold. No cluster is needed: batch
scripts run under bash, with programs of Slurm's names that only write down how they were called."""

import json
import os
import pathlib
import subprocess
import sys
import unittest

try:
    import yaml
except ImportError:  # Debian's python3-yaml; scripts/setup --tests installs it
    yaml = None

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
import tandem_run
from tandem_run import BAD_USAGE, LLAMA, TandemTest, config

# Appends its arguments and what it sees of the secret to calls.jsonl. `srun` ends with the code in $SRUN_CODE.
RECORDER = """#!/usr/bin/env python3
import json, os, pathlib, sys
secret = os.environ.get("TANDEM_SECRET_FILE")
file = pathlib.Path(secret) if secret else None
call = {"program": os.path.basename(sys.argv[0]), "words": sys.argv[1:], "secret": file.read_text() if file and file.exists() else None,
        "mode": oct(file.stat().st_mode & 0o777) if file and file.exists() else None, "master": os.environ.get("MASTER_ADDR")}
with open(os.environ["CALLS"], "a") as calls:
    calls.write(json.dumps(call) + "\\n")
if call["program"] == "scontrol" and sys.argv[1] == "show":
    os.write(1, b"node-a\\nnode-b\\n")  # at once: `head` reads no further
if call["program"] == "squeue":
    print(os.environ["STATE"])
if call["program"] == "srun":
    sys.exit(int(os.environ["SRUN_CODE"]))
"""

HOSTILE = "it's \"here\" \\ $(touch hit) `touch hit` ${HOME} ; touch hit # & | > hit *\nsecond: line\n- x"


def read_yaml(text):
    """The documents of a text, by a reader of another make."""
    if yaml is None:
        raise unittest.SkipTest("python3-yaml is not installed: scripts/setup --tests")
    return list(yaml.safe_load_all(text))


class SlurmScripts(TandemTest):
    def setUp(self):
        super().setUp()
        tools = self.directory / "tools"
        tools.mkdir()
        for name in ("srun", "scontrol", "squeue"):
            (tools / name).write_text(RECORDER)
            (tools / name).chmod(0o755)
        (tools / "sleep").symlink_to("/bin/true")
        self.tools = tools
        self.config = self.write_config(config({**LLAMA, "layers": 1}, parallel={"strategy": "fsdp"}, train={"batch": 18}))

    def script(self, *arguments):
        return self.tandem("submit", "--slurm", "--dry-run", *arguments).out

    def run_script(self, script, code=0, state="RUNNING", **variables):
        """Runs it as Slurm would; its exit code and the calls that it made."""
        calls = self.directory / "calls.jsonl"
        calls.unlink(missing_ok=True)
        env = {**os.environ, "PATH": f"{self.tools}:{os.environ['PATH']}", "CALLS": str(calls), "SRUN_CODE": str(code),
               "STATE": state, "SLURM_JOB_ID": "12", "SLURM_NNODES": "2", "SLURM_JOB_NODELIST": "node-[a-b]", **variables}
        done = subprocess.run(["bash"], input=script, text=True, cwd=self.directory, env=env, capture_output=True, timeout=60)
        self.assertEqual("", done.stderr)
        return done.returncode, [json.loads(line) for line in calls.read_text().splitlines()]

    def test_nodes_meet_at_the_first_with_a_secret_that_goes_with_the_job(self):
        code, calls = self.run_script(self.script("--nodes", 2, "--ranks-per-node", 3, "--program", "/opt/tandem", self.config))
        self.assertEqual(0, code)
        (srun,) = [call for call in calls if call["program"] == "srun"]
        words = srun["words"]
        at = words.index("/opt/tandem")
        self.assertEqual(["launch", "--nnodes", "2", "--nproc-per-node", "3"], words[at + 1:at + 6])
        self.assertEqual("node-a:20024", words[words.index("--rdzv-endpoint") + 1])
        self.assertEqual(["train", str(self.config)], words[-2:])
        self.assertGreater(len(srun["secret"]), 16)
        self.assertEqual("0o600", srun["mode"])
        self.assertEqual([], list(self.directory.glob(".tandem-secret*")))
        # What srun runs on each node tells the launcher its number.
        shown = subprocess.run([*words[:at], "sh", "-c", "echo $PET_NODE_RANK"], capture_output=True, text=True,
                               env={**os.environ, "SLURM_NODEID": "7"})
        self.assertEqual("7\n", shown.stdout)

    def requeues(self, calls):
        return [call["words"] for call in calls if call["program"] == "scontrol" and call["words"][0] == "requeue"]

    def test_requeued_where_saved_and_only_there(self):
        script = self.script("--max-requeues", 5, self.config, "--set", "parallel.strategy=ddp")
        for code, state, restarts, requeued in ((75, "RUNNING", "0", True), (75, "CANCELLED", "0", False), (75, "", "0", False),
                                                (1, "RUNNING", "0", False), (0, "RUNNING", "0", False),
                                                (75, "RUNNING", "4", True), (75, "RUNNING", "5", False)):
            with self.subTest(code=code, state=state, restarts=restarts):
                ended, calls = self.run_script(script, code, state, SLURM_RESTART_COUNT=restarts)
                self.assertEqual(code, ended)
                self.assertEqual([["requeue", "12"]] if requeued else [], self.requeues(calls))

    def test_a_task_of_an_array_is_requeued_alone(self):
        script = self.script("--array", "1-3", self.config, "--run-dir", "runs/%a", "--set", "train.seed=%a")
        _, calls = self.run_script(script, 75, SLURM_ARRAY_JOB_ID="12", SLURM_ARRAY_TASK_ID="3")
        self.assertEqual([["requeue", "12_3"]], self.requeues(calls))
        words = next(call["words"] for call in calls if call["program"] == "srun")
        self.assertEqual(["--set", "train.seed=3", "--run-dir", "runs/3"], words[-4:])
        self.refuse(BAD_USAGE, ["--array", "--run-dir runs/NAME-%a"], "submit", "--slurm", "--dry-run", "--array", "1-3", self.config)

    def test_hostile_values_reach_the_program_as_they_are(self):
        path = self.write_config(config({**LLAMA, "layers": 1}), f"{HOSTILE.replace('/', '')}.yaml")
        script = self.script("--program", HOSTILE, "--run-dir", HOSTILE, path, "--set", f"name={'x'}", "--name", "a 'b' $(touch hit)")
        _, calls = self.run_script(script)
        words = next(call["words"] for call in calls if call["program"] == "srun")
        self.assertEqual(HOSTILE, words[0])
        self.assertEqual([str(path), "--set", "name=x", "--run-dir", HOSTILE], words[-5:])
        self.assertFalse((self.directory / "hit").exists())
        directives = [line for line in script.splitlines() if line.startswith("#SBATCH")]
        self.assertEqual(script.split("\n\n")[0].count("#SBATCH"), len(directives))
        for flag in ("--name", "--comment", "--partition", "--output", "--constraint"):
            self.refuse(BAD_USAGE, ["line break"], "submit", "--slurm", "--dry-run", self.config, flag, "a\n#SBATCH --uid=0")

    def test_what_is_wrong_is_said_before_the_queue(self):
        self.refuse(BAD_USAGE, ["say where to"], "submit", self.config)
        self.refuse(BAD_USAGE, ["train.batch"], "submit", "--slurm", "--dry-run", "--nodes", 5, self.config)
        self.refuse(BAD_USAGE, ["JOB 77: was not submitted from here"], "logs", "77", env={"XDG_STATE_HOME": "/nonexistent"})
        self.refuse(BAD_USAGE, ["JOB 77: was not submitted from here"], "cancel", "77", env={"XDG_STATE_HOME": "/nonexistent"})
        self.refuse(BAD_USAGE, ["sbatch: is not installed"], "submit", "--slurm", self.config, "--set", "parallel.strategy=ddp",
                    env={"PATH": str(self.directory), "XDG_STATE_HOME": "/nonexistent"})


class Manifests(TandemTest):
    def setUp(self):
        super().setUp()
        self.text = json.dumps(config({**LLAMA, "layers": 1}, train={"batch": 12})) + "\n# it's \"$(x)\" \\\n"
        self.config = self.directory / "config.yaml"
        self.config.write_text(self.text)

    def submit(self, *arguments):
        return self.tandem("submit", "--dry-run", *arguments, self.config, "--run-dir", HOSTILE, "--name", HOSTILE).out

    def test_hostile_values_stay_values_in_a_pod(self):
        config_map, job = read_yaml(self.submit("--kubernetes", "--image", "registry/tandem:1", "--program", HOSTILE))
        self.assertEqual(self.text, config_map["data"]["config.yaml"])
        container = job["spec"]["template"]["spec"]["containers"][0]
        # Kubernetes takes $$ for a dollar, and $(NAME) for a variable.
        self.assertEqual([HOSTILE.replace("$", "$$")], container["command"])
        self.assertEqual(["--run-dir", HOSTILE.replace("$", "$$")], container["args"][-2:])
        self.assertRegex(job["metadata"]["name"], r"^[a-z][-a-z0-9]{0,51}$")
        for flag in ("--namespace", "--secret", "--claim", "--node-selector", "--toleration", "--resource", "--close", "--spread",
                     "--service-account", "--env-secret", "--shm", "--memory-per-node", "--image"):
            self.refuse(BAD_USAGE, [flag], "submit", "--kubernetes", "--dry-run", "--image", "a", self.config, flag, HOSTILE)

    def test_hostile_values_stay_values_in_scripts(self):
        (self.directory / "tandem").write_text('#!/bin/sh\nfor word; do printf "%s\\0" "$word"; done\n')
        (self.directory / "tandem").chmod(0o755)
        program = ("--program", str(self.directory / "tandem"))
        task, = read_yaml(self.submit("--skypilot", *program))
        user_data = self.submit("--cloud-init", *program)
        self.assertTrue(user_data.startswith("#cloud-config\n"))
        files = {file["path"]: file for file in read_yaml(user_data)[0]["write_files"]}
        self.assertEqual(self.text, files["/etc/tandem/config.yaml"]["content"])
        for script in (task["run"], files["/etc/tandem/run"]["content"]):
            done = subprocess.run(["bash"], input=script, text=True, cwd=self.directory, capture_output=True, timeout=60)
            self.assertEqual("", done.stderr)
            self.assertEqual(["--run-dir", HOSTILE], done.stdout.split("\0")[-3:-1])
        self.assertFalse((self.directory / "hit").exists())

    def test_pods_meet_by_name_and_secret(self):
        words = ("submit", "--kubernetes", "--dry-run", "--image", "a", "--nodes", 2, self.config, "--set", "parallel.strategy=ddp")
        made = self.tandem(*words)
        self.assertIn("a Secret run-secret is made", made.err)
        self.assertIn({"secretName": "run-secret", "defaultMode": 0o400, "items": [{"key": "secret", "path": "secret"}]},
                      [volume.get("secret") for volume in read_yaml(made.out)[2]["spec"]["template"]["spec"]["volumes"]])
        _, service, job = read_yaml(self.tandem(*words, "--secret", "meet").out)
        pod = job["spec"]["template"]["spec"]
        name = job["metadata"]["name"]
        args = pod["containers"][0]["args"]
        self.assertEqual(f"{name}-0.{service['metadata']['name']}:29400", args[args.index("--rdzv-endpoint") + 1])
        self.assertEqual(service["metadata"]["name"], pod["subdomain"])
        self.assertLessEqual(service["spec"]["selector"].items(), job["spec"]["template"]["metadata"]["labels"].items())

    def test_a_jobset_has_its_own_service_and_begins_anew_with_all(self):
        _, jobset = read_yaml(self.tandem("submit", "--kubernetes", "--dry-run", "--image", "a", "--nodes", 2, "--secret", "meet",
                                          "--jobset", "--retries", 7, self.config, "--set", "parallel.strategy=ddp").out)
        self.assertEqual(("jobset.x-k8s.io/v1alpha2", "JobSet"), (jobset["apiVersion"], jobset["kind"]))
        name, spec = jobset["metadata"]["name"], jobset["spec"]
        (replicated,) = spec["replicatedJobs"]
        job = replicated["template"]["spec"]
        args = job["template"]["spec"]["containers"][0]["args"]
        # As JobSet names its pods: <set>-<replicated job>-<job>-<pod>.<subdomain>
        self.assertEqual(f"{name}-{replicated['name']}-0-0.{spec['network']['subdomain']}:29400",
                         args[args.index("--rdzv-endpoint") + 1])
        self.assertEqual((7, 0), (spec["failurePolicy"]["maxRestarts"], job["backoffLimit"]))
        self.assertNotIn("subdomain", job["template"]["spec"])

    def test_without_a_cluster_nothing_is_submitted(self):
        env = {"HOME": str(self.directory), "KUBECONFIG": "", "KUBERNETES_SERVICE_HOST": ""}
        words = ("submit", "--kubernetes", "--image", "a", self.config)
        self.refuse(BAD_USAGE, ["no cluster is known", "--dry-run"], *words, env=env)
        env["KUBECONFIG"] = str(self.directory / "missing")
        self.refuse(BAD_USAGE, ["missing", "no such kubeconfig"], *words, env=env)

    def test_flags_of_another_kind_and_several_machines_are_refused(self):
        self.refuse(BAD_USAGE, ["--image"], "submit", "--slurm", "--dry-run", "--image", "a", self.config)
        self.refuse(BAD_USAGE, ["--time"], "submit", "--cloud-init", "--time", "1", self.config)
        self.refuse(BAD_USAGE, ["say where to"], "submit", "--slurm", "--kubernetes", self.config)
        self.refuse(BAD_USAGE, ["one machine"], "submit", "--cloud-init", "--nodes", 2, self.config, "--set",
                    "parallel.strategy=ddp")
        self.refuse(BAD_USAGE, ["--accelerator"], "submit", "--skypilot", "--gpus-per-node", 2, self.config, "--set",
                    "parallel.strategy=ddp")


if __name__ == "__main__":
    tandem_run.main()
