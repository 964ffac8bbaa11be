"""An S3 server of another make for tests: moto, of Debian's packages, unpacked into a folder of its own and run by
Debian's python3. It checks signatures, honours If-None-Match and ranges, and keeps everything in memory.

Where it cannot be had (no Debian, no network, no such package), Unavailable says why, and the suites skip. The packages
are fetched once and kept in --cache (default: ~/.cache/tandem-tests/moto).
"""

import hashlib
import json
import lzma
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

PYTHON = "/usr/bin/python3"
# moto is in Debian's newest distribution only; what is compiled has to be of the one that python3 is of.
PACKAGES = {
    "sid": "moto boto3 botocore s3transfer jmespath responses werkzeug flask flask-cors jinja2 itsdangerous click blinker "
           "xmltodict requests urllib3 dateutil six idna chardet certifi",
    "bookworm": "markupsafe cryptography cffi-backend yaml charset-normalizer",
}
SKIPPED = 77

# Makes a user with a key, as moto checks signatures of users that it knows.
MAKE_USER = """
import boto3, json, sys
iam = boto3.client("iam", endpoint_url=sys.argv[1], region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
iam.create_user(UserName="tandem")
key = iam.create_access_key(UserName="tandem")["AccessKey"]
rule = {"Effect": "Allow", "Action": "*", "Resource": "*"}
iam.put_user_policy(UserName="tandem", PolicyName="all", PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [rule]}))
s3 = boto3.client("s3", endpoint_url=sys.argv[1], region_name="us-east-1", aws_access_key_id=key["AccessKeyId"],
                  aws_secret_access_key=key["SecretAccessKey"])
for bucket in sys.argv[2:]:
    s3.create_bucket(Bucket=bucket)
print(json.dumps([key["AccessKeyId"], key["SecretAccessKey"]]))
"""

# All that is in a bucket: objects, and uploads that were begun.
LIST = """
import boto3, json, sys
s3 = boto3.client("s3")
pages = s3.get_paginator("list_objects_v2").paginate(Bucket=sys.argv[1], Prefix=sys.argv[2])
uploads = s3.list_multipart_uploads(Bucket=sys.argv[1], Prefix=sys.argv[2]).get("Uploads", [])
sizes = {entry["Key"]: entry["Size"] for page in pages for entry in page.get("Contents", [])}
telling = [key for key in sizes if key.endswith("/manifest.json") or key.split("/")[-1].startswith("claim-")]
texts = {key: s3.get_object(Bucket=sys.argv[1], Key=key)["Body"].read().decode() for key in telling}
print(json.dumps([sizes, {entry["UploadId"]: entry["Key"] for entry in uploads}, texts]))
"""

# An upload that nobody will finish.
BEGIN_UPLOAD = """
import boto3, sys
s3 = boto3.client("s3")
begun = s3.create_multipart_upload(Bucket=sys.argv[1], Key=sys.argv[2])
s3.upload_part(Bucket=sys.argv[1], Key=sys.argv[2], UploadId=begun["UploadId"], PartNumber=1, Body=b"x" * 100)
print(begun["UploadId"])
"""

# Keys of a role, several times.
LEND = """
import boto3, json, sys
iam, sts = boto3.client("iam"), boto3.client("sts")
rule = lambda **more: json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", **more}]})
role = iam.create_role(RoleName="lent", AssumeRolePolicyDocument=rule(Action="sts:AssumeRole", Principal={"AWS": "*"}))["Role"]
iam.put_role_policy(RoleName="lent", PolicyName="all", PolicyDocument=rule(Action="*", Resource="*"))
lent = [sts.assume_role(RoleArn=role["Arn"], RoleSessionName=f"s{i}")["Credentials"] for i in range(int(sys.argv[1]))]
print(json.dumps([[keys["AccessKeyId"], keys["SecretAccessKey"], keys["SessionToken"]] for keys in lent]))
"""


class Unavailable(Exception):
    """There is no such server here, and why."""


def cache_folder():
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return pathlib.Path(os.environ.get("TANDEM_MOTO", os.path.join(base, "tandem-tests", "moto")))


def fetch(url):
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.read()


