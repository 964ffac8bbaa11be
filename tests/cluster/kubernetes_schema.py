"""The manifests of `tandem submit --kubernetes` against Kubernetes' own types, strictly: a field that does not exist, a number in
place of a quantity or a missing part is an error of TypeScript's compiler.

The types come from npm (kubernetes-types), into the folder --modules, at the first run; without npm the suite is skipped.
"""

import itertools
import json
import pathlib
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
import tandem_run
from submissions import read_yaml
from tandem_run import LLAMA, TandemTest, config

PACKAGES = ("kubernetes-types@1.30.0", "typescript@5.9.3")
TYPES = {"ConfigMap": ("core/v1", "ConfigMap"), "Service": ("core/v1", "Service"), "Job": ("batch/v1", "Job")}
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
            module, kind = TYPES[document["kind"]]
            lines.append(f'import {{ {kind} as K{number} }} from "kubernetes-types/{module}";')
            lines.append(f"export const d{number}: K{number} = {json.dumps(document)};")
        file = MODULES / "manifests.ts"
        file.write_text("\n".join(lines))
        done = subprocess.run([str(MODULES / "node_modules/.bin/tsc"), "--strict", "--noEmit", "--moduleResolution", "node", str(file)],
                              capture_output=True, text=True, cwd=MODULES, timeout=300)
        return done.stdout.strip()

    def test_every_combination_of_flags(self):
        documents = []
        for count in range(len(CHOICES) + 1):
            for chosen in itertools.combinations(CHOICES, count):
                for nodes, place in itertools.product(("1", "2"), PLACES if count in (0, len(CHOICES)) else PLACES[:1]):
                    documents += self.manifests("--nodes", nodes, *place, *itertools.chain(*chosen))
        self.assertGreater(len(documents), 100)
        self.assertEqual("", self.check(documents))

    def test_the_check_finds_what_is_wrong(self):
        for path, value in ((("spec", "podReplacementPolicies"), "Failed"), (("spec", "completions"), "2"),
                            (("spec", "template", "spec", "hostIpc"), True)):
            with self.subTest(path=path):
                job = self.manifests()[-1]
                inner = job
                for part in path[:-1]:
                    inner = inner[part]
                inner[path[-1]] = value
                self.assertIn("error TS", self.check([job]))


if __name__ == "__main__":
    place = sys.argv.index("--modules")
    MODULES = pathlib.Path(sys.argv[place + 1]).resolve()
    del sys.argv[place:place + 2]
    tandem_run.main()
