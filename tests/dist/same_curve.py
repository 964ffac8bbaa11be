"""Whatever the mesh and the strategy, the same curve: to the last bit where sums keep their order, within rounding
where an axis changes it. Clipping is at work in every step and evaluations are among the rows that are compared.
Messages over a network in place of shared memory change nothing."""

import ranks
import tandem_run
from network import one_node_will_do
from ranks import GEMMA, GPT2, LLAMA, OLMO, RESNET, RanksTest, config, mesh, num_processes

BATCH, CLIP = 16, 0.5

# Where a sum of many terms is made in another order, it differs by a few units of fp32's last place.
LOSS_BOUND = 1e-5
# In bf16 such a difference now and then rounds a number the other way, which is worth 1/256 of it, and nothing after it
# is quite the same: a token's loss carries noise of a few 1e-4, and Adam makes a step of noise where a gradient is
# little more. The mean over the 384 tokens of a small step and 30 steps of a high learning rate drift by this much, no
# less between ddp and one rank than on a tensor axis. Over many tokens LOSS_BOUND holds: see ManyTokens.
SMALL_BF16_LOSS_BOUND, SMALL_BF16_NORM_BOUND = 5e-4, 2e-2

# Lion makes a whole step of any gradient, also where rounding settles its sign.
LION_LOSS_BOUND = 1e-3

ZERO1, ZERO2, FSDP = {"strategy": "zero1"}, {"strategy": "zero2"}, {"strategy": "fsdp"}
OPTIMIZER, EVERYTHING = {"offload": ["optimizer"]}, {"offload": ["params", "optimizer"]}
FULL, SELECTIVE = {"recompute": "full"}, {"recompute": "selective"}
FALLING = {"loss_scale": 2.0**26, "loss_scale_window": 4}
STEPS = 30  # long enough for a drift to show


