"""Memory of many ranks: planned is allocated on each of them, and model state shrinks as the table says."""

import re

import formulas
import ranks
import tandem_run
from ranks import GPT2, LLAMA, RESNET, RanksTest, config, mesh

STATE = ("weights", "master", "gradients", "optimizer")
EVERYTHING = {"offload": ["params", "optimizer"]}


def state_bytes(planned):
    return sum(planned[category] for category in STATE)


def training(model, precision="fp32", micro_batch=2, parallel=None, **sections):
    return config(model, precision=precision, parallel=parallel or mesh(),
                  train={"batch": 8, "micro_batch": micro_batch}, **sections)


class PlannedMemory(RanksTest):
    def test_every_rank_allocates_what_was_planned(self):
        full = {"recompute": "full"}
        cases = {
            "ddp 2": training(GPT2, parallel=mesh("ddp", data=2)),
            "zero1 2, bf16": training(GPT2, "bf16", parallel=mesh("zero1", data=2)),
            "zero2 4": training(LLAMA, parallel=mesh("zero2", data=4)),
            "fsdp 4, bf16, accumulating": training(LLAMA, "bf16", 1, mesh("fsdp", data=4)),
            "zero2 2, fp16": training(GPT2, "fp16", parallel=mesh("zero2", data=2)),
            "ddp 2, offload": training(LLAMA, "bf16", parallel=mesh("ddp", data=2), memory={"offload": ["optimizer"]}),
            "fsdp 2, all offload": training(GPT2, "bf16", parallel=mesh("fsdp", data=2), memory=EVERYTHING),
            "zero1 2, once a step": training(GPT2, "bf16", parallel=mesh("zero1", data=2, sync="step", reduce="bf16")),
            "tensor 4": training(LLAMA, "bf16", parallel=mesh(tensor=4)),
            "gpipe 2": training(GPT2, parallel=mesh(pipeline=2, schedule="gpipe"), memory=full),
            "interleaved 2": training(LLAMA, parallel=mesh(pipeline=2, schedule="interleaved", chunks=2)),
            "2x2x2 fsdp": training(GPT2, "bf16", parallel=mesh("fsdp", data=2, tensor=2, pipeline=2)),
            "2x2x2 zero1": training(LLAMA, parallel=mesh("zero1", data=2, tensor=2, pipeline=2)),
            "resnet fsdp 2": training(RESNET, parallel=mesh("fsdp", data=2)),
        }
        for name, content in cases.items():
            with self.subTest(case=name):
                rows = self.bench(content)
                planned = {rank["rank"]: rank["planned_bytes"] for rank in self.plan(content)["ranks"]}
                self.assertEqual(list(range(ranks.num_processes(content))), [row["rank"] for row in rows])
                for row in rows:
                    self.assertEqual(row["planned"], row["allocated"], f"rank {row['rank']}")
                    self.assertEqual(planned[row["rank"]], row["allocated"], f"plan of rank {row['rank']}")


