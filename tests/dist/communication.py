"""Bytes sent in a step: counted at the communicators of every rank, they are those of the plan, and those of the
formulas. Collectives of the data axis run beside the computation, as a trace shows."""

import json

import formulas
import ranks
from ranks import GPT2, LLAMA, RESNET, RanksTest, config, mesh, num_processes

BATCH = 16


def training(model, precision="fp32", micro_batch=2, parallel=None, **sections):
    return config(model, precision=precision, parallel=parallel or mesh(),
                  train={"batch": BATCH, "micro_batch": micro_batch}, **sections)


class SentBytes(RanksTest):
    def sent(self, content):
        """What each rank sent, by axis, which is what it was planned to send."""
        rows = self.bench(content)
        self.assertEqual(num_processes(content), len(rows))
        for row in rows:
            self.assertEqual(row["planned_sent"], row["sent"], f"rank {row['rank']}")
        return [row["sent"] for row in rows]

    def check_data_axis(self, model, precision, data, micro_batch, memory=None):
        passes = BATCH // (data * micro_batch)
        for strategy in ("ddp", "zero1", "zero2", "fsdp"):
            with self.subTest(model=model["family"], precision=precision, data=data, strategy=strategy):
                content = training(model, precision, micro_batch, mesh(strategy, data=data), memory=memory or {})
                expected = {"data": formulas.sent_on_data_axis(strategy, model, data, precision, passes),
                            "world": formulas.sent_on_world(model, data)}
                self.assertEqual([expected] * data, self.sent(content))

    def test_data_axis(self):
        self.check_data_axis(GPT2, "fp32", 2, 8)
        self.check_data_axis(LLAMA, "bf16", 4, 2)
        self.check_data_axis(GPT2, "bf16", 8, 1)

    def test_gradients_that_are_reduced_once_a_step_or_in_16_bits(self):
        for model, precision, strategy, options in ((GPT2, "fp32", "ddp", {"sync": "step"}),
                                                    (LLAMA, "bf16", "zero1", {"sync": "step", "reduce": "bf16"}),
                                                    (LLAMA, "fp32", "fsdp", {"reduce": "bf16"})):
            with self.subTest(strategy=strategy, **options):
                content = training(model, precision, 2, mesh(strategy, data=2, **options))
                expected = formulas.sent_on_data_axis(strategy, model, 2, precision, BATCH // 4, **options)
                self.assertEqual([expected] * 2, [sent["data"] for sent in self.sent(content)])

    def test_offload_sends_nothing_more(self):
        content = training(LLAMA, "bf16", 4, mesh("fsdp", data=2))
        offloaded = {**content, "memory": {"offload": ["params", "optimizer"]}}
        self.assertEqual(self.sent(content), self.sent(offloaded))

    def test_the_formulas_are_those_of_the_yardsticks(self):
        # Elements times (N-1)/N: 2P for ddp, zero1 and zero2, 3P for fsdp but for what lies outside its blocks.
        data, params = 4, sum(formulas.unit_elems(LLAMA, 4).values())
        share = params * 4 * (data - 1) // data
        for strategy, times in (("ddp", 2), ("zero1", 2), ("zero2", 2)):
            self.assertEqual(times * share, formulas.sent_on_data_axis(strategy, LLAMA, data, "fp32", 1))
        deep = {**LLAMA, "layers": 1000}
        everything = sum(formulas.unit_elems(deep, data).values())
        sent = formulas.sent_on_data_axis("fsdp", deep, data, "fp32", 1)
        self.assertAlmostEqual(3, sent / (everything * 4 * (data - 1) / data), delta=0.002)

    def test_tensor_axis(self):
        for model, precision, tensor, partial in ((GPT2, "fp32", 2, "fp32"), (LLAMA, "bf16", 4, "fp32"),
                                                  (GPT2, "bf16", 4, "fp32"), (LLAMA, "bf16", 2, "stored")):
            with self.subTest(model=model["family"], precision=precision, tensor=tensor, partial=partial):
                sent = formulas.sent_on_tensor_axis(model, tensor, precision, 2, BATCH // 2, partial)
                expected = {"tensor": sent, "world": formulas.sent_on_world(model, tensor)}
                content = training(model, precision, 2, mesh(tensor=tensor, partial=partial))
                self.assertEqual([expected] * tensor, self.sent(content))

    def test_recomputed_activations_are_gathered_again(self):
        content = training(LLAMA, parallel=mesh(tensor=2))
        kept, again = (self.sent({**content, "memory": {"recompute": choice}})[0]["tensor"]
                       for choice in ("none", "full"))
        exchange = 2 * LLAMA["context"] * LLAMA["width"] * 4 // 2
        self.assertLessEqual(again - kept, BATCH // 2 * LLAMA["layers"] * 4 * exchange)  # at most all of forward
        self.assertGreater(again, kept)

    def test_pipeline_axis(self):
        for model, precision, stages, schedule, chunks in ((GPT2, "fp32", 2, "gpipe", 1), (LLAMA, "bf16", 4, "1f1b", 1),
                                                           (GPT2, "bf16", 4, "1f1b", 1),
                                                           (LLAMA, "fp32", 2, "interleaved", 2)):
            with self.subTest(model=model["family"], stages=stages, schedule=schedule):
                parallel = mesh(pipeline=stages, schedule=schedule, chunks=chunks)
                expected = [{"pipeline": formulas.sent_on_pipeline_axis(model, stages, stage, precision, 2, BATCH // 2,
                                                                        chunks),
                             "world": formulas.sent_on_world(model, stages)} for stage in range(stages)]
                self.assertEqual(expected, self.sent(training(model, precision, 2, parallel)))

    def test_mixes_send_what_is_planned_on_every_axis(self):
        cases = {
            "zero1 2x2x2": training(GPT2, parallel=mesh("zero1", data=2, tensor=2, pipeline=2)),
            "fsdp 2x2x2": training(LLAMA, "bf16", parallel=mesh("fsdp", data=2, tensor=2, pipeline=2)),
            "ddp 2 x pipeline 2": training(GPT2, "bf16", parallel=mesh("ddp", data=2, pipeline=2)),
            "zero2 2 x tensor 2": training(GPT2, parallel=mesh("zero2", data=2, tensor=2)),
            "synchronized norms": training(RESNET, parallel=mesh("zero1", data=2)),
        }
        for name, content in cases.items():
            with self.subTest(case=name):
                axes = {axis for axis in ("data", "tensor", "pipeline") if content["parallel"][axis] > 1}
                for sent in self.sent(content):
                    self.assertEqual(axes | {"world"}, sent.keys())
                    self.assertGreater(min(sent.values()), 0)

    def test_a_mix_sends_over_a_boundary_what_one_tensor_rank_holds(self):
        content = training(LLAMA, "bf16", parallel=mesh(tensor=2, pipeline=2))
        for rank, sent in enumerate(self.sent(content)):
            expected = formulas.sent_on_pipeline_axis(LLAMA, 2, rank // 2, "bf16", 2, BATCH // 2, tensor=2)
            self.assertEqual(expected, sent["pipeline"])


class Overlap(RanksTest):
    """A block's collective is under way while its neighbour computes."""

    # A block of 3 MB of weights and milliseconds of products.
    MODEL = {"family": "gpt2", "layers": 6, "width": 256, "heads": 4, "context": 64, "vocab": 256}
    STEPS, ENOUGH = 5, 2  # blocks of five that have such a neighbour: which ones, a busy machine decides
    PROFILES = 8

    def trace(self, strategy):
        """Rank 0's events of forward and backward: {thread: [(name, block, start, end)]}."""
        content = config(self.MODEL, parallel=mesh(strategy, data=2), train={"batch": 8, "micro_batch": 4})
        path = self.write_config(content)
        self.launch(content, "profile", path, "--steps", self.STEPS, "--trace", self.directory / "step.json")
        traces = [json.loads((self.directory / f"step.rank-{rank}.json").read_text()) for rank in range(2)]
        events = traces[0]["traceEvents"]
        names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
        threads = {name: [] for name in names.values()}
        for event in events:
            if event["ph"] == "X" and event["cat"] == "pass":
                threads[names[event["tid"]]].append((event["name"], event["args"]["block"], event["ts"],
                                                     event["ts"] + event["dur"]))
        return threads

    def overlapping(self, threads, collective, neighbour):
        """Blocks of which such a collective overlaps in time with the computation of block + neighbour."""
        found = set()
        for name, block, start, end in threads["data axis"]:
            if name != collective or block < 0 or block + neighbour < 0:
                continue
            if any(other == block + neighbour and begin < end and start < stop
                   for _, other, begin, stop in threads["computation"]):
                found.add(block)
        return found

    def assert_overlap(self, strategy, wanted):
        """In one profile. Both ranks need a core at the same time to show it, which a busy machine may deny: a step
        that never overlaps shows it in none of several."""
        for _ in range(self.PROFILES):
            threads = self.trace(strategy)
            found = [self.overlapping(threads, collective, neighbour) for collective, neighbour in wanted]
            if min(map(len, found)) >= self.ENOUGH:
                return
        self.fail(f"{strategy}: {dict(zip(wanted, found))}")

    def test_gradients_of_a_block_are_reduced_while_the_block_before_it_computes(self):
        for strategy in ("ddp", "fsdp"):
            with self.subTest(strategy=strategy):
                self.assert_overlap(strategy, [("comm.reduce_scatter", -1)])

    def test_weights_of_the_next_block_are_gathered_while_a_block_computes(self):
        self.assert_overlap("fsdp", [("comm.all_gather", -1), ("comm.all_gather", +1)])


if __name__ == "__main__":
    ranks.main()
