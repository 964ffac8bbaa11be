"""A real Slurm for tests: munged and slurmctld at the switch, a slurmd on each node of tests/dist/network.py.

Each node has a network, a host name and addresses of its own; they share the file system. All of it lies in one folder
and ends with the test.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "dist"))
import network  # noqa: E402

TOOLS = {"slurmctld": "slurm-wlm", "slurmd": "slurm-wlm", "sbatch": "slurm-wlm", "munged": "munge"}

# `urgent` takes nodes from `main`, whose jobs have GraceTime to save. cred_expire is also how long a requeued job waits.
CONF = """
ClusterName=tandem
SlurmctldHost=switch({switch})
SlurmctldPort=16817
SlurmdPort=16818
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock,cred_expire=3
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdSpoolDir={folder}/spool-%n
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=2,batch_sched_delay=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
ReturnToService=2
SwitchType=switch/none
MpiDefault=none
SlurmdParameters=config_overrides
SlurmdTimeout=10
SlurmctldTimeout=30
KillWait=20
MinJobAge=300
JobCompType=jobcomp/none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE PriorityTier=1 PreemptMode=REQUEUE GraceTime=60 State=UP
PartitionName=urgent Nodes=ALL MaxTime=INFINITE PriorityTier=10 PreemptMode=OFF State=UP
"""


def missing():
    return sorted({package for tool, package in TOOLS.items() if not shutil.which(tool, path=path())})


def path():
    return os.environ["PATH"] + ":/usr/sbin"


class SlurmCluster:
    def __init__(self, net, folder):
        """Of the nodes of a network.Network."""
        self.net, self.folder = net, pathlib.Path(folder)
        nodes = "\n".join(f"NodeName=node-{number} NodeAddr={node.address} CPUs=4 State=UNKNOWN"
                          for number, node in enumerate(net.nodes))
        (self.folder / "state").mkdir()
        self.folder.chmod(0o755)
        conf = self.folder / "slurm.conf"
        conf.write_text(CONF.format(switch=net.switch.address, folder=self.folder, nodes=nodes))
        self.environment = {"PATH": path(), "SLURM_CONF": str(conf)}
        self.daemons = {}
        secret = self.folder / "munge" / "key"
        secret.parent.mkdir(mode=0o700)
        secret.write_bytes(os.urandom(1024))
        secret.chmod(0o400)
        self.start("munged", net.switch, "munged", "--foreground", "--force", f"--key-file={secret}",
                   f"--socket={self.folder}/munge.sock", f"--pid-file={self.folder}/munged.pid",
                   f"--log-file={self.folder}/munge/log", f"--seed-file={self.folder}/munge/seed")
        self.wait(lambda: (self.folder / "munge.sock").exists(), "munged")
        self.start("slurmctld", net.switch, "slurmctld", "-D", "-f", conf)
        for number in range(len(net.nodes)):
            self.start_node(number)
        self.wait(lambda: self.idle() == len(net.nodes), "all nodes to be idle")

    def start_node(self, number):
        name = f"node-{number}"
        (self.folder / f"spool-{name}").mkdir(exist_ok=True)
        self.start(name, self.net.nodes[number], "slurmd", "-D", "-N", name, "-f", self.folder / "slurm.conf")

    def start(self, name, where, *command):
        self.daemons[name] = subprocess.Popen(where.enter(*command), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                              stderr=subprocess.DEVNULL, env={**os.environ, **self.environment})

    def command(self, *words):
        """The output of one of Slurm's programs, run at the switch."""
        done = subprocess.run(self.net.switch.enter(*words), env={**os.environ, **self.environment}, capture_output=True,
                              text=True, timeout=60, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise OSError(f"{' '.join(map(str, words))}: {done.stderr.strip()}")
        return done.stdout.strip()

    def idle(self):
        try:
            states = self.command("sinfo", "-h", "-N", "-p", "main", "-o", "%N %T").splitlines()
        except OSError:
            return 0
        return sum(line.endswith(" idle") for line in states)

    def show(self, job):
        """What Slurm says of a job, by name."""
        text = self.command("scontrol", "-o", "show", "job", job)
        return dict(word.split("=", 1) for word in text.split(" ") if "=" in word)

    def wait(self, condition, what, seconds=90):
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                logs = "".join(f"\n--- {log.name}\n{log.read_text()[-1500:]}" for log in self.folder.glob("*.log"))
                raise AssertionError(f"waited in vain for {what}{logs}")
            time.sleep(0.1)

    def close(self):
        for daemon in self.daemons.values():
            daemon.terminate()
        for daemon in self.daemons.values():
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