class ModelState(RanksTest):
    """Per parameter and N ranks, with AdamW. Gradients are fp32 whatever the precision, and a rank keeps its part of
    them. A bf16 weight is half of its master; an fp16 one has its whole master beside it."""

    one_node_only = "plans: no rank is started, and a plan knows no nodes"

    TABLE = {
        ("bf16", "ddp"): lambda n: 12 + 4 / n,
        ("bf16", "zero1"): lambda n: 2 + 14 / n,
        ("bf16", "zero2"): lambda n: 2 + 14 / n,
        ("bf16", "fsdp"): lambda n: 16 / n,
        ("fp16", "ddp"): lambda n: 14 + 4 / n,
        ("fp16", "zero1"): lambda n: 2 + 16 / n,
        ("fp16", "zero2"): lambda n: 2 + 16 / n,
        ("fp16", "fsdp"): lambda n: 18 / n,
        ("fp32", "ddp"): lambda n: 12 + 4 / n,
        ("fp32", "zero1"): lambda n: 4 + 12 / n,
        ("fp32", "zero2"): lambda n: 4 + 12 / n,
        ("fp32", "fsdp"): lambda n: 16 / n,
    }

    # What bf16 with fp32 Adam takes where gradients are 16 bits wide and masters whole: never more than that.
    YARDSTICK = {"ddp": lambda n: 16, "zero1": lambda n: 4 + 12 / n, "zero2": lambda n: 2 + 14 / n,
                 "fsdp": lambda n: 16 / n}

    def test_is_the_formula_of_the_padded_units_to_the_byte(self):
        for model, precision, data, micro_batch in ((GPT2, "fp32", 2, 4), (LLAMA, "bf16", 4, 1), (GPT2, "bf16", 8, 1),
                                                    (LLAMA, "fp32", 4, 1), (GPT2, "fp16", 2, 2)):
            elems = sum(formulas.unit_elems(model, data).values())
            for strategy in ("ddp", "zero1", "zero2", "fsdp"):
                with self.subTest(model=model["family"], precision=precision, data=data, strategy=strategy):
                    plan = self.plan(training(model, precision, micro_batch, mesh(strategy, data=data)))
                    self.assertEqual(formulas.num_params(model), plan["parameters"])
                    expected = formulas.model_state(strategy, elems, data, precision)
                    self.assertEqual(expected, state_bytes(plan["planned_bytes"]))
                    if precision == "bf16":
                        self.assertLessEqual(expected - formulas.STATS, elems * self.YARDSTICK[strategy](data))

    def test_passes_that_are_reduced_once_a_step_add_up_whole_gradients(self):
        elems = sum(formulas.unit_elems(LLAMA, 2).values())
        for strategy in ("ddp", "zero1"):
            for micro_batch in (4, 2):  # one pass a step, which is reduced at once, and two
                with self.subTest(strategy=strategy, micro_batch=micro_batch):
                    plan = self.plan(training(LLAMA, "bf16", micro_batch, mesh(strategy, data=2, sync="step")))
                    expected = formulas.model_state(strategy, elems, 2, "bf16", once=micro_batch == 2)
                    self.assertEqual(expected, state_bytes(plan["planned_bytes"]))

    def test_follows_the_table_for_a_model_of_real_size_on_more_ranks_than_there_are(self):
        # gpt2-124m. Padding is at most a few thousandths there.
        model = {"family": "gpt2", "layers": 12, "width": 768, "heads": 12, "context": 1024, "vocab": 50304}
        for (precision, strategy), bytes_per_param in self.TABLE.items():
            with self.subTest(precision=precision, strategy=strategy):
                content = config(model, precision=precision, parallel=mesh(strategy, data=64),
                                 train={"batch": 64, "micro_batch": 1}, memory={"limit": "1TiB"})
                plan = self.plan(content)
                per_param = state_bytes(plan["planned_bytes"]) / plan["parameters"]
                self.assertAlmostEqual(1, per_param / bytes_per_param(64), delta=0.005)

    def test_the_other_axes_divide_it_as_well(self):
        model = {"family": "llama", "layers": 8, "width": 512, "heads": 8, "context": 64, "vocab": 4096, "ffn": 1024}
        content = config(model, precision="bf16", memory={"limit": "1TiB"}, train={"batch": 16, "micro_batch": 2})
        whole = state_bytes(self.plan(content)["planned_bytes"])
        split = self.plan({**content, "parallel": mesh("fsdp", data=2, tensor=4, pipeline=2)})
        self.assertEqual(16, len(split["ranks"]))
        total = sum(state_bytes(rank["planned_bytes"]) for rank in split["ranks"])
        self.assertAlmostEqual(1, total / whole, delta=0.01)

    def test_1f1b_keeps_fewer_activations_than_gpipe(self):
        activations = {}
        for schedule in ("gpipe", "1f1b"):
            content = config({**LLAMA, "layers": 8}, parallel=mesh(pipeline=4, schedule=schedule),
                             train={"batch": 32, "micro_batch": 1})
            activations[schedule] = [rank["planned_bytes"]["activations"] for rank in self.plan(content)["ranks"]]
        # The first of 4 stages has 4 of 32 micro-batches in flight instead of all of them.
        self.assertLess(activations["1f1b"][0], activations["gpipe"][0] / 4)
        for in_turn, all_first in zip(activations["1f1b"], activations["gpipe"]):
            self.assertLess(in_turn, all_first)


    def test_gathered_weights_do_not_grow_with_the_micro_batches_of_a_pipeline(self):
        gathered = []
        for batch in (8, 32):
            content = config({**LLAMA, "vocab": 4096}, parallel=mesh("fsdp", data=2, pipeline=2, schedule="gpipe"),
                             train={"batch": batch, "micro_batch": 1})
            gathered.append(max(rank["planned_bytes"]["communication"] for rank in self.plan(content)["ranks"]))
        self.assertLess(gathered[1], 1.1 * gathered[0])


