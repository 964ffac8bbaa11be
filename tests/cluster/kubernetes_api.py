"""`tandem submit --kubernetes`, `status`, `logs` and `cancel` against an API server that speaks as Kubernetes' does (api_server.py)."""

import base64
import json
import pathlib
import shutil
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
import tandem_run
from api_server import ApiServer, certificates
from submissions import read_yaml
from tandem_run import BAD_USAGE, FAILED, LLAMA, REPOSITORY, TandemTest, config

JOB = "/apis/batch/v1/namespaces/team/jobs/run"


class Kubernetes(TandemTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if not shutil.which("openssl"):
            raise unittest.SkipTest("openssl is not installed")
        keys = tandem_run.temporary_directory()
        cls.addClassCleanup(keys.cleanup)
        cls.keys = pathlib.Path(keys.name)
        certificates(cls.keys)

    def setUp(self):
        super().setUp()
        folder = self.directory / "server"
        shutil.copytree(self.keys, folder)
        self.server = ApiServer(folder)
        self.addCleanup(self.server.close)
        self.env = {"KUBECONFIG": str(self.server.kubeconfig()), "XDG_STATE_HOME": str(self.directory / "state")}
        self.config = self.write_config(config({**LLAMA, "layers": 1}, train={"batch": 12}))

    def submit(self, *arguments, expect=0, **options):
        return self.tandem("submit", "--kubernetes", "--image", "registry/tandem:1", self.config, *arguments, expect=expect,
                           env=self.env, **options)

    def test_objects_are_made_belong_to_the_job_and_go_with_it(self):
        result = self.submit("--nodes", 2, "--set", "parallel.strategy=ddp")
        self.assertEqual("run\n", result.out)
        self.assertEqual(["configmaps", "jobs", "secrets", "services"], self.server.kinds())
        job = self.server.objects[JOB]
        secret = self.server.objects["/api/v1/namespaces/team/secrets/run-secret"]
        self.assertRegex(secret["stringData"]["secret"], r"^[0-9a-f]{64}$")
        self.assertNotIn(secret["stringData"]["secret"], result.out + result.err)
        for path, item in self.server.objects.items():
            self.assertEqual(path != JOB, item["metadata"].get("ownerReferences", []) ==
                             [{"apiVersion": "batch/v1", "kind": "Job", "name": "run", "uid": job["metadata"]["uid"]}], path)
        self.assertTrue(all(query == "fieldValidation=Strict" for method, _, query in self.server.requests if method == "POST"))
        self.assertEqual("job team/run is cancelled; what it has saved stays\n", self.tandem("cancel", "run", env=self.env).out)
        self.assertEqual([], self.server.kinds())
        self.assertEqual("job team/run has ended already\n", self.tandem("cancel", "team/run", env=self.env).out)

    def test_a_second_job_of_the_name_is_refused_and_the_first_stays(self):
        self.submit()
        before = json.dumps(self.server.objects)
        self.refuse(BAD_USAGE, ["Job run", "is there already", "--name"], "submit", "--kubernetes", "--image", "a", self.config,
                    env=self.env)
        self.assertEqual(before, json.dumps(self.server.objects))

    def test_where_one_is_refused_none_stays(self):
        self.server.refused["jobs"] = 422, {"kind": "Status", "message": "Job.batch \"run\" is invalid:\nspec.x: wrong"}
        self.refuse(BAD_USAGE, ["Job run: the cluster refuses", "spec.x: wrong"], "submit", "--kubernetes", "--image", "a", "--nodes",
                    2, self.config, "--set", "parallel.strategy=ddp", env=self.env)
        self.assertEqual([], self.server.kinds())

    def test_what_an_earlier_job_left_makes_room_and_what_is_anothers_does_not(self):
        place = "/api/v1/namespaces/team/configmaps/run"
        self.server.objects[place] = {"metadata": {"name": "run", "labels": {"app.kubernetes.io/name": "tandem"}}, "data": {}}
        self.submit()
        self.assertIn("config.yaml", self.server.objects[place]["data"])
        self.tandem("cancel", "run", env=self.env)
        self.server.objects[place] = {"metadata": {"name": "run", "labels": {}}, "data": {"theirs": "1"}}
        self.refuse(BAD_USAGE, ["ConfigMap run", "already exists"], "submit", "--kubernetes", "--image", "a", self.config, env=self.env)
        self.assertEqual({"theirs": "1"}, self.server.objects[place]["data"])

    def test_who_asks_and_who_answers_is_checked(self):
        words = ("submit", "--kubernetes", "--image", "a", self.config)

        def with_config(*arguments, **options):
            return {**self.env, "KUBECONFIG": str(self.server.kubeconfig(*arguments, **options))}

        env = with_config("wrong", user={"token": "guessed"})
        error = self.refuse(BAD_USAGE, [self.server.url, "does not know who asks"], *words, env=env)
        self.assertNotIn("guessed", error.err)
        # A server that the authority has not signed for is told nothing.
        api = len(self.server.requests)
        shutil.copy(self.server.folder / "client.crt", self.server.folder / "other.crt")
        self.refuse(FAILED, [self.server.url, "certificate"], *words, env=with_config("stranger", authority="other.crt"))
        self.assertEqual(api, len(self.server.requests))
        data = {f"client-{kind}-data": base64.b64encode((self.server.folder / f"client.{end}").read_bytes()).decode()
                for kind, end in (("certificate", "crt"), ("key", "key"))}
        self.env = with_config("by-certificate", user=data)
        self.assertEqual("run\n", self.submit().out)
        self.assertEqual("run\n", self.tandem("submit", "--kubernetes", "--image", "a", "--namespace", "other", "--context", "here",
                                              self.config, env=self.env).out)
        self.assertIn("/apis/batch/v1/namespaces/other/jobs/run", self.server.objects)

    def test_status_tells_of_pods_and_why_they_wait(self):
        self.submit()
        self.assertIn("job team/run (run) on kubernetes: Pending\n", self.tandem("status", "run", env=self.env).out)
        self.server.add_pod("run", 0, "Pending", name="run-0-a", reason="ImagePullBackOff")
        text = self.tandem("status", "run", env=self.env).out
        self.assertIn("run-0-a Pending on node-0 (ImagePullBackOff)", text)
        self.server.set_phase("run-0-a", "Running")
        status = json.loads(self.tandem("status", "run", "--json", env=self.env).out)
        self.assertEqual(("Running", "team/run", "run-0-a"), (status["state"], status["job"], status["pods"][0]["name"]))
        self.server.finish("run", "Failed")
        self.assertIn("Failed (Why: because)", self.tandem("status", "run", env=self.env).out)

    def test_the_role_in_deploy_allows_what_is_asked_for(self):
        place = "/api/v1/namespaces/team/secrets/run-secret"
        self.server.objects[place] = {"metadata": {"name": "run-secret", "labels": {"app.kubernetes.io/name": "tandem"}}}
        self.submit("--nodes", 2, "--set", "parallel.strategy=ddp")
        self.server.add_pod("run", 0, "Succeeded", b"one\n")
        for words in (("status", "run"), ("logs", "run"), ("cancel", "run")):
            self.tandem(*words, env=self.env)
        asked = set()
        for method, path, _ in self.server.requests:
            kind, *rest = path.split("/namespaces/team/")[1].split("/")
            verb = {"GET": "get" if rest else "list", "POST": "create", "PATCH": "patch", "DELETE": "delete"}[method]
            asked.add((verb, "pods/log" if rest[1:] == ["log"] else kind))
        role = next(item for item in read_yaml((REPOSITORY / "deploy/base/submitter.yaml").read_text()) if item["kind"] == "Role")
        allowed = {(verb, kind) for rule in role["rules"] for kind in rule["resources"] for verb in rule["verbs"]}
        self.assertEqual(set(), asked - allowed)
        self.assertIn(("delete", "secrets"), asked)

    def test_logs_go_on_with_the_pod_that_replaces_another(self):
        self.submit()
        self.assertIn("has no pod with this number yet", self.tandem("logs", "run", env=self.env).err)
        first = self.server.add_pod("run", 0, "Running", b"one\n")
        self.server.add_pod("run", 1, "Running", b"other\n")

        def go_on():
            time.sleep(1)
            self.server.set_phase(first, "Failed")
            second = self.server.add_pod("run", 0, "Running", b"two\n")
            time.sleep(1)
            self.server.finish("run")
            self.server.set_phase(second, "Succeeded")

        thread = threading.Thread(target=go_on)
        thread.start()
        self.addCleanup(thread.join)
        self.assertEqual("one\ntwo\n", self.tandem("logs", "run", "--follow", env=self.env).out)
        self.assertEqual("other\n", self.tandem("logs", "run", "--node", 1, env=self.env).out)


if __name__ == "__main__":
    tandem_run.main()