def training(model, precision, micro_batch, parallel=None, memory=None, **train):
    return config(model, precision=precision, parallel=parallel or mesh(), memory=memory or {},
                  train={"steps": STEPS, "batch": BATCH, "micro_batch": micro_batch, "warmup": 5,
                         "eval_every": STEPS // 3, "clip": CLIP, **train})


class CurveTest(RanksTest):
    def reference(self, *arguments, **options):
        """Always on one node; several nodes give the same bits."""
        content = training(*arguments, **options)
        run = self.train_on_one_node(content, "reference")
        rows = tandem_run.read_metrics(run)
        self.assertEqual(STEPS, len(rows))
        self.assertEqual(3, sum("eval_loss" in row for row in rows))
        self.assertTrue(all(float(row["grad_norm"]) > CLIP for row in rows), "clipping never rests")
        if self.num_nodes > 1 and num_processes(content) > 1:
            self.assert_equal_runs(run, self.train(content, "reference-on-nodes"))
        return run

    def assert_within_rounding(self, reference, run, precision):
        if precision == "fp32":
            return self.assert_close_runs(reference, run, LOSS_BOUND)
        self.assert_close_runs(reference, run, SMALL_BF16_LOSS_BOUND, without=("grad_norm",))
        return self.assert_close_runs(reference, run, SMALL_BF16_NORM_BOUND)

    def assert_falls_and_grows(self, run):
        scales = [float(row["loss_scale"]) for row in tandem_run.read_metrics(run)]
        changes = {after / before for before, after in zip(scales, scales[1:])}
        self.assertLessEqual({0.5, 2.0}, changes, scales)
        self.assertTrue(tandem_run.read_events(run, "overflow"))


class DataAxis(CurveTest):
    """ddp, zero1, zero2 and fsdp give the same bits, and all stay within rounding of one rank."""

    def check(self, model, precision, data, accumulation, *variants):
        """`variants` are pairs of a strategy and what memory is told, besides the four strategies themselves."""
        micro_batch = BATCH // (data * accumulation)
        reference = self.reference(model, precision, micro_batch, mesh("ddp", data=data))
        alone = self.train(training(model, precision, micro_batch), "alone")
        self.assert_within_rounding(alone, reference, precision)
        for number, (strategy, memory) in enumerate([(ZERO1, {}), (ZERO2, {}), (FSDP, {}), *variants]):
            with self.subTest(memory=memory, **strategy):
                content = training(model, precision, micro_batch, mesh(data=data, **strategy), memory)
                self.assert_equal_runs(reference, self.train(content, f"run-{number}"))

    @one_node_will_do
    def test_gpt2_fp32_on_2_ranks_with_all_kinds_of_offload(self):
        self.check(GPT2, "fp32", 2, 1, ({"strategy": "ddp"}, OPTIMIZER), (ZERO1, OPTIMIZER), (ZERO2, OPTIMIZER),
                   (FSDP, OPTIMIZER), (FSDP, EVERYTHING))

    @one_node_will_do
    def test_llama_bf16_on_2_ranks_with_recomputation_and_offload(self):
        self.check(LLAMA, "bf16", 2, 2, (FSDP, FULL), (FSDP, SELECTIVE), ({"strategy": "ddp"}, FULL),
                   (FSDP, {**EVERYTHING, **FULL}), (ZERO2, OPTIMIZER))

    @one_node_will_do
    def test_a_family_like_gemma_on_2_ranks(self):
        self.check(GEMMA, "bf16", 2, 2, (FSDP, FULL), (FSDP, {**EVERYTHING, **SELECTIVE}))

    @one_node_will_do
    def test_a_family_like_olmo_on_2_ranks(self):
        self.check(OLMO, "fp32", 2, 1, (FSDP, SELECTIVE))

    @one_node_will_do
    def test_gpt2_bf16_on_4_ranks(self):
        self.check(GPT2, "bf16", 4, 2, (FSDP, {**OPTIMIZER, **SELECTIVE}))

    def test_llama_fp32_on_4_ranks(self):
        self.check(LLAMA, "fp32", 4, 1, (FSDP, {"recompute": "every:2"}))

    def test_gpt2_fp32_on_8_ranks(self):
        self.check(GPT2, "fp32", 8, 2)

    @one_node_will_do
    def test_llama_bf16_on_8_ranks(self):
        self.check(LLAMA, "bf16", 8, 1)

    def test_gradients_that_are_reduced_once_a_step(self):
        once = {"data": 2, "sync": "step"}
        alone = self.train(training(LLAMA, "fp32", 2), "alone")
        reference = self.reference(LLAMA, "fp32", 2, mesh("ddp", **once))
        self.assert_within_rounding(alone, reference, "fp32")
        self.assert_equal_runs(reference, self.train(training(LLAMA, "fp32", 2, mesh("zero1", **once)), "zero1"))

    def test_gradients_that_travel_in_16_bits(self):
        narrow = {"data": 2, "reduce": "bf16"}
        alone = self.train(training(LLAMA, "fp32", 4), "alone")
        reference = self.reference(LLAMA, "fp32", 4, mesh("ddp", **narrow))
        self.assert_within_rounding(alone, reference, "bf16")
        self.assert_equal_runs(reference, self.train(training(LLAMA, "fp32", 4, mesh("fsdp", **narrow)), "fsdp"))

    @one_node_will_do
    def test_dp_threads_of_one_process_equal_ddp(self):
        for model, precision in ((GPT2, "bf16"), (LLAMA, "fp32")):
            with self.subTest(model=model["family"], precision=precision):
                name = model["family"]
                ddp = self.train(training(model, precision, 4, mesh("ddp", data=2)), f"{name}-ddp")
                dp = self.train(training(model, precision, 4, mesh("dp", data=2)), f"{name}-dp")
                self.assert_equal_runs(ddp, dp)

    @one_node_will_do
    def test_sgd_and_fp16_with_a_loss_scale_that_has_to_fall(self):
        options = {"optimizer": "sgd", "lr": 0.05, "loss_scale": 2.0**26}
        reference = self.train(training(GPT2, "fp16", 4, mesh("ddp", data=2), **options), "ddp")
        self.assertTrue(tandem_run.read_events(reference, "overflow"))
        for strategy in (ZERO1, FSDP):
            with self.subTest(**strategy):
                content = training(GPT2, "fp16", 4, mesh(data=2, **strategy), **options)
                self.assert_equal_runs(reference, self.train(content, strategy["strategy"]))

    @one_node_will_do
    def test_lion_on_every_axis_and_offloaded(self):
        options = {"optimizer": "lion"}
        for precision in ("bf16", "fp16"):
            reference = self.train(training(GPT2, precision, 4, mesh("ddp", data=2), **options), f"{precision}-ddp")
            for number, (strategy, memory) in enumerate([(ZERO1, {}), (ZERO2, OPTIMIZER), (FSDP, EVERYTHING)]):
                with self.subTest(precision=precision, **strategy):
                    content = training(GPT2, precision, 4, mesh(data=2, **strategy), memory, **options)
                    self.assert_equal_runs(reference, self.train(content, f"{precision}-{number}"))
        alone = self.train(training(GPT2, "fp32", 2, **options), "alone")
        pipeline = training(GPT2, "fp32", 2, mesh(pipeline=2), **options)
        self.assert_equal_runs(alone, self.train(pipeline, "pipeline"))
        tensor = training(GPT2, "fp32", 2, mesh(tensor=2), **options)
        self.assert_close_runs(alone, self.train(tensor, "tensor"), LION_LOSS_BOUND)

    @one_node_will_do
    def test_packed_states_and_offloaded(self):
        for state in ("bf16", "int8"):
            options = {"optimizer_state": state}
            reference = self.train(training(GPT2, "bf16", 4, mesh("ddp", data=2), **options), f"{state}-ddp")
            for number, (strategy, memory) in enumerate([(ZERO1, {}), (FSDP, EVERYTHING)]):
                with self.subTest(state=state, **strategy):
                    content = training(GPT2, "bf16", 4, mesh(data=2, **strategy), memory, **options)
                    self.assert_equal_runs(reference, self.train(content, f"{state}-{number}"))

    @one_node_will_do
    def test_muon_on_every_axis_and_offloaded(self):
        options = {"optimizer": "muon"}
        reference = self.train(training(GPT2, "bf16", 4, mesh("ddp", data=2), **options), "ddp")
        for number, (strategy, memory) in enumerate([(ZERO1, {}), (ZERO2, OPTIMIZER), (FSDP, EVERYTHING)]):
            with self.subTest(**strategy):
                content = training(GPT2, "bf16", 4, mesh(data=2, **strategy), memory, **options)
                self.assert_equal_runs(reference, self.train(content, f"run-{number}"))
        alone = self.train(training(GPT2, "fp32", 2, **options), "alone")
        pipeline = training(GPT2, "fp32", 2, mesh(pipeline=2), **options)
        self.assert_equal_runs(alone, self.train(pipeline, "pipeline"))
        for number, parallel in enumerate((mesh(tensor=2), mesh("fsdp", data=2, tensor=2))):
            with self.subTest(parallel=parallel):
                self.assert_close_runs(alone, self.train(training(GPT2, "fp32", 2, parallel, **options), f"mix-{number}"),
                                       LOSS_BOUND)

    def test_norms_of_whole_parameters_and_averages(self):
        if self.num_nodes > 1:
            self.skipTest("an update knows no nodes")
        for optimizer in ("lamb", "lars", "schedule_free_adamw", "adafactor"):
            options = {"optimizer": optimizer, "batch": 12}
            if optimizer == "schedule_free_adamw":
                options["lr"] = 5e-4  # without momentum, AdamW's too, 30 larger steps follow rounding errors
            with self.subTest(optimizer=optimizer):
                alone = self.train(training(GPT2, "fp32", 2, **options), f"{optimizer}-alone")
                three = self.train(training(GPT2, "fp32", 2, mesh("zero1", data=3), **options), f"{optimizer}-zero1")
                self.assert_close_runs(alone, three, LOSS_BOUND)
                sharded = self.train(training(GPT2, "fp32", 2, mesh("fsdp", data=3), **options), f"{optimizer}-fsdp")
                self.assert_equal_runs(three, sharded)


class PipelineAxis(CurveTest):
    """Each schedule gives the bits of one rank that accumulates the same micro-batches."""

    def check(self, model, precision, *meshes, memory=None):
        reference = self.reference(model, precision, 2)
        for number, parallel in enumerate(meshes):
            with self.subTest(**parallel):
                content = training(model, precision, 2, mesh(**parallel), memory)
                self.assert_equal_runs(reference, self.train(content, f"run-{number}"))

    @one_node_will_do
    def test_gpt2_whose_ends_share_a_table(self):
        for precision in ("fp32", "bf16"):
            with self.subTest(precision=precision):
                self.check(GPT2, precision, {"pipeline": 2, "schedule": "gpipe"}, {"pipeline": 4, "schedule": "1f1b"},
                           {"pipeline": 2, "schedule": "interleaved", "chunks": 2})

    def test_llama(self):
        deep = {**LLAMA, "layers": 8}
        self.check(deep, "fp32", {"pipeline": 2, "schedule": "1f1b"}, {"pipeline": 4, "schedule": "gpipe"},
                   {"pipeline": 4, "schedule": "interleaved", "chunks": 2})

    @one_node_will_do
    def test_a_family_like_gemma(self):
        self.check(GEMMA, "fp32", {"pipeline": 2, "schedule": "1f1b"}, {"pipeline": 2, "schedule": "interleaved", "chunks": 2})

    @one_node_will_do
    def test_a_family_like_olmo(self):
        self.check(OLMO, "bf16", {"pipeline": 2, "schedule": "gpipe"}, memory=FULL)

    @one_node_will_do
    def test_llama_bf16_with_recomputation_on_stages_of_unequal_size(self):
        self.check(LLAMA, "bf16", {"pipeline": 3, "schedule": "1f1b"}, {"pipeline": 2, "schedule": "gpipe"},
                   {"pipeline": 2, "schedule": "interleaved", "chunks": 2}, memory=FULL)

    def test_fp16_with_a_loss_scale_that_falls_and_grows(self):
        reference = self.train_on_one_node(training(GPT2, "fp16", 2, **FALLING), "reference")
        self.assert_falls_and_grows(reference)
        for parallel in ({"pipeline": 2, "schedule": "gpipe"}, {"pipeline": 2, "schedule": "interleaved", "chunks": 2}):
            with self.subTest(**parallel):
                content = training(GPT2, "fp16", 2, mesh(**parallel), FULL, **FALLING)
                self.assert_equal_runs(reference, self.train(content, parallel["schedule"]))


class TensorAxisAndMixes(CurveTest):
    """Sums in another order: within rounding of one rank."""

    def check(self, model, precision, *meshes):
        reference = self.reference(model, precision, 2)
        for number, parallel in enumerate(meshes):
            with self.subTest(**parallel):
                content = training(model, precision, 2, mesh(**parallel))
                self.assert_within_rounding(reference, self.train(content, f"run-{number}"), precision)

    def test_gpt2_fp32(self):
        self.check(GPT2, "fp32", {"tensor": 2}, {"tensor": 4},
                   {"strategy": "zero1", "data": 2, "tensor": 2, "pipeline": 2},
                   {"strategy": "fsdp", "data": 2, "tensor": 2, "pipeline": 2, "schedule": "gpipe"},
                   {"strategy": "zero2", "data": 2, "tensor": 4})

    @one_node_will_do
    def test_llama_fp32(self):
        self.check(LLAMA, "fp32", {"tensor": 2}, {"tensor": 4},
                   {"strategy": "fsdp", "data": 2, "tensor": 2, "pipeline": 2, "schedule": "interleaved", "chunks": 2},
                   {"strategy": "fsdp", "data": 4, "tensor": 2}, {"strategy": "ddp", "data": 4, "pipeline": 2},
                   {"tensor": 2, "pipeline": 4})

    @one_node_will_do
    def test_a_family_like_gemma(self):
        self.check(GEMMA, "fp32", {"tensor": 2}, {"strategy": "fsdp", "data": 2, "tensor": 2, "pipeline": 2})

    @one_node_will_do
    def test_gpt2_so_narrow_that_the_parts_of_a_block_cut_through_its_norms(self):
        # A bias after a sum is on one tensor rank only, so the ranks' blocks differ in size.
        narrow = {**GPT2, "width": 8, "heads": 2, "ffn": 8}
        self.check(narrow, "fp32", {"strategy": "zero1", "data": 4, "tensor": 2})

    def test_strategies_give_the_same_bits_on_a_mesh_of_all_axes(self):
        axes = {"data": 2, "tensor": 2, "pipeline": 2}
        reference = self.reference(LLAMA, "bf16", 2, mesh("ddp", **axes))
        for strategy, memory in ((ZERO1, OPTIMIZER), (FSDP, {**EVERYTHING, **FULL})):
            with self.subTest(memory=memory, **strategy):
                content = training(LLAMA, "bf16", 2, mesh(**axes, **strategy), memory)
                self.assert_equal_runs(reference, self.train(content, strategy["strategy"]))

    @one_node_will_do
    def test_strategies_give_the_same_bits_in_fp16_on_a_mesh_of_all_axes(self):
        axes = {"data": 2, "tensor": 2, "pipeline": 2}
        reference = self.train_on_one_node(training(LLAMA, "fp16", 2, mesh("ddp", **axes), **FALLING), "ddp")
        self.assert_falls_and_grows(reference)
        content = training(LLAMA, "fp16", 2, mesh("fsdp", **axes), {**EVERYTHING, **FULL}, **FALLING)
        self.assert_equal_runs(reference, self.train(content, "fsdp"))


class ManyTokens(CurveTest):
    """bf16 as close as fp32, where a step has thousands of tokens and the learning rate still rises, as at the start of
    any run: noise averages out, and Adam's steps are small beside what bf16 can tell apart."""

    BATCH, CONTEXT = 64, 96
    NORM_BOUND = 3e-4

    def training(self, model, parallel=None, threads=1, **train):
        model = {**model, "layers": 2, "context": self.CONTEXT}
        content = training(model, "bf16", self.BATCH // 4, parallel, batch=self.BATCH,
                           **{"lr": 6e-4, "warmup": 100, **train})
        return {**content, "threads": threads, "data": {**content["data"], "eval_samples": self.BATCH}}

    def check(self, model, *meshes):
        reference = self.train(self.training(model, threads=2), "reference")  # threads change no bit
        for number, parallel in enumerate(meshes):
            with self.subTest(**parallel):
                run = self.train(self.training(model, mesh(**parallel)), f"run-{number}")
                self.assert_close_runs(reference, run, LOSS_BOUND, without=("grad_norm",))
                self.assert_close_runs(reference, run, self.NORM_BOUND)

    @one_node_will_do
    def test_gpt2(self):
        self.check(GPT2, {"strategy": "ddp", "data": 2}, {"tensor": 2},
                   {"strategy": "zero1", "data": 2, "tensor": 2, "pipeline": 2},
                   {"strategy": "fsdp", "data": 2, "tensor": 2, "pipeline": 2, "schedule": "gpipe"},
                   {"strategy": "zero2", "data": 2, "tensor": 4}, {"tensor": 4, "pipeline": 2})

    @one_node_will_do
    def test_llama(self):
        self.check(LLAMA, {"strategy": "ddp", "data": 2}, {"tensor": 4},
                   {"strategy": "zero1", "data": 2, "tensor": 2, "pipeline": 2, "schedule": "gpipe"},
                   {"strategy": "fsdp", "data": 2, "tensor": 2, "pipeline": 2},
                   {"strategy": "fsdp", "data": 4, "tensor": 2}, {"strategy": "ddp", "data": 4, "pipeline": 2})

    @one_node_will_do
    def test_partial_sums_are_rounded_once_they_are_added_up(self):
        # The first step's weights are the same everywhere, so the norm of its gradient tells the arithmetic of a pass.
        for model in (GPT2, LLAMA):
            with self.subTest(model=model["family"]):
                first = {"steps": 1, "eval_every": 0}
                alone = self.train(self.training(model, **first), f"{model['family']}-alone")
                away = {}
                for partial in ("fp32", "stored"):
                    content = self.training(model, mesh(tensor=2, partial=partial), **first)
                    run = self.train(content, f"{model['family']}-{partial}")
                    away[partial] = self.assert_close_runs(alone, run, 1e-3)
                self.assertLessEqual(away["fp32"], 1e-5)
                self.assertGreater(away["stored"], 5 * away["fp32"])


class SynchronizedBatchNorm(CurveTest):
    def test_ranks_with_parts_of_the_batch_equal_one_rank_with_the_whole(self):
        # Relu turns a last bit near zero into a whole gradient, and Adam any gradient into a whole step: an epsilon
        # of the gradients' own size keeps such a step small. The norm still shows the one gradient.
        stable = {"eps": 1e-4}
        alone = self.train(training({**RESNET, "norm": "batch"}, "fp32", BATCH, **stable), "alone")
        for data in (2, 4):
            runs = []
            for strategy in ("ddp", "fsdp"):
                with self.subTest(data=data, strategy=strategy):
                    content = training(RESNET, "fp32", BATCH // data, mesh(strategy, data=data), **stable)
                    runs.append(self.train(content, f"{strategy}-{data}"))
                    self.assert_close_runs(alone, runs[-1], LOSS_BOUND, without=("grad_norm",))
                    self.assert_close_runs(alone, runs[-1], 1e-3)
            self.assert_equal_runs(*runs)


class Evaluation(CurveTest):
    def test_a_number_of_samples_that_no_mesh_divides_is_evaluated_alike(self):
        losses = {}
        for parallel in ({}, {"strategy": "ddp", "data": 2}, {"strategy": "fsdp", "data": 4}, {"pipeline": 2}):
            content = training(LLAMA, "fp32", 4, mesh(**parallel), steps=2, eval_every=2)
            run = self.train({**content, "data": {**content["data"], "eval_samples": 5}}, f"run-{len(losses)}")
            losses[str(parallel)] = float(tandem_run.read_metrics(run)[-1]["eval_loss"])
        for loss in losses.values():
            self.assertAlmostEqual(1, loss / losses["{}"], delta=LOSS_BOUND, msg=losses)


if __name__ == "__main__":
    ranks.main()
