"""A checkpoint of any layout goes on in any other: the weights are those that were saved, and the data goes on where
it stood."""

import ranks
import tandem_run
from ranks import LLAMA, RESNET, RanksTest, config, mesh, num_processes

# A vocabulary that the tensor axis does not divide: its padding must not be in a checkpoint.
GPT2 = {**ranks.GPT2, "vocab": 257}
LAYOUTS = {
    "one": mesh(),
    "ddp-4": mesh("ddp", data=4),
    "fsdp-4": mesh("fsdp", data=4),
    "tensor-2-data-2": mesh("zero1", data=2, tensor=2),
    "pipeline-2-fsdp-2": mesh("fsdp", data=2, pipeline=2),
    "2-2-2": mesh("zero1", data=2, tensor=2, pipeline=2),
}
SAVED, STEPS = 3, 6
LOSS_BOUND = {"fp32": 1e-5, "bf16": 1e-3, "fp16": 1e-3}
FALLING = {"loss_scale": 2.0**26, "loss_scale_window": 2}


class AnyToAny(RanksTest):
    def content(self, model, precision, layout, **train):
        # Micro-batches of one on every layout, so that no layout is told apart by what it accumulates.
        return config(model, precision=precision, parallel=LAYOUTS[layout], checkpoint={"every": SAVED},
                      train={"steps": STEPS, "batch": 8, "micro_batch": 1, "eval_every": 0, "clip": 0.5,
                             **(FALLING if precision == "fp16" else {}), **train})

    def check(self, model, precision, sources, targets, **train):
        for source in sources:
            run = self.train(self.content(model, precision, source, **train), source)
            rows = tandem_run.read_metrics(run)
            for target in targets:
                with self.subTest(precision=precision, source=source, target=target):
                    self.check_pair(model, precision, source, run, rows, target, **train)

    def check_pair(self, model, precision, source, run, rows, target, **train):
        saved = tandem_run.checkpoint(run, SAVED)
        went_on = self.train(self.content(model, precision, target, **train), f"{source}-to-{target}",
                             "--resume-from-checkpoint", saved)
        # What was loaded is saved again at once, by the ranks of the new layout, before any step.
        loaded = tandem_run.checkpoint(went_on, SAVED)
        compared = self.tandem("inspect", saved, "--compare", loaded, expect=None)
        self.assertEqual(tandem_run.DONE, compared.code, compared)
        before, after = (tandem_run.read_manifest(folder, SAVED) for folder in (run, went_on))
        for key in ("samples", "epoch", "scalars"):
            self.assertEqual(before[key], after[key], key)
        files = sorted(file["name"] for file in after["files"])
        for rank, name in enumerate(files):  # on some file systems with the save's token before it
            self.assertTrue(name.endswith(f"rank-{rank:05}.ckpt"), name)
        self.assertEqual(num_processes({"parallel": LAYOUTS[target]}), len(files))

        # The next losses are those of the next samples: other samples would be worth far more than rounding.
        rows_after = tandem_run.read_metrics(went_on)
        self.assertEqual([str(step) for step in range(SAVED + 1, STEPS + 1)], [row["step"] for row in rows_after])
        for row, row_after in zip(rows[SAVED:], rows_after):
            self.assertEqual(row["tokens"], row_after["tokens"])
            self.assertEqual(row.get("loss_scale"), row_after.get("loss_scale"))
            self.assertAlmostEqual(1, float(row_after["loss"]) / float(row["loss"]), delta=LOSS_BOUND[precision])
        if source == target:
            self.assertEqual(rows[SAVED:], rows_after)
            self.assert_same_checkpoint(run, went_on, STEPS)

    def assert_same_checkpoint(self, a, b, step):
        compared = self.tandem("inspect", tandem_run.checkpoint(a, step), "--compare", tandem_run.checkpoint(b, step),
                               expect=None)
        self.assertEqual(tandem_run.DONE, compared.code, compared)

    def test_every_layout_goes_on_in_every_layout(self):
        if self.num_nodes == 1:
            return self.check(GPT2, "fp32", LAYOUTS, LAYOUTS)
        # Files know no nodes: each layout writes and reads there once with itself, and once with another.
        names = list(LAYOUTS)
        for number, source in enumerate(names):
            self.check(GPT2, "fp32", [source], [source, names[number - 1]])

    def test_master_weights_go_on_too(self):
        self.check(LLAMA, "bf16", ("one", "fsdp-4", "2-2-2"), ("ddp-4", "tensor-2-data-2", "2-2-2"))

    def test_another_optimizers_state_goes_on(self):
        self.check(LLAMA, "bf16", ("one", "2-2-2"), ("one", "pipeline-2-fsdp-2", "2-2-2"), optimizer="lion")

    def test_muons_state_goes_on(self):
        self.check(GPT2, "bf16", ("one", "2-2-2"), ("fsdp-4", "2-2-2"), optimizer="muon")

    def test_the_states_of_a_rule_with_norms_go_on(self):
        self.check(GPT2, "bf16", ("fsdp-4",), ("fsdp-4", "2-2-2"), optimizer="lamb")

    def test_an_average_of_all_steps_goes_on(self):
        self.check(GPT2, "bf16", ("fsdp-4",), ("fsdp-4", "2-2-2"), optimizer="schedule_free_adamw")

    def test_squares_by_rows_and_columns_go_on(self):
        self.check(GPT2, "bf16", ("fsdp-4",), ("fsdp-4", "pipeline-2-fsdp-2"), optimizer="adafactor")

    def test_states_in_8_bits_go_on_on_every_mesh_that_cuts_no_matrix(self):
        layouts = ("one", "fsdp-4", "pipeline-2-fsdp-2")
        self.check(GPT2, "bf16", layouts, layouts, optimizer_state="int8")

    def test_a_loss_scale_goes_on_from_where_it_fell_to(self):
        self.check(GPT2, "fp16", ("one", "2-2-2"), ("one", "fsdp-4", "2-2-2"))
        scales = [float(row["loss_scale"]) for row in tandem_run.read_metrics(self.directory / "2-2-2")]
        self.assertLess(scales[SAVED], FALLING["loss_scale"] / 2, "every rank must have been told it")

    def test_running_statistics_are_those_of_all_ranks(self):
        # Each rank has normalised its own micro-batches; evaluation and what is saved must not depend on which.
        for parallel in (mesh("ddp", data=2), mesh("zero1", data=2, pipeline=2)):
            with self.subTest(parallel=parallel):
                content = config({**RESNET, "norm": "batch"}, parallel=parallel, checkpoint={"every": SAVED},
                                 train={"steps": STEPS, "batch": 8, "micro_batch": 2, "eval_every": 1, "lr": 0.05})
                name = f"pipeline-{parallel['pipeline']}"
                whole = self.train(content, f"whole-{name}")
                went_on = self.train(content, f"went-on-{name}", "--resume-from-checkpoint",
                                     tandem_run.checkpoint(whole, SAVED))
                self.assertEqual(tandem_run.read_metrics(whole)[SAVED:], tandem_run.read_metrics(went_on))

    def test_offloaded_state_and_other_schedules(self):
        content = self.content(LLAMA, "bf16", "pipeline-2-fsdp-2")
        content["memory"] = {"offload": ["params", "optimizer"]}
        run = self.train(content, "run")
        rows = tandem_run.read_metrics(run)
        self.check_pair(LLAMA, "bf16", "offloaded", run, rows, "fsdp-4")
        interleaved = self.content(LLAMA, "bf16", "one")
        interleaved["parallel"] = mesh(pipeline=2, schedule="interleaved", chunks=2)
        went_on = self.train(interleaved, "interleaved", "--resume-from-checkpoint", tandem_run.checkpoint(run, SAVED))
        self.assert_same_checkpoint(run, went_on, SAVED)


if __name__ == "__main__":
    ranks.main()
