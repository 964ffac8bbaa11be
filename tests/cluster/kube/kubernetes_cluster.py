"""A real Kubernetes for tests: etcd, API server, controllers, scheduler and DNS at the switch of tests/dist/network.py, and on each of
its nodes a kubelet with containerd and runc.

A node is a pid namespace of its own: it can be lost with all that runs on it, and everything ends with the test. Pods are on the
nodes' own network. What it is made of comes from Debian (binaries.py).
"""

import json
import os
import pathlib
import secrets
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parents[1] / "dist"))
import binaries  # noqa: E402
import images  # noqa: E402
import network  # noqa: E402

ADDRESS = network.Switch.address
SERVER = f"https://{ADDRESS}:6443"
PAUSE, TOOLS = "docker.io/library/pause:local", "docker.io/library/busybox:local"
END_WITH_TEST = ("setpriv", "--pdeathsig", "KILL")

# The kubelet wants its sysctls: it gets files that say so, and the machine's own stay as they are.
SYSCTLS = {"vm/overcommit_memory": 1, "vm/panic_on_oom": 0, "kernel/panic": 10, "kernel/panic_on_oops": 1,
           "kernel/keys/root_maxkeys": 1000000, "kernel/keys/root_maxbytes": 25000000}

CONTAINERD = """version = 2
root = "{home}/containerd"
state = "{home}/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper",
                    "io.containerd.snapshotter.v1.aufs", "io.containerd.internal.v1.opt"]
[grpc]
  address = "{home}/run/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{root}/usr/lib/cni"
    conf_dir = "{home}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
"""

# Process 1 of a node. Its end is the node's. $0 is the node's folder, $1 its name, $2 its address, $3 the cluster's folder.
NODE = """set -e
for folder in log lib; do mount --bind "$0/var/$folder" "/var/$folder"; done
mount --bind "$0/run" /run
for file in {sysctls}; do mount --bind "$0/sysctl/${{file##*/}}" "/proc/sys/$file"; done
containerd --config "$0/containerd.toml" >> "$0/containerd.log" 2>&1 &
for try in $(seq 600); do ctr -a "$0/run/containerd.sock" version > /dev/null 2>&1 && break; sleep 0.1; done
for image in "$3"/images/*.tar; do ctr -a "$0/run/containerd.sock" -n k8s.io images import "$image" >> "$0/import.log" 2>&1; done
while :; do
  if [ ! -e "$0/no-kubelet" ]; then
    kubelet --kubeconfig="$3/kubeconfig" --config="$0/kubelet.json" --root-dir="$0/kubelet" --cert-dir="$0/kubelet-pki" \\
      --hostname-override="$1" --node-ip="$2" --container-runtime=remote --container-runtime-endpoint="unix://$0/run/containerd.sock" \\
      --register-node=true --v=2 >> "$0/kubelet.log" 2>&1 &
    echo kubelet >> "$0/starts"
    while kill -0 $! 2> /dev/null && [ ! -e "$0/no-kubelet" ]; do sleep 0.2; done
    kill -KILL $! 2> /dev/null || :
  fi
  sleep 0.2
done
"""


def kubelet_config():
    return {"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}}, "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs", "cgroupsPerQOS": False, "enforceNodeAllocatable": [], "failSwapOn": False,
            "makeIPTablesUtilChains": False, "clusterDNS": [ADDRESS], "clusterDomain": "cluster.local", "resolvConf": "", "oomScoreAdj": 0,
            "nodeStatusUpdateFrequency": "2s", "nodeLeaseDurationSeconds": 10, "syncFrequency": "5s", "fileCheckFrequency": "5s",
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99}


def pod_network(home, number):
    """Pods are on the bridge that the node itself is on: node 0's from 10.99.0.20, node 1's from 10.99.0.80."""
    first = 20 + 60 * number
    ranges = [[{"subnet": "10.99.0.0/24", "rangeStart": f"10.99.0.{first}", "rangeEnd": f"10.99.0.{first + 59}"}]]
    return {"cniVersion": "0.4.0", "name": "pods",
            "plugins": [{"type": "bridge", "bridge": "pods", "isGateway": False, "ipMasq": False,
                         "ipam": {"type": "host-local", "dataDir": str(home / "addresses"), "ranges": ranges}}]}


