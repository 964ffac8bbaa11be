"""`tandem plan --cluster`: a step on machines that are elsewhere."""

import json

import tandem_run
from tandem_run import LLAMA, TandemTest, config

MESH = {"strategy": "ddp", "data": 2, "tensor": 2, "pipeline": 2, "schedule": "1f1b"}
PARTS = {"compute", "comm_data", "comm_tensor", "comm_pipeline", "bubble", "host", "data"}


class PlanCluster(TandemTest):
    def setUp(self):
        super().setUp()
        if "cuda not built" in self.tandem("--version").out:
            self.skipTest("planned for GPUs by a program with CUDA")
        self.path = self.write_config(config(LLAMA, precision="bf16", parallel=MESH, train={"batch": 16, "micro_batch": 2}))

    def write(self, name, text):
        (self.directory / name).write_text(text)
        return name

    def plan_on(self, *flags):
        return json.loads(self.tandem("plan", self.path, "--json", *flags).out)

    def test_the_parts_add_up_to_the_step(self):
        plan = self.plan_on("--cluster", "h100-sxm:8")
        self.assertEqual(PARTS, set(plan["time"]))
        self.assertAlmostEqual(plan["step_s"], sum(plan["time"].values()), delta=1e-9 * plan["step_s"])
        for rank in plan["ranks"]:
            self.assertAlmostEqual(plan["step_s"], sum(rank["time"].values()), delta=1e-9 * plan["step_s"])
        self.assertGreater(plan["time"]["comm_tensor"], 0)
        self.assertGreater(plan["time"]["bubble"], 0)

    def test_memory_is_that_of_the_plan_without_a_cluster(self):
        here = json.loads(self.tandem("plan", self.path, "--device", "cuda", "--json", "--set", "memory.limit=1TB").out)
        device = [sum(size for arena, size in rank["planned_bytes"].items() if arena != "host") for rank in here["ranks"]]
        self.assertEqual(max(device), self.plan_on("--cluster", "h100-sxm:8")["memory_bytes"])

    def test_slower_machines_are_slower(self):
        large = {"family": "llama", "layers": 4, "width": 3072, "heads": 24, "kv_heads": 8, "context": 2048, "vocab": 32000}
        self.path = self.write_config(config(large, precision="bf16", train={"batch": 8, "micro_batch": 8}), "large.yaml")
        times = [self.plan_on("--cluster", f"{gpu}:1")["step_s"] for gpu in ("b200-sxm", "h100-sxm", "a100-sxm", "a10g")]
        self.assertEqual(sorted(times), times)

    def test_bytes_go_over_the_network_where_nodes_are_small(self):
        cluster = self.write("pairs.yaml", "gpu: a100-sxm\ngpus: 8\ngpus_per_node: 2\nnetwork_gbps: 100\n")
        plan, one = self.plan_on("--cluster", cluster), self.plan_on("--cluster", "a100-sxm:8")
        self.assertGreater(plan["ranks"][0]["sent_between_nodes"], 0)
        self.assertEqual(0, one["ranks"][0]["sent_between_nodes"])
        self.assertGreater(plan["step_s"], one["step_s"])

    def test_hours_and_dollars(self):
        plan = self.plan_on("--cluster", "h100-sxm:8", "--tokens", "20B", "--providers", "aws,lambda")
        self.assertEqual({"aws", "lambda"}, {offer["provider"] for offer in plan["offers"]})
        for offer in plan["offers"]:
            bill = offer["on_demand"]
            self.assertAlmostEqual(bill["usd_compute"], bill["hours"] * offer["instances"] * offer["price_on_demand"], delta=0.006)
            self.assertAlmostEqual(bill["usd"], bill["usd_compute"] + bill["usd_storage"] + bill["usd_egress"], delta=0.006)
            self.assertEqual(offer["provider"] == "lambda", offer["usd_spot"] is None)
        table = self.tandem("plan", self.path, "--cluster", "h100-sxm:8", "--tokens", "20B", "--providers", "aws").out
        self.assertIn("p5.48xlarge", table)

    def test_a_trace_is_written(self):
        self.tandem("plan", self.path, "--cluster", "h100-sxm:8", "--trace", "t.json")
        events = json.loads((self.directory / "t.json").read_text())
        events = events["traceEvents"] if isinstance(events, dict) else events
        self.assertTrue(any(event["name"] == "comm.recv" for event in events))

    def search(self, *flags):
        left_open = config(LLAMA, precision="bf16", train={"batch": 8})
        del left_open["train"]["micro_batch"]
        self.path = self.write_config(left_open, "open.yaml")
        return json.loads(self.tandem("plan", self.path, "--json", "--search", *flags).out)

    def test_a_search_gives_configs_that_run_as_planned(self):
        found = self.search("--cluster", "h100-sxm:4", "--tokens", "1B", "--out", "best.yaml")
        choices = found["choices"]
        self.assertEqual(sorted(choice["step_s"] for choice in choices), [choice["step_s"] for choice in choices])
        self.assertEqual(found["step_s"], choices[0]["step_s"])
        for choice in choices:
            self.assertTrue(choice["fits"])
            self.assertEqual(4, choice["gpus"])
            self.assertAlmostEqual(choice["step_s"], sum(choice["time"].values()), delta=1e-9 * choice["step_s"])
            self.assertTrue(choice["why"])
        # What was written is that plan, and what the keys say is, too.
        written = json.loads(self.tandem("plan", "best.yaml", "--cluster", "h100-sxm:4", "--json").out)
        self.assertEqual((found["step_s"], found["memory_bytes"]), (written["step_s"], written["memory_bytes"]))
        sets = [word for key, value in choices[1]["config"].items() for word in ("--set", f"{key}={value if isinstance(value, str) else json.dumps(value)}")]
        second = self.plan_on("--cluster", "h100-sxm:4", *sets)
        self.assertAlmostEqual(1, second["step_s"] / choices[1]["step_s"], delta=0.01)
        for one in found["front"]:
            for other in found["front"]:
                self.assertFalse(all(other[key] < one[key] for key in ("hours", "usd", "gpus")))

    def test_a_search_keeps_to_what_is_given(self):
        found = self.search("--max-gpus", "2", "--cluster", "h100-sxm", "--cluster", "a100-sxm", "--set", "parallel.tensor=2", "--tokens", "1B",
                            "--deadline", "100000h")
        self.assertEqual({2}, {choice["gpus"] for choice in found["choices"]})
        self.assertEqual({"h100-sxm", "a100-sxm"}, {choice["gpu"] for choice in found["choices"]})
        self.assertTrue(all("parallel.tensor" not in choice["config"] for choice in found["choices"]))
        usd = [min(price for price in (choice["usd_on_demand"], choice["usd_spot"]) if price) for choice in found["choices"]]
        self.assertEqual(sorted(usd), usd)
        flags = ("plan", self.path, "--search")
        self.refuse(tandem_run.BAD_USAGE, ["on how many GPUs"], *flags)
        self.refuse(tandem_run.BAD_USAGE, ["on how many GPUs"], *flags, "--cluster", "h100-sxm")
        self.refuse(tandem_run.BAD_USAGE, ["--budget", "the cheapest way takes"], *flags, "--cluster", "h100-sxm:2", "--tokens", "20T", "--budget", "1USD")
        self.refuse(tandem_run.BAD_USAGE, ["--deadline", "the fastest way takes"], *flags, "--cluster", "h100-sxm:2", "--tokens", "20T", "--deadline", "1h")
        self.refuse(tandem_run.BAD_USAGE, ["no mesh of 3"], *flags, "--cluster", "h100-sxm:3", "--set", "parallel.pipeline=1")
        self.refuse(tandem_run.BAD_USAGE, ["--out", "goes with --search"], "plan", self.path, "--cluster", "h100-sxm:1", "--out", "x.yaml")

    def test_what_cannot_be_is_refused(self):
        usage, plan = tandem_run.BAD_USAGE, ("plan", self.path, "--cluster")
        self.refuse(usage, ["h100-sxn:8", "nearest is h100-sxm"], *plan, "h100-sxn:8")
        self.refuse(usage, ["8 ranks"], *plan, "h100-sxm:16")
        self.refuse(usage, ["'many'"], *plan, "h100-sxm:many")
        self.refuse(usage, ["awz", "nearest is aws"], *plan, "h100-sxm:8", "--providers", "awz")
        self.refuse(usage, ["--budget", "the cheapest way takes"], *plan, "h100-sxm:8", "--tokens", "20T", "--budget", "1USD")
        self.refuse(usage, ["--deadline", "the fastest way takes"], *plan, "h100-sxm:8", "--tokens", "20T", "--deadline", "1h")
        self.refuse(usage, ["--tokens", "20X"], *plan, "h100-sxm:8", "--tokens", "20X")
        prices = self.write("p.csv", "provider,instance,gpu,gpus,region,on_demand,spot_region,spot,date,source,note\n"
                                     "me,box,h100-sxm,8,here,free,,,2026-11-01,me,\n")
        self.refuse(usage, ["p.csv:2", "'free'"], *plan, "h100-sxm:8", "--prices", prices)
        self.refuse(usage, ["no such file"], *plan, "missing.yaml")
        self.refuse(usage, ["--device cpu"], *plan, "h100-sxm:8", "--device", "cpu")

    def test_a_file_of_no_machine_is_refused(self):
        for line, *parts in (("fp32_tflops: 0", "fp32_tflops", "at least 1e-06"), ("ring_gbs: 0", "ring_gbs"), ("host_gbs: 0", "host_gbs"),
                             ("pcie_gbs: 0", "pcie_gbs"), ("memory_gib: 1e300", "memory_gib", "'1e300'"), ("memory_gbs: 1e-300", "memory_gbs"),
                             ("peak_tflops: .nan", "'.nan'"), ("network_gbps: -1", "or 0 for none"), ("hop_us: 1e300", "hop_us"),
                             ("compute_factor: 0", "compute_factor"), ("reduces_once: 7", "at most 1,"), ("gpus_per_node: 1.5", "whole number"),
                             ("cores: 1e9", "cores"), ("launch_us: [1]", "a list"), ("name: [1]", "name: expected a text"),
                             ("kernels: 3", "kernels: expected"), ("kernels: {a: 1e300}", "kernels: a"), ("collectives: 7", "collectives: expected"),
                             ("collectives: {all_reduce 99999999999: {1: 1}}", "RANKS"), ("collectives: {all_reduce 8x: {1: 1}}", "RANKS"),
                             ("collectives: {all_reduce 8: {1: 1e300}}", "all_reduce 8"), ("gpus: 8", "gpus: is given twice"),
                             ("[a]: 3", "no key"), ("x: " + "[" * 20000, "c.yaml:")):
            with self.subTest(line=line[:40]):
                path = self.write("c.yaml", f"gpu: h100-sxm\ngpus: 8\n{line}\n")
                self.refuse(tandem_run.BAD_USAGE, ["c.yaml", *parts], "plan", self.path, "--cluster", path)


if __name__ == "__main__":
    tandem_run.main()