def unpack(packages, suite, mirror, root):
    index = lzma.decompress(fetch(f"{mirror}dists/{suite}/main/binary-amd64/Packages.xz")).decode()
    wanted = {"python3-" + name for name in packages.split()}
    for paragraph in index.split("\n\n"):
        name = re.match(r"Package: (\S+)", paragraph)
        if not name or name[1] not in wanted:
            continue
        wanted.discard(name[1])
        content = fetch(mirror + re.search(r"^Filename: (\S+)", paragraph, re.M)[1])
        if hashlib.sha256(content).hexdigest() != re.search(r"^SHA256: (\S+)", paragraph, re.M)[1]:
            raise Unavailable(f"{name[1]}: the mirror's package does not have its digest")
        archive = root / "package.deb"
        archive.write_bytes(content)
        subprocess.run(["dpkg", "-x", archive, root], check=True)
        archive.unlink()
    if wanted:
        raise Unavailable(f"Debian {suite} has no {', '.join(sorted(wanted))}")


def install(folder):
    """Returns the folder of Python modules, fetched if they are not there yet."""
    modules = folder / "usr/lib/python3/dist-packages"
    if (folder / "whole").exists():
        return modules
    try:
        targets = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI)"], capture_output=True, text=True,
                                 check=True).stdout.split()
        mirror = next(uri for uri in targets if "security" not in uri)
        folder.mkdir(parents=True, exist_ok=True)
        for suite, packages in PACKAGES.items():
            unpack(packages, suite, mirror, folder)
    except (OSError, subprocess.CalledProcessError, StopIteration, urllib.error.URLError, lzma.LZMAError) as error:
        raise Unavailable(f"moto cannot be fetched from Debian's mirror: {type(error).__name__}: {error}") from error
    (folder / "whole").touch()
    return modules


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class S3Server:
    """A server with some buckets. `variables` is what a program needs in its environment to use it."""

    def __init__(self, buckets=("bucket",)):
        modules = install(cache_folder())
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.process = None
        self.modules = modules
        environment = {**os.environ, "PYTHONPATH": str(modules), "INITIAL_NO_AUTH_ACTION_COUNT": "3"}
        command = f"from moto.server import main; main(['-H', '127.0.0.1', '-p', '{port}'])"
        self.said = tempfile.TemporaryFile("w+")  # a line for each request: a pipe would be full one day
        self.process = subprocess.Popen([PYTHON, "-c", command], env=environment, stdout=subprocess.DEVNULL,
                                        stderr=self.said, start_new_session=True)
        self.await_answer()
        made = subprocess.run([PYTHON, "-c", MAKE_USER, self.url, *buckets], env=environment, capture_output=True, text=True)
        if made.returncode != 0:
            self.stop()
            raise Unavailable(f"moto makes no user: {made.stderr.strip().splitlines()[-1:]}")
        key, secret = json.loads(made.stdout)
        self.variables = {"AWS_ENDPOINT_URL": self.url, "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": key,
                          "AWS_SECRET_ACCESS_KEY": secret, "AWS_EC2_METADATA_DISABLED": "true"}

    def ask(self, script, *arguments):
        """What a script with Amazon's own client prints."""
        environment = {**os.environ, **self.variables, "PYTHONPATH": str(self.modules), "AWS_DEFAULT_REGION": "us-east-1"}
        return subprocess.run([PYTHON, "-c", script, *arguments], env=environment, capture_output=True, text=True, check=True).stdout

    def content(self, prefix, bucket="bucket"):
        """({key: bytes}, {id of an upload: key}) below a prefix."""
        return self.content_and_texts(prefix, bucket)[:2]

    def content_and_texts(self, prefix, bucket="bucket"):
        """And {key: text} of manifests and claims."""
        return json.loads(self.ask(LIST, bucket, prefix))

    def begin_upload(self, key, bucket="bucket"):
        return self.ask(BEGIN_UPLOAD, bucket, key).strip()

    def lend(self, count):
        """[[key, secret, token]] of a role."""
        return json.loads(self.ask(LEND, str(count)))

    def await_answer(self):
        for _ in range(600):
            if self.process.poll() is not None:
                self.said.seek(0)
                raise Unavailable(f"moto ends at once: {self.said.read().strip().splitlines()[-1:]}")
            try:
                urllib.request.urlopen(self.url + "/moto-api/", timeout=5).close()
                return
            except OSError:
                time.sleep(0.1)
        self.stop()
        raise Unavailable("moto does not answer within a minute")

    def stop(self):
        if self.process and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def skip_without_server(run):
    """Calls run(); where there is no server, says so and why, and ends as skipped."""
    try:
        sys.exit(run())
    except Unavailable as error:
        print(f"SKIPPED: no S3 server to test against: {error}")
        sys.exit(SKIPPED)
