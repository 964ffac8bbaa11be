"""Ranks that mpirun has started, without tandem's launcher: the same bits as with it.

Under Open MPI's and MPICH's, each skipped where it is not installed (scripts/setup --cluster). Run by scripts/test --cluster.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "dist"))
import ranks
import tandem_run
from ranks import LLAMA, RanksTest, config, mesh


class OpenMpi(RanksTest):
    one_node_only = "mpirun is started on one machine"
    package = "openmpi-bin"
    # Four ranks on any machine, as root in containers too; no other network than this machine's.
    start = ("mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--mca", "btl", "tcp,self", "-np", "4")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if not shutil.which(cls.start[0]):
            raise unittest.SkipTest(f"{cls.start[0]} is not installed ({cls.package}): scripts/setup --cluster")

    def mpirun(self, *words, variables=None):
        env = {**os.environ, "MASTER_PORT": str(tandem_run.free_port()), **(variables or {})}
        done = subprocess.run([*self.start, tandem_run.program(), *map(str, words)], cwd=self.directory, env=env, capture_output=True,
                              text=True, timeout=tandem_run.DEADLINE_S, stdin=subprocess.DEVNULL)
        return tandem_run.Result(done.returncode, done.stdout, done.stderr)

    def content(self, parallel):
        return config(LLAMA, parallel=parallel, checkpoint={"every": 4}, train={"steps": 8, "batch": 8, "micro_batch": 1})

    def test_four_ranks_give_the_launchers_curve(self):
        for parallel in (mesh("fsdp", data=4), mesh("zero1", data=2, tensor=2)):
            content = self.content(parallel)
            name = parallel["strategy"]
            launched = self.train(content, f"launched-{name}")
            result = self.mpirun("train", self.write_config(content, "mpi.yaml"), "--run-dir", self.directory / f"mpi-{name}")
            self.assertEqual(0, result.code, result)
            self.assert_equal_runs(launched, self.directory / f"mpi-{name}")

    def test_in_a_job_of_slurms_its_variables_are_not_the_ranks(self):
        content = self.content(mesh("ddp", data=4))
        launched = self.train(content, "launched")
        result = self.mpirun("train", self.write_config(content, "mpi.yaml"), "--run-dir", self.directory / "mpi",
                             variables={"SLURM_PROCID": "0", "SLURM_NTASKS": "1"})
        self.assertEqual(0, result.code, result)
        self.assert_equal_runs(launched, self.directory / "mpi")

    def test_another_number_of_ranks_than_the_mesh_has_is_refused(self):
        result = self.mpirun("train", self.write_config(self.content(mesh("ddp", data=2)), "mpi.yaml"))
        self.assertNotEqual(0, result.code)
        self.assertIn("found 4 processes", result.err)


class Mpich(OpenMpi):
    package = "mpich"
    start = ("mpiexec.hydra", "-n", "4")


if __name__ == "__main__":
    ranks.main()
