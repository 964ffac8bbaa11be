"""What the tests with several ranks share: start them with `tandem launch`, and read what each left behind.

Test files are run as network.py says; several nodes share the ranks of a test between them. Sizes are chosen so that a
step takes milliseconds and every axis divides what it splits, though nothing is a power of two for its own sake:
padding is part of what is tested.
"""

import json
import math
import os

import network
import tandem_run
from launchers import Launchers

GPT2 = {"family": "gpt2", "layers": 4, "width": 40, "heads": 4, "context": 24, "vocab": 256, "tied": True}
LLAMA = {"family": "llama", "layers": 4, "width": 48, "heads": 8, "kv_heads": 4, "context": 24, "vocab": 256,
         "ffn": 104, "tied": False}
# Between them, all that the families of the llama builder differ in.
GEMMA = {**LLAMA, "head": 8, "tied": True, "norm_plus_one": True, "norm_place": "both", "activation": "gelu", "embed_scale": 7.0,
         "attention_scale": 0.3, "attention_softcap": 20.0, "logit_softcap": 10.0, "window": 9, "full_layers": [1, 3],
         "qk_norm": "head", "rope_local_theta": 500.0, "rope_scaling": "linear:factor=2"}
OLMO = {**LLAMA, "qk_norm": "all", "norm_place": "after", "qkv_bias": True, "out_bias": True, "ffn_bias": True, "rope_dims": 4,
        "no_rope_layers": [2], "residual_scale": 0.5, "logit_scale": 0.5,
        "rope_scaling": "yarn:factor=4,original_max_position_embeddings=16"}
RESNET = {"family": "resnet", "blocks": [1, 1, 1], "width": 8, "image_size": 16, "norm": "sync"}

# What a launcher sets, which must not leak into the ranks of a test that is itself run by one.
LAUNCHER_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
                      "TANDEM_SECRET", "TANDEM_SECRET_FILE", "TANDEM_INSECURE")


def config(model, **sections):
    """As tandem_run.config, with no threads for data: ranks outnumber the cores."""
    sections["data"] = {"workers": 0, "eval_samples": 16, **sections.get("data", {})}
    return tandem_run.config(model, **sections)


def mesh(strategy="single", data=1, tensor=1, pipeline=1, **others):
    return {"strategy": strategy, "data": data, "tensor": tensor, "pipeline": pipeline, **others}


def num_processes(content):
    parallel = content.get("parallel", {})
    if parallel.get("strategy") == "dp":
        return 1
    return math.prod(parallel.get(axis, 1) for axis in ("data", "tensor", "pipeline"))


class RanksTest(network.NodesTest):
    def setUp(self):
        super().setUp()
        self.num_launches = 0
        for variable in LAUNCHER_VARIABLES:
            os.environ.pop(variable, None)

    def start_ranks(self, num_ranks, *arguments, nodes=None, env=None):
        """`arguments` are those of the launcher and the program's. All nodes start unless `nodes` says which."""
        self.num_launches += 1
        launchers = Launchers(self, self.logs(), env)
        shares = self.shares(num_ranks)
        for node in range(self.num_nodes) if nodes is None else nodes:
            launchers.start(node, tandem_run.program(), "launch", "--nproc-per-node", shares[node],
                            "--log-dir", self.logs(), *self.place(node, self.num_launches), *arguments)
        return launchers

    def launch(self, content, command, *arguments, expect=tandem_run.DONE, env=None):
        """Runs a command of the program on as many ranks as the config's mesh has. The result is that of node 0; the
        others end with the same code. `expect` is that, or None for any."""
        if num_processes(content) == 1:
            return self.tandem(command, *arguments, expect=expect, env=env)
        results = self.start_ranks(num_processes(content), command, *arguments, env=env).results()
        code = results[0].code if expect is None else expect
        told = "\n".join(map(str, results))
        self.assertEqual([code] * self.num_nodes, [result.code for result in results], told)
        return results[0]

    def logs(self):
        """Of the last launch."""
        return self.directory / f"logs-{self.num_launches}"

    def train(self, content, run, *arguments, **options):
        path = self.write_config(content, f"{run}.yaml")
        self.launch(content, "train", path, "--run-dir", self.directory / run, *arguments, **options)
        return self.directory / run

    def train_on_one_node(self, content, run, *arguments):
        """Without a network, however many nodes the test has."""
        path = self.write_config(content, f"{run}.yaml")
        ranks = num_processes(content)
        before = ("launch", "--nproc-per-node", ranks) if ranks > 1 else ()
        self.tandem(*before, "train", path, "--run-dir", self.directory / run, *arguments)
        return self.directory / run

    def bench(self, content):
        """One row a rank, in order."""
        path = self.write_config(content, "bench.yaml")
        alone = self.launch(content, "bench", path, "--json", "--steps", 2, "--warmup", 1).out
        if num_processes(content) == 1:
            return [json.loads(alone)]
        logs = [self.logs() / f"rank-{rank}.log" for rank in range(num_processes(content))]
        return [json.loads(next(line for line in log.read_text().splitlines() if line.startswith("{")))
                for log in logs]

    def assert_close_runs(self, a, b, bound, without=()):
        """Every number of every step within `bound` of the other's, relatively. Returns the largest difference."""
        rows_a, rows_b = tandem_run.read_metrics(a), tandem_run.read_metrics(b)
        self.assertEqual([list(row) for row in rows_a], [list(row) for row in rows_b])
        worst = (0, "")
        for row_a, row_b in zip(rows_a, rows_b):
            for key in row_a.keys() - set(without):
                away = abs(float(row_a[key]) - float(row_b[key])) / max(abs(float(row_a[key])), 1e-30)
                worst = max(worst, (away, f"step {row_a['step']}: {key} {row_a[key]} and {row_b[key]}"))
        self.assertLessEqual(worst[0], bound, worst[1])
        return worst[0]

def main():
    network.main()
