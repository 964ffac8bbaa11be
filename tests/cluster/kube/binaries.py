"""What a real Kubernetes needs, from Debian: containerd, runc, network plug-ins, etcd and kubectl as packages, unpacked and not
installed; API server, controller manager, scheduler and kubelet built from the source package, with Indexed Jobs added
(indexed_jobs.py), because Debian's last version is older than they are.

Built once (ten minutes on two idle cores) and kept in ~/.cache/tandem-tests/kubernetes, or where TANDEM_KUBERNETES says. Can be run
by itself: `python3 binaries.py`.
"""

import fcntl
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import indexed_jobs  # noqa: E402

PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")
PACKAGES = ("containerd", "runc", "containernetworking-plugins", "etcd-server", "kubernetes-client", "busybox-static")
BUILD_PACKAGES = ("golang-1.19-go", "golang-1.19-src", "golang-github-modern-go-reflect2-dev")
SOURCE = "pool/main/k/kubernetes/kubernetes_1.20.5+really1.20.2.orig.tar.gz"
SOURCE_DIGEST = "b83c0780efb182d928dc63d46488a847f161f04e40a94b96bf5247dd671ecdfc"
VERSION = "v1.20.2-debian"
REFLECT = "github.com/modern-go/reflect2"


class Unavailable(Exception):
    """It cannot be had here, and why."""


def folder():
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return pathlib.Path(os.environ.get("TANDEM_KUBERNETES", os.path.join(base, "tandem-tests", "kubernetes")))


def run(*command, **options):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, stdin=subprocess.DEVNULL, **options)
    if done.returncode != 0:
        raise Unavailable(f"{' '.join(map(str, command[:4]))}: {(done.stderr or done.stdout).strip()[-400:]}")
    return done.stdout


def unpack(names, place):
    """Debian's packages into place/root."""
    root, archives = place / "root", place / "packages"
    archives.mkdir(parents=True, exist_ok=True)
    missing = [name for name in names if not list(archives.glob(f"{name}_*.deb"))]
    if missing:
        run("apt-get", "--quiet", "-o", "APT::Sandbox::User=root", "download", *missing, cwd=archives)
    for name in missing:
        (archive,) = archives.glob(f"{name}_*.deb")
        run("dpkg", "-x", archive, root)


def fetch_source(place):
    """Kubernetes' own source, mended so that a newer Go builds it."""
    source = place / "go/src/k8s.io/kubernetes"
    if source.is_dir():
        return source
    mirrors = run("apt-get", "indextargets", "--format", "$(REPO_URI)").split()
    mirror = next((uri for uri in mirrors if "security" not in uri), None)
    if mirror is None:
        raise Unavailable("apt-get knows no mirror of Debian's")
    archive = place / "kubernetes.tar.gz"
    try:
        with urllib.request.urlopen(f"{mirror.rstrip('/')}/{SOURCE}", timeout=300) as answer:
            archive.write_bytes(answer.read())
    except urllib.error.URLError as error:
        raise Unavailable(f"Kubernetes' source cannot be fetched: {error}") from error
    if hashlib.sha256(archive.read_bytes()).hexdigest() != SOURCE_DIGEST:
        raise Unavailable("Kubernetes' source does not have its digest")
    aside = source.with_name("unpacked")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    run("tar", "--extract", "--gzip", "--file", archive, "--directory", aside, "--strip-components", "1")
    archive.unlink()
    # The one that comes along does not work with Go 1.18 and later; Debian's does.
    shutil.rmtree(aside / "vendor" / REFLECT)
    shutil.copytree(place / "root/usr/share/gocode/src" / REFLECT, aside / "vendor" / REFLECT)
    indexed_jobs.add_to(aside)
    aside.rename(source)
    return source


def api_packages(source):
    """Packages whose types are part of the API's description."""
    lines = run("grep", "--recursive", "--files-with-matches", "--include=*.go", "^// +k8s:openapi-gen=true", "staging/src/k8s.io", "pkg",
                cwd=source).splitlines()
    unwanted = re.compile(r"sample-|code-generator|_examples|testdata")
    packages = sorted({os.path.dirname(line) for line in lines if not unwanted.search(line)})
    vendored = "staging/src/"
    return [f"k8s.io/kubernetes/vendor/{name.removeprefix(vendored)}" if name.startswith(vendored) else f"k8s.io/kubernetes/{name}"
            for name in packages]


def build(place):
    unpack(BUILD_PACKAGES, place)
    source = fetch_source(place)
    made, work = place / "bin", place / "work"
    work.mkdir(exist_ok=True)
    go = place / "root/usr/lib/go-1.19"
    env = {**os.environ, "GOROOT": str(go), "GOPATH": str(place / "go"), "GOCACHE": str(place / "go-cache"), "GOTMPDIR": str(work),
           "HOME": str(work), "GO111MODULE": "off", "CGO_ENABLED": "0", "PATH": f"{go}/bin:{os.environ['PATH']}"}
    # The tarball leaves out what is generated.
    run("go", "build", "-o", work / "openapi-gen", "./vendor/k8s.io/kube-openapi/cmd/openapi-gen", cwd=source, env=env)
    run(work / "openapi-gen", "-i", ",".join(api_packages(source)), "-p", "k8s.io/kubernetes/pkg/generated/openapi", "-O",
        "zz_generated.openapi", "-h", "hack/boilerplate/boilerplate.generatego.txt", "-r", work / "report", "-o", place / "go/src",
        cwd=source, env=env)
    component = "k8s.io/kubernetes/vendor/k8s.io/component-base/version"
    client = "k8s.io/kubernetes/vendor/k8s.io/client-go/pkg/version"
    names = f"-s -w -X {component}.gitVersion={VERSION} -X {component}.gitMajor=1 -X {component}.gitMinor=20 -X {client}.gitVersion={VERSION}"
    aside = place / "built"
    aside.mkdir(exist_ok=True)
    run("nice", "go", "build", "-ldflags", names, "-o", f"{aside}/", *(f"./cmd/{name}" for name in PROGRAMS), cwd=source, env=env)
    aside.rename(made)
    for left in ("go", "go-cache", "work"):  # a gigabyte
        shutil.rmtree(place / left)


def install():
    """The folder with root/ (Debian's packages) and bin/ (what was built). Unavailable where there can be none."""
    place = folder()
    if os.geteuid() != 0:
        raise Unavailable("a cluster needs root, for its containers")
    if not shutil.which("apt-get"):
        raise Unavailable("its parts come from Debian, and there is no apt-get")
    place.mkdir(parents=True, exist_ok=True)
    with open(place / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        unpack(PACKAGES, place)
        if not all((place / "bin" / name).exists() for name in PROGRAMS):
            build(place)
    return place


if __name__ == "__main__":
    print(install())
