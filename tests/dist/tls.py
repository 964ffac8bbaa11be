"""parallel.tls: what ranks of two nodes send each other is encrypted, gives the same bits, and is refused where a
certificate is not of those that were to be trusted. The wire between the nodes is tapped."""

import contextlib
import pathlib
import shutil
import subprocess
import unittest

import network
import ranks
import tandem_run
from ranks import GPT2, LLAMA, config, mesh

# All frames that pass the cable of a node, until stdin ends.
TAP = """
import select, socket, sys
tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(3))
tap.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 26)
tap.bind((sys.argv[1], 0))
print("taps", flush=True)
with open(sys.argv[2], "wb") as file:
    while True:
        ready = select.select([tap, sys.stdin], [], [])[0]
        if tap in ready:
            file.write(tap.recv(1 << 17))
        elif sys.stdin in ready:
            break
"""
# In the clear: rank 0's config on its way to rank 1, and how messages begin.
PLAIN = (b'"micro_batch"', b"1mdt"[::-1])


class Encrypted(ranks.RanksTest):
    num_nodes = 2

    @contextlib.contextmanager
    def tap(self, path):
        switch, node = self.network.switch, self.network.nodes[1]
        with subprocess.Popen(switch.enter("python3", "-c", TAP, node.port, path), stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True) as tapping:
            self.assertEqual("taps\n", tapping.stdout.readline())
            yield

    def content(self, model=GPT2, **parallel):
        return config(model, parallel=parallel,
                      train={"steps": 6, "batch": 8, "micro_batch": 1, "clip": 0.5, "eval_every": 3},
                      checkpoint={"every": 3})

    def check(self, model, **parallel):
        seen = {}
        for tls in (False, True):
            path = self.directory / f"tapped-{tls}"
            with self.tap(path):
                self.train(self.content(model, **parallel, tls=tls), f"tls-{tls}")
            seen[tls] = path.read_bytes()
        self.assert_equal_runs(self.directory / "tls-False", self.directory / "tls-True")
        for part in PLAIN:
            self.assertIn(part, seen[False], "the tap does not hear what is said in the clear")
            self.assertNotIn(part, seen[True])
        self.assertGreater(len(seen[True]), len(seen[False]) // 2)  # as much was said

    def test_fsdp(self):
        self.check(GPT2, **mesh("fsdp", data=2))

    def test_a_pipeline_with_a_data_axis(self):
        self.check(LLAMA, **mesh("zero1", data=2, pipeline=2))


class Certificates(ranks.RanksTest):
    num_nodes = 2

    def setUp(self):
        super().setUp()
        if not shutil.which("openssl"):
            raise unittest.SkipTest("openssl (package openssl) not found")

    def openssl(self, *arguments):
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, cwd=self.directory)

    def authority(self, name):
        self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
                     "-days", 30, "-keyout", f"{name}.key", "-out", f"{name}.pem")

    def certificate(self, name, authority):
        self.openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
                     "-keyout", f"{name}.key", "-out", f"{name}.csr")
        self.openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{authority}.pem", "-CAkey", f"{authority}.key",
                     "-CAcreateserial", "-days", 30, "-out", f"{name}.pem")

    def start(self):
        """Rank r with the certificate rank-r."""
        script = ('export TANDEM_TLS_CERT=rank-$RANK.pem TANDEM_TLS_KEY=rank-$RANK.key TANDEM_TLS_CA=ca.pem; '
                  'exec "$0" "$@"')
        content = config(GPT2, parallel=mesh("ddp", data=2, tls=True), train={"steps": 3, "batch": 2, "micro_batch": 1})
        return self.start_ranks(2, "sh", "-c", script, tandem_run.program(), "train", self.write_config(content),
                                "--run-dir", self.directory / "run")

    def test_given_ones(self):
        self.authority("ca")
        for rank in (0, 1):
            self.certificate(f"rank-{rank}", "ca")
        self.assertEqual([tandem_run.DONE] * 2, self.start().wait())

    def test_one_that_another_authority_has_signed(self):
        self.authority("ca")
        self.authority("other")
        self.certificate("rank-0", "ca")
        self.certificate("rank-1", "other")
        agents = self.start()
        self.assertEqual([tandem_run.FAILED] * 2, agents.wait())
        told = agents.errors(0) + agents.errors(1)
        self.assertRegex(told, r"tandem: error: .*rank 1 \(node-1, pid \d+\): tls: .*certificate is refused")
        self.assertFalse((self.directory / "run").exists())


class Refusals(ranks.RanksTest):
    one_node_only = "no rank is started"

    def test_with_nccl(self):
        content = config(GPT2, device="cuda", parallel=mesh("ddp", data=2, tls=True))
        self.refuse(tandem_run.BAD_USAGE, ["parallel.tls", "NCCL"], "plan", self.write_config(content))


if __name__ == "__main__":
    ranks.main()