class KubernetesCluster:
    def __init__(self, net, folder, archives=()):
        """Of the nodes of a network.Network (three at most), with images of these archives beside its own."""
        self.net, self.folder = net, pathlib.Path(folder)
        self.place = binaries.install()
        root = self.place / "root"
        path = ":".join(map(str, (self.place / "bin", root / "usr/bin", root / "usr/sbin", root / "bin", os.environ["PATH"])))
        self.environment = {**os.environ, "PATH": path, "KUBECONFIG": str(self.folder / "kubeconfig")}
        self.kubeconfig = self.folder / "kubeconfig"
        self.processes = {}
        self.folder.chmod(0o755)
        self.make_keys()
        self.make_images(archives)
        self.start_control()
        for number in range(len(net.nodes)):
            self.prepare_node(number)
            self.start_node(number)
        self.wait(lambda: len(self.ready_nodes()) == len(net.nodes), "all nodes to be ready")
        self.wait(lambda: self.get("serviceaccount", "default"), "the first account")

    def make_keys(self):
        keys = self.folder / "keys"
        keys.mkdir(mode=0o700)

        def openssl(*words):
            subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, cwd=keys, stdin=subprocess.DEVNULL)
        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.crt", "-days", "30", "-subj", "/CN=ca")
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=kube-apiserver")
        (keys / "names").write_text(f"subjectAltName=IP:127.0.0.1,IP:{ADDRESS},DNS:localhost,DNS:kubernetes.default.svc")
        openssl("x509", "-req", "-in", "server.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "30", "-extfile",
                "names", "-out", "server.crt")
        openssl("genrsa", "-out", "accounts.key", "2048")
        openssl("rsa", "-in", "accounts.key", "-pubout", "-out", "accounts.pub")
        token = secrets.token_hex(16)
        (keys / "token").write_text(token)
        (keys / "tokens.csv").write_text(f'{token},admin,admin,"system:masters"\n')
        self.kubeconfig.touch(0o600)
        self.kubeconfig.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": SERVER, "certificate-authority": str(keys / "ca.crt")}}],
            "users": [{"name": "admin", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}]}))

    def make_images(self, archives):
        (self.folder / "images").mkdir()
        files = images.busybox(self.place / "root/bin/busybox", self.folder / "busybox")
        images.pack(PAUSE, self.folder / "images/pause.tar", files, ["/bin/sleep", "2000000000"])
        images.pack(TOOLS, self.folder / "images/busybox.tar", files, ["/bin/sh"])
        for archive in archives:
            shutil.copy(archive, self.folder / "images")

    def start(self, name, where, *command):
        with open(self.folder / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen([*END_WITH_TEST, *where.enter(*command)], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                                    env=self.environment)

    def start_control(self):
        keys, switch = self.folder / "keys", self.net.switch
        self.start("api-server", switch, "kube-apiserver", f"--etcd-servers=http://{self.net.store}", "--etcd-prefix=/registry", "--bind-address=0.0.0.0",
                   f"--advertise-address={ADDRESS}", "--secure-port=6443", "--insecure-port=0", f"--tls-cert-file={keys}/server.crt",
                   f"--tls-private-key-file={keys}/server.key", f"--client-ca-file={keys}/ca.crt", f"--token-auth-file={keys}/tokens.csv",
                   "--authorization-mode=Node,RBAC", "--service-account-issuer=https://kubernetes.default.svc",
                   f"--service-account-key-file={keys}/accounts.pub", f"--service-account-signing-key-file={keys}/accounts.key",
                   "--service-cluster-ip-range=10.96.0.0/16", "--storage-media-type=application/json",
                   "--kubelet-preferred-address-types=InternalIP", "--default-not-ready-toleration-seconds=5",
                   "--default-unreachable-toleration-seconds=5")
        self.start("names", switch, sys.executable, HERE / "cluster_names.py", SERVER, keys / "token", keys / "ca.crt", ADDRESS)
        self.wait(lambda: self.try_kubectl("get", "--raw", "/readyz") == "ok", "the API server")
        account = [f"--{kind}kubeconfig={self.kubeconfig}" for kind in ("", "authentication-", "authorization-")]
        self.start("controllers", switch, "kube-controller-manager", *account, "--kube-api-content-type=application/json",
                   f"--service-account-private-key-file={keys}/accounts.key", f"--root-ca-file={keys}/ca.crt", "--leader-elect=false",
                   "--use-service-account-credentials=false", "--node-monitor-period=2s", "--node-monitor-grace-period=12s",
                   "--pod-eviction-timeout=5s", "--controllers=*,-nodeipam,-route,-service,-cloud-node-lifecycle")
        self.start("scheduler", switch, "kube-scheduler", *account, "--leader-elect=false")

    def home(self, number):
        return self.folder / f"node-{number}"

    def prepare_node(self, number):
        home, node = self.home(number), self.net.nodes[number]
        for name in ("run", "var/log", "var/lib", "cni", "containerd", "kubelet", "sysctl"):
            (home / name).mkdir(parents=True)
        (home / "containerd.toml").write_text(CONTAINERD.format(home=home, root=self.place / "root", pause=PAUSE))
        (home / "kubelet.json").write_text(json.dumps(kubelet_config()))
        (home / "cni/10-pods.conflist").write_text(json.dumps(pod_network(home, number)))
        for name, value in SYSCTLS.items():
            (home / "sysctl" / pathlib.Path(name).name).write_text(f"{value}\n")
        # The node's own address moves to a bridge, where its pods are too.
        node.ip("link", "add", "pods", "type", "bridge")
        node.ip("address", "del", f"{node.address}/24", "dev", "eth0")
        node.ip("link", "set", "eth0", "master", "pods")
        node.ip("address", "add", f"{node.address}/24", "dev", "pods")
        node.ip("link", "set", "pods", "up")

    def start_node(self, number):
        """As after power came back: what ran there is gone, what was on its disk is not."""
        home, node = self.home(number), self.net.nodes[number]
        shutil.rmtree(home / "run")
        (home / "run").mkdir()
        script = NODE.format(sysctls=" ".join(SYSCTLS))
        self.start(f"node-{number}", node, "unshare", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc", "bash", "-c", script,
                   home, f"node-{number}", node.address, self.folder)

    def lose_node(self, number):
        """As a power cut: everything of a node's ends at once."""
        process = self.processes.pop(f"node-{number}")
        process.kill()
        process.wait()

    def lose_kubelet(self, number):
        """Only the kubelet: its containers run on, and nobody hears of them."""
        (self.home(number) / "no-kubelet").touch()

    def return_kubelet(self, number):
        (self.home(number) / "no-kubelet").unlink(missing_ok=True)

    def kubectl(self, *words, text=None):
        done = subprocess.run(self.net.switch.enter("kubectl", *words), env=self.environment, capture_output=True, text=True, timeout=120,
                              input=text or "")
        if done.returncode != 0:
            raise OSError(f"kubectl {' '.join(map(str, words))}: {done.stderr.strip()}")
        return done.stdout

    def try_kubectl(self, *words):
        try:
            return self.kubectl(*words)
        except OSError:
            return ""

    def apply(self, *objects):
        self.kubectl("apply", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def get(self, kind, name):
        """None where there is none."""
        return json.loads(self.try_kubectl("get", kind, name, "-o", "json") or "null")

    def pods(self, selector):
        return json.loads(self.kubectl("get", "pods", "-l", selector, "-o", "json"))["items"]

    def ready_nodes(self):
        listed = json.loads(self.try_kubectl("get", "nodes", "-o", "json") or '{"items": []}')["items"]
        return [node["metadata"]["name"] for node in listed
                if any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"]["conditions"])]

    def wait(self, condition, what, seconds=180):
        deadline = time.monotonic() + seconds
        while not condition():
            ended = [name for name, process in self.processes.items() if process.poll() is not None]
            if time.monotonic() > deadline or ended:
                logs = "".join(f"\n--- {log.relative_to(self.folder)}\n{log.read_text(errors='replace')[-1500:]}"
                               for log in sorted(self.folder.glob("**/*.log"))[:12] if "/var/" not in str(log))
                raise AssertionError(f"waited in vain for {what}; ended: {ended}{logs}")
            time.sleep(0.2)

    def close(self):
        for process in reversed(self.processes.values()):
            process.kill()
        for process in self.processes.values():
            process.wait()
        self.remove_groups()

    def remove_groups(self):
        """The control groups of this cluster's containers, which outlive them."""
        ids = [task.name for task in self.folder.glob("node-*/run/containerd/io.containerd.runtime.v2.task/k8s.io/*")]
        for top in (*pathlib.Path("/sys/fs/cgroup").glob("*/k8s.io"), pathlib.Path("/sys/fs/cgroup/k8s.io")):
            for folder in (*(top / name for name in ids), top):
                try:
                    folder.rmdir()
                except OSError:
                    continue
