"""The manifests of `tandem submit --kubernetes` against Kubernetes' own types and JobSet's (jobset.d.ts), strictly: a field that does not exist, a number in
place of a quantity or a missing part is an error of TypeScript's compiler.

The types come from npm (kubernetes-types), into the folder --modules, at the first run; without npm the suite is skipped.
"""

import itertools
import json
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
import tandem_run
from submissions import read_yaml
from tandem_run import LLAMA, TandemTest, config

PACKAGES = ("kubernetes-types@1.30.0", "typescript@5.9.3")
TYPES = {"ConfigMap": "kubernetes-types/core/v1", "Service": "kubernetes-types/core/v1", "Job": "kubernetes-types/batch/v1",
         "JobSet": "./jobset"}
RULE_NAME = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")  # of JobSet's rules, as its server has it
MOST_OF_A_HOST_NAME = 63
MODULES = None

# Each on its own and with the others, on one node and on several.
CHOICES = (("--gpus-per-node", "8"), ("--claim", "data:/data", "--claim", "work:/work"),
           ("--env-secret", "s3", "--service-account", "trainer"),
           ("--node-selector", "gpu=h100", "--toleration", "spot=true:NoSchedule", "--toleration", "nvidia.com/gpu"),
           ("--cpus-per-node", "16", "--memory-per-node", "64Gi", "--resource", "vpc.amazonaws.com/efa=4"))
PLACES = ((), ("--close", "topology.kubernetes.io/zone"), ("--spread", "kubernetes.io/hostname"))


def fetch(modules):
    """Why it cannot be had, or None."""
    if not shutil.which("npm"):
        return "the types come from npm, which is not installed"
    if (modules / "node_modules" / "typescript").is_dir():
        return None
    modules.mkdir(parents=True, exist_ok=True)
    (modules / "package.json").write_text("{}")
    done = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(modules), *PACKAGES],
                          capture_output=True, text=True, timeout=400)
    return None if done.returncode == 0 else f"npm install failed: {done.stderr.strip().splitlines()[-1:]}"


class KubernetesSchema(TandemTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if reason := fetch(MODULES):
            raise unittest.SkipTest(reason)

    def manifests(self, *arguments):
        path = self.write_config(config({**LLAMA, "layers": 1}, train={"batch": 48}, parallel={"strategy": "fsdp"}))
        return read_yaml(self.tandem("submit", "--kubernetes", "--dry-run", "--image", "registry/tandem:1", "--secret", "meet",
                                     path, *arguments).out)

    def check(self, documents):
        """What the compiler says of them."""
        lines = []
        for number, document in enumerate(documents):
            kind = document["kind"]
            lines.append(f'import {{ {kind} as K{number} }} from "{TYPES[kind]}";')
            lines.append(f"export const d{number}: K{number} = {json.dumps(document)};")
        shutil.copy(pathlib.Path(__file__).with_name("jobset.d.ts"), MODULES)
        file = MODULES / "manifests.ts"
        file.write_text("\n".join(lines))
        done = subprocess.run([str(MODULES / "node_modules/.bin/tsc"), "--strict", "--noEmit", "--moduleResolution", "node", str(file)],
                              capture_output=True, text=True, cwd=MODULES, timeout=300)
        return done.stdout.strip()

    def test_every_combination_of_flags(self):
        documents = []
        for count in range(len(CHOICES) + 1):
            for chosen in itertools.combinations(CHOICES, count):
                places = PLACES if count in (0, len(CHOICES)) else PLACES[:1]
                for nodes, place, kind in itertools.product(("1", "2"), places, ((), ("--jobset",))):
                    documents += self.manifests("--nodes", nodes, *place, *kind, *itertools.chain(*chosen))
        self.assertGreater(len(documents), 200)
        self.assertEqual("", self.check(documents))
        self.check_sets([document for document in documents if document["kind"] == "JobSet"])

    def check_sets(self, sets, least=50):
        """What JobSet's server asks for beside types."""
        self.assertGreaterEqual(len(sets), least)
        for made in sets:
            for rule in made["spec"]["failurePolicy"]["rules"]:
                self.assertRegex(rule["name"], RULE_NAME)
            for job in made["spec"]["replicatedJobs"]:
                pods = job["template"]["spec"]["completions"]
                last = f"{made['metadata']['name']}-{job['name']}-{job['replicas'] - 1}-{pods - 1}"
                self.assertLessEqual(len(last), MOST_OF_A_HOST_NAME)
                # The set gives pods their names and their service.
                self.assertNotIn("subdomain", job["template"]["spec"]["template"]["spec"])

    def test_a_long_name_leaves_room_for_numbers(self):
        self.check_sets(self.manifests("--nodes", "2", "--jobset", "--name", "x" * 200)[-1:], least=1)

    def test_the_check_finds_what_is_wrong_in_a_set(self):
        for path, value in ((("spec", "failurePolicy", "restarts"), 2), (("spec", "network", "enableDnsHostnames"), True),
                            (("spec", "failurePolicy", "rules", 0, "action"), "Fail"),
                            (("spec", "replicatedJobs", 0, "template", "spec", "completion"), 2)):
            with self.subTest(path=path):
                self.assert_found(self.manifests("--jobset")[-1], path, value)

    def assert_found(self, document, path, value):
        inner = document
        for part in path[:-1]:
            inner = inner[part]
        inner[path[-1]] = value
        self.assertIn("error TS", self.check([document]))

    def test_the_check_finds_what_is_wrong(self):
        for path, value in ((("spec", "podReplacementPolicies"), "Failed"), (("spec", "completions"), "2"),
                            (("spec", "template", "spec", "hostIpc"), True)):
            with self.subTest(path=path):
                self.assert_found(self.manifests()[-1], path, value)


if __name__ == "__main__":
    place = sys.argv.index("--modules")
    MODULES = pathlib.Path(sys.argv[place + 1]).resolve()
    del sys.argv[place:place + 2]
    tandem_run.main()