class LimitedMemory(RanksTest):
    def test_all_ranks_make_the_same_automatic_choice_of_recomputation(self):
        # Between what tensor rank 0 needs and what the others need: each alone would choose differently.
        content = config(GPT2, parallel=mesh(tensor=2), train={"steps": 2, "batch": 8, "micro_batch": 4})
        needs = [rank["planned_total"] for rank in self.plan(content)["ranks"]]
        self.assertGreater(needs[0], needs[1])
        limited = {**content, "memory": {"recompute": "auto", "limit": (needs[0] + needs[1]) // 2}}
        self.assert_equal_runs(self.train(content, "free"), self.train(limited, "limited"))

    def test_the_change_that_is_named_fits_every_rank(self):
        content = config(GPT2, parallel=mesh(tensor=2), train={"steps": 2, "batch": 8, "micro_batch": 4})
        full = self.plan({**content, "memory": {"recompute": "full"}})
        limit = full["ranks"][1]["planned_total"] + 64
        limited = {**content, "memory": {"recompute": "none", "limit": limit}}
        path = self.write_config(limited)
        refused = self.launch(limited, "train", path, "--run-dir", self.directory / "run", expect=None)
        self.assertEqual(tandem_run.DOES_NOT_FIT, refused.code, refused)
        named = re.search(r"fits is ((?:--set \S+ ?)+)", refused.err).group(1).split()
        self.launch(limited, "train", path, "--run-dir", self.directory / "run", *named)

    def test_four_ranks_train_a_model_of_over_three_times_a_ranks_memory(self):
        # Many blocks, so that the one at work is small beside the rest.
        model = {**GPT2, "layers": 32, "width": 64, "context": 8}
        content = config(model, train={"batch": 4, "micro_batch": 1, "steps": 3}, checkpoint={"async": False},
                         memory={"recompute": "full"})
        sharded = {**content, "parallel": mesh("fsdp", data=4)}
        state = state_bytes(self.plan(content)["planned_bytes"])
        limit = max(rank["planned_total"] for rank in self.plan(sharded)["ranks"])
        self.assertGreater(state, 3 * limit)
        memory = {**content["memory"], "limit": limit}
        refused = self.tandem("train", self.write_config({**content, "memory": memory}), expect=None)
        self.assert_one_line_error(refused, tandem_run.DOES_NOT_FIT, "memory")
        run = self.train({**sharded, "memory": memory}, "limited")
        self.assertLessEqual(sum(tandem_run.read_summary(run)["planned_bytes"].values()), limit)
        # It is the same model: one rank without a limit finds the same losses.
        self.assert_close_runs(self.train(content, "alone"), run, 1e-5)


if __name__ == "__main__":
    ranks.main()
