"""Nodes for tests: network namespaces with addresses and host names of their own, joined by a switch.

A namespace lives as long as the process that holds it, which ends with the test even if that is killed, so nothing
is left behind. Nodes share the file system and the kernel, but no network: what passes between two of them crosses
a cable that can be pulled.
"""

import os
import shutil
import subprocess

TOOLS = ("ip", "unshare", "nsenter", "hostname")


def run(*command):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)
    if done.returncode != 0:
        raise OSError(f"{' '.join(map(str, command))}: {done.stderr.strip()}")


def why_not():
    """Why there can be no nodes on this machine; None where there can."""
    missing = [tool for tool in TOOLS if not shutil.which(tool)]
    if missing:
        return f"network namespaces need {', '.join(missing)} (package iproute2 or util-linux)"
    if os.geteuid() != 0:
        return "network namespaces need root"
    try:
        Network(1).close()
    except OSError as error:
        return f"network namespaces cannot be made here: {error}"
    return None


class Namespace:
    def __init__(self, name):
        self.name = name
        self.holder = subprocess.Popen(["unshare", "--net", "--uts", "sh", "-c", 'hostname "$0" && echo && exec cat', name],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if self.holder.stdout.readline() != "\n":
            error = self.holder.stderr.read().strip()
            self.close()
            raise OSError(error)
        self.ip("link", "set", "lo", "up")

    def enter(self, *command):
        """The command line that runs a command there."""
        return ["nsenter", f"--target={self.holder.pid}", "--net", "--uts", "--", *map(str, command)]

    def ip(self, *arguments):
        run(*self.enter("ip", *arguments))

    def close(self):
        self.holder.communicate()


class Node(Namespace):
    """node-0 is 10.99.0.1, and so on."""

    def __init__(self, number, switch):
        super().__init__(f"node-{number}")
        self.address = f"10.99.0.{number + 1}"
        self.switch, self.port = switch, f"port{number}"
        switch.ip("link", "add", self.port, "type", "veth", "peer", "name", "eth0", "netns", self.holder.pid)
        switch.ip("link", "set", self.port, "master", "bridge", "up")
        self.ip("address", "add", f"{self.address}/24", "dev", "eth0")
        self.ip("link", "set", "eth0", "up")

    def pull_cable(self):
        self.switch.ip("link", "set", self.port, "down")

    def plug_cable(self):
        self.switch.ip("link", "set", self.port, "up")


class Network:
    def __init__(self, num_nodes):
        self.nodes = []
        self.switch = Namespace("switch")
        try:
            self.switch.ip("link", "add", "bridge", "type", "bridge")
            self.switch.ip("link", "set", "bridge", "up")
            for number in range(num_nodes):
                self.nodes.append(Node(number, self.switch))
        except OSError:
            self.close()
            raise

    def close(self):
        for namespace in (*self.nodes, self.switch):
            namespace.close()
