"""The surface that users and scripts rely on, as docs/interface.md promises it: commands, files, fields."""

import json
import re
import shlex
import subprocess

import tandem_run
from tandem_run import BAD_USAGE, DONE, FAILED, GPT2, LLAMA, MLP, RESNET, REPOSITORY, TandemTest, checkpoint, config

COMMANDS = ("train", "launch", "plan", "explain", "profile", "bench", "prepare", "evaluate", "sample", "inspect", "tokenize", "import",
            "export", "info", "convert", "compare", "copy", "dash", "gc", "report", "status", "pipeline", "sweep", "chaos", "submit", "logs", "cancel", "doctor", "calibrate")
PASSES = ("model", "precision", "differentiate", "recompute", "fuse", "schedule")
CATEGORIES = {"weights", "master", "gradients", "optimizer", "activations", "cache", "communication", "workspace", "host"}


class Commands(TandemTest):
    def test_every_help_has_an_example_that_names_its_command(self):
        self.assertIn("Example:", self.tandem("--help").out)
        for command in COMMANDS:
            with self.subTest(command=command):
                text = self.tandem(command, "--help").out
                self.assertIn(f"Example:\n  tandem {command} ", text)
                self.assertIn(f"tandem {command}", self.tandem(command, "-h").out)

    def test_help_shows_what_a_flag_is_unless_given(self):
        for command, flags in (("profile", {"--steps N": 5}),
                               ("bench", {"--steps N": 10, "--warmup N": 2}),
                               ("sample", {"--tokens N": 400, "--temperature X": 0.8, "--seed N": 1}),
                               ("prepare", {"--tokenizer NAME": "bytes", "--eval-fraction X": 0.05})):
            text = self.tandem(command, "--help").out
            for flag, value in flags.items():
                self.assertIn(f"{flag}={value} ", text)

    def test_the_overview_lists_every_command(self):
        listed = re.findall(r"^  (\w+) {2,}\S", self.tandem("--help").out.split("Subcommands:")[1], re.M)
        self.assertEqual(sorted(COMMANDS), sorted(listed))

    def test_no_command_at_all_shows_the_overview_and_is_an_error(self):
        self.assertIn("Subcommands:", self.tandem(expect=tandem_run.BAD_USAGE).out)

    def test_version_names_the_instruction_set(self):
        self.assertRegex(self.tandem("--version").out, r"^tandem \d+\.\d+\.\d+ \(cpu \w+")
        self.assertIn("(cpu portable", self.tandem("--version", env={"TANDEM_ISA": "portable"}).out)

    def test_explain_lists_every_key_with_its_value_and_origin(self):
        documented = re.findall(r"^\| `([\w.]+)` \|", (REPOSITORY / "docs" / "config.md").read_text(), re.M)
        self.assertGreater(len(documented), 50)
        shown = set()
        for model in (GPT2, LLAMA, RESNET, MLP):
            with self.subTest(family=model["family"]):
                out = self.tandem("explain", self.write_config(config(model)), "--set", "train.lr=0.5").out
                rows = {line.split()[0]: line for line in out.splitlines()}
                self.assertRegex(rows["train.lr"], r"^train\.lr\s+0\.5\s+--set")
                self.assertRegex(rows["train.batch"], r"^train\.batch\s+6\s+\S*config\.yaml:\d+")
                self.assertRegex(rows["train.seed"], r"^train\.seed\s+1\s+default")
                shown |= rows.keys()
        for optimizer in ("sgd", "lion", "muon", "lars", "adafactor"):
            out = self.tandem("explain", self.write_config(config(GPT2)), "--set", f"train.optimizer={optimizer}").out
            shown |= {line.split()[0] for line in out.splitlines()}
        for schedule in (["wsd"], ["step"], ["points", "--set", "train.points=[[0, 1]]", "--set", "train.warmup=0"]):
            out = self.tandem("explain", self.write_config(config(GPT2)), "--set", f"train.schedule={schedule[0]}", *schedule[1:]).out
            shown |= {line.split()[0] for line in out.splitlines()}
        self.assertEqual(sorted(documented), sorted(shown))  # a family, an optimizer and a schedule show what they have

    def test_plan_shows_bytes_flops_and_commands(self):
        path = self.write_config(config(GPT2))
        table = self.tandem("plan", path).out
        for word in (*CATEGORIES - {"cache"}, "total", "model FLOPs", "commands", "compiled in"):
            self.assertIn(word, table)
        self.assertRegex(table, r"^\S+ parameters, .*, for \w+")
        plan = json.loads(self.tandem("plan", path, "--json").out)
        self.assertEqual(CATEGORIES, set(plan["planned_bytes"]))
        self.assertEqual(plan["planned_total"], sum(plan["planned_bytes"].values()))
        self.assertRegex(table, rf"total\s+{plan['planned_total']}\b")
        self.assertEqual(["pass", "update", "eval"], [executable["name"] for executable in plan["executables"]])
        listing = self.tandem("plan", path, "--commands").out
        for command in plan["executables"][0]["commands"]:
            self.assertIn(command["kernel"], listing)

    def test_every_slice_of_a_plan_lies_in_its_arena(self):
        for model in (GPT2, RESNET):
            plan = json.loads(self.tandem("plan", self.write_config(config(model)), "--json").out)
            for executable in plan["executables"]:
                for command in executable["commands"]:
                    for piece in command["in"] + command["out"]:
                        end = piece["offset"] + piece["bytes"]
                        self.assertLessEqual(end, plan["planned_bytes"][piece["arena"]], command["kernel"])

    def test_plan_dumps_the_graph_after_every_pass(self):
        path = self.write_config(config(LLAMA, precision="bf16", memory={"recompute": "full"}))
        dumps = {name: self.tandem("plan", path, "--dump", f"after:{name}").out for name in PASSES}
        for name, text in dumps.items():
            self.assertGreater(len(text.splitlines()), 20, name)
        graphs = [text for name, text in dumps.items() if name != "schedule"]  # which changes the order at most
        self.assertEqual(len(graphs), len(set(graphs)), "two passes dump the same graph")
        self.assertNotIn("bf16", dumps["model"])
        self.assertIn("bf16", dumps["precision"])

    def test_plan_shows_a_step_without_some_passes(self):
        path = self.write_config(config(GPT2, memory={"recompute": "full"}))
        whole = self.tandem("plan", path, "--commands").out
        for passes in (["fuse"], ["recompute"], ["fuse", "recompute"]):
            flags = [word for name in passes for word in ("--without", name)]
            self.assertNotEqual(whole, self.tandem("plan", path, "--commands", *flags).out)
            for name in passes:
                self.assertEqual("", self.tandem("plan", path, "--dump", f"after:{name}", *flags).out)
        self.assertIn("add_layer_norm", self.tandem("plan", path, "--dump", "after:eval.fuse").out)

    def test_profile_gives_kernels_and_a_timeline(self):
        path, trace = self.write_config(config(GPT2)), self.directory / "trace.json"
        profile = json.loads(self.tandem("profile", path, "--steps", 2, "--json", "--trace", trace).out)
        self.assertLessEqual({"step_ms", "peak_gflops", "copy_gb_per_s", "kernels"}, set(profile))
        for kernel in profile["kernels"]:  # how much they are together is the machine's affair
            self.assertAlmostEqual(kernel["ms"], kernel["share"] * profile["step_ms"], delta=1e-9 * profile["step_ms"])
            self.assertEqual(kernel["bound"] == "cache", kernel["of_ceiling"] is None)
            self.assertTrue(kernel["bound"] != "memory" or kernel["of_ceiling"] <= 1, kernel)
        self.assertLess(0, sum(kernel["share"] for kernel in profile["kernels"]))
        self.assertAlmostEqual(1, sum(kernel["share"] for kernel in profile["kernels"]) + profile["share_between"])
        events = json.loads(trace.read_text())
        events = events["traceEvents"] if isinstance(events, dict) else events
        plan = self.plan(config(GPT2))
        kernels = [command["kernel"] for part in plan["executables"][:2] for command in part["commands"]]
        timed = [event["name"] for event in events if event.get("ph") == "X"]
        self.assertEqual(set(kernels), set(timed))
        self.assertIn("kernel", self.tandem("profile", path, "--steps", 1).out)

    def test_what_runs_beside_the_computation_has_no_share_of_the_step(self):
        path = self.write_config(config(GPT2, parallel={"strategy": "fsdp", "data": 2}))
        table = self.tandem("launch", "--nproc-per-node", 2, "profile", path, "--steps", 2).out
        rows = re.findall(r"^(\S+(?: \(beside\))?|\(between kernels\)) +(?:\d+ +)?[\d.-]+ +(-|[\d.-]+%)", table, re.M)
        beside = [share for name, share in rows if name.endswith("(beside)")]
        self.assertEqual({"-"}, set(beside), table)
        shares = [float(share[:-1]) for name, share in rows if not name.endswith("(beside)")]
        self.assertAlmostEqual(100, sum(shares), delta=0.06 * len(shares), msg=table)  # each is rounded

    def test_devices_that_are_threads_are_measured_too(self):
        path = self.write_config(config(GPT2, parallel={"strategy": "dp", "data": 2}))
        self.assertEqual(1, len(self.tandem("bench", path, "--steps", 2).out.splitlines()))
        rows = [json.loads(line) for line in self.tandem("bench", path, "--steps", 2, "--json").out.splitlines()]
        self.assertEqual([0, 1], sorted(row["rank"] for row in rows))
        self.assertEqual({("dp", 2)}, {(row["strategy"], row["world_size"]) for row in rows})
        self.assertIn("kernel", self.tandem("profile", path, "--steps", 1).out)

    def test_a_program_without_standard_streams_writes_none_into_its_files(self):
        for command, run in ((("train",), "one"), (("launch", "--nproc-per-node", "2", "train"), "two")):
            parallel = {"strategy": "ddp", "data": 2} if run == "two" else {}
            path = self.write_config(config(GPT2, parallel=parallel, train={"eval_every": 2}), f"{run}.yaml")
            words = [tandem_run.program(), *command, str(path), "--run-dir", run]
            closed = subprocess.run(["sh", "-c", f"exec {shlex.join(words)} <&- >&- 2>&-"], cwd=self.directory,
                                    timeout=tandem_run.DEADLINE_S)
            self.assertEqual(DONE, closed.returncode)
            shown = self.train(config(GPT2, parallel={}, train={"eval_every": 2}), f"shown-{run}")
            kinds = [[event["type"] for event in tandem_run.read_events(self.directory / name)]
                     for name in (run, shown)]
            self.assertEqual(*kinds)

    def test_one_of_a_thing_is_not_many(self):
        path = self.write_config(config(GPT2, train={"batch": 3}))
        table = self.tandem("plan", path).out
        self.assertIn(" 1 thread,", table)
        self.assertIn("(1 pass of 3 on each of 1 data rank,", table)
        self.assertIn(" 1 thread,", self.tandem("train", path).err)

    def test_bench_gives_one_line_or_one_object(self):
        path = self.write_config(config(MLP))
        self.assertEqual(1, len(self.tandem("bench", path, "--steps", 2).out.splitlines()))
        row = json.loads(self.tandem("bench", path, "--steps", 2, "--json").out)
        self.assertLessEqual({"samples_per_s", "step_ms", "fraction_of_peak", "peak_gflops", "first_step_s", "planned",
                              "allocated", "library_bytes", "idle_rss_bytes", "peak_rss_bytes"}, set(row))


class FromTextToText(TandemTest):
    def test_prepare_train_evaluate_sample_and_inspect(self):
        books = []
        for number in range(3):
            books.append(self.directory / f"book{number}.txt")
            books[-1].write_text("".join(f"The {word} of book {number}. " for word in ("cat", "dog", "owl")) * 60)
        out = self.tandem("prepare", "--out", "shards", *books, "--shard-tokens", 2000, "--eval-fraction", 0.2).out
        self.assertIn("3 files", out)
        self.assertGreater(len(list((self.directory / "shards").glob("train-*.tokens"))), 1)

        content = config(GPT2, data={"train": "shards", "eval": "shards"}, checkpoint={"every": 20},
                         train={"steps": 40, "lr": 0.01, "eval_every": 20})
        run = self.train(content, "run")
        losses = [float(row["loss"]) for row in tandem_run.read_metrics(run)]
        self.assertLess(losses[-1], 0.6 * losses[0])

        result = json.loads(self.tandem("evaluate", run, "--json").out)
        self.assertEqual(40, result["step"])
        early = json.loads(self.tandem("evaluate", checkpoint(run, 20), "--json").out)
        self.assertLess(result["eval_loss"], early["eval_loss"])
        # The evaluation within training sees eval_samples; asked for as many, evaluate gives the same number.
        same = json.loads(self.tandem("evaluate", run, "--json", "--samples", 6).out)
        self.assertAlmostEqual(tandem_run.read_summary(run)["eval_loss"], same["eval_loss"], places=5)
        on_text = json.loads(self.tandem("evaluate", run, "--set", f"data.eval={books[0]}", "--json").out)
        self.assertGreater(on_text["targets"], 0)

        sample = ("sample", run, "--prompt", "The ", "--tokens", 60)
        text = self.tandem(*sample, "--seed", 3).out
        self.assertTrue(text.startswith("The "))
        self.assertEqual(text, self.tandem(*sample, "--seed", 3).out)
        self.assertNotEqual(text, self.tandem(*sample, "--seed", 4).out)
        self.assertEqual(text, self.tandem(*sample, "--seed", 3, "--set", "device=cpu").out)
        greedy = [self.tandem(*sample, "--temperature", 0, "--seed", seed).out for seed in (1, 2)]
        self.assertEqual(*greedy)
        # Past the context, too, which is 40: with kept keys and values or without, on any number of threads.
        for flags in (("--no-cache",), ("--set", "threads=2"), ("--set", "threads=3")):
            self.assertEqual(greedy[0], self.tandem(*sample, "--temperature", 0, *flags).out, flags)
        told = self.tandem(*sample, "--temperature", 0, "--stats")
        self.assertEqual(greedy[0], told.out)
        self.assertRegex(told.err, r"prompt .*, then [\d.]+ tokens/s, reading .* of weights: .* that memory gives; "
                                   r".* planned, .* for the keys and values of 40 tokens\n$")

        self.assertIn("equal bit for bit", self.tandem("inspect", run, "--compare", checkpoint(run, 40)).out)
        self.check_comparison(run)
        tensors = self.tandem("inspect", run, "--tensors", "--verify").out
        for tensor in tandem_run.read_manifest(run, 40)["tensors"]:
            self.assertIn(tensor["name"], tensors)

    def check_comparison(self, run):
        """Ten lines with the sizes of the differences, the largest first; all of them when asked for."""
        num_tensors = len(tandem_run.read_manifest(run, 40)["tensors"])
        few, all_of_them = (self.tandem("inspect", run, "--compare", checkpoint(run, 20), *more, expect=FAILED).out
                            for more in ((), ("--all",)))
        row = r"^\S+ +(\S+) +(\S+)  \d+ of \d+ elements?$"
        self.assertIn(f"{num_tensors} of {num_tensors} tensors differ", few)
        relative = [float(found[2]) for found in re.finditer(row, few, re.M)]
        self.assertEqual(10, len(relative), few)
        self.assertEqual(sorted(relative, reverse=True), relative)
        self.assertTrue(all(size > 0 for size in relative), few)
        self.assertIn(f"and {num_tensors - 10} more; --all lists them", few)
        self.assertEqual(num_tensors, len(re.findall(row, all_of_them, re.M)), all_of_them)

    def test_the_end_of_a_text_is_evaluated_and_never_trained_on(self):
        body = "".join(f"line {number} of a book\n" for number in range(700))  # its last twentieth begins within
        losses, evals = {}, {}
        for end in ("a quiet end ", "QUITE ANOTHER"):
            book = self.directory / "book.txt"
            book.write_text(body + end * 40)
            content = config(GPT2, train={"steps": 12, "eval_every": 12}, data={"train": "book.txt", "eval_samples": 1000})
            path = self.write_config(content)
            run = self.directory / end.split()[0]
            told = self.tandem("train", path, "--run-dir", run, "--set", "checkpoint.every=12").err
            self.assertIn("windows are kept for evaluation", told)
            rows = tandem_run.read_metrics(run)
            losses[end] = [row["loss"] for row in rows]
            evals[end] = float(rows[-1]["eval_loss"])
            # Later, too; also where the file is named in another way.
            for name in ("book.txt", book):
                result = json.loads(self.tandem("evaluate", run, "--json", "--set", f"data.eval={name}").out)
                self.assertAlmostEqual(evals[end], result["eval_loss"], places=5)
                self.assertLess(result["targets"], 0.1 * book.stat().st_size)
        self.assertEqual(*losses.values())
        self.assertNotEqual(*evals.values())

        self.write_config(content)
        again = self.tandem("train", path, "--run-dir", run, "--set", "checkpoint.every=12", "--set", "train.steps=13")
        self.assertNotIn("warning", again.err)
        other = self.tandem("train", path, "--run-dir", run, "--set", "train.steps=14", "--set", "data.eval=builtin:stories")
        self.assertIn("warning: data.eval was \"book.txt\" and is now \"builtin:stories\"", other.err)
        self.assertNotIn("are kept for evaluation", other.err)

    def test_a_text_too_short_for_both_is_refused(self):
        (self.directory / "note.txt").write_text("a song of seas and sails\n" * 3)
        path = self.write_config(config(GPT2, data={"train": "note.txt"}))
        self.refuse(tandem_run.BAD_DATA, ["note.txt: 75 tokens are too few to keep some apart"], "train", path)
        self.tandem("train", path, "--set", "data.eval=builtin:stories")

    def test_models_of_images_count_images(self):
        for model, unit in ((tandem_run.RESNET, "images"), (MLP, "samples")):
            path = self.write_config(config(model, train={"steps": 3}))
            result = self.tandem("train", path, "--run-dir", unit)
            self.assertIn(f" {unit}/s", result.err)
            self.assertIn(f" {unit}/s", result.out)
            self.assertNotIn("tok", result.out + result.err)
            rows = tandem_run.read_metrics(self.directory / unit)
            self.assertEqual(["6", "12", "18"], [row["samples"] for row in rows])
            self.assertEqual(rows, tandem_run.read_csv_metrics(self.directory / unit))
            self.assertLess(0, tandem_run.read_summary(self.directory / unit)["samples_per_s"])
            bench = self.tandem("bench", path, "--steps", 1, "--warmup", 1)
            self.assertIn(f" {unit}/s", bench.out)
            self.assertIn("samples_per_s", json.loads(self.tandem("bench", path, "--steps", 1, "--json").out))

    def test_a_model_of_images_is_evaluated_by_its_accuracy(self):
        run = self.train(config(MLP, train={"eval_every": 5}), "run")
        result = json.loads(self.tandem("evaluate", run, "--json").out)
        self.assertTrue(0 <= result["accuracy"] <= 1)
        self.assertRegex(self.tandem("evaluate", run, "--samples", 1).out, r"over 1 image\n")
        self.assertEqual(0.9, tandem_run.read_summary(run)["best_accuracy"])

    def test_evaluate_and_sample_refuse_the_same_precision(self):
        run = self.train(config(GPT2), "run")
        for device in ("cpu", "auto"):  # which may be a GPU that has it
            results = [self.tandem(command, run, "--set", "precision=fp8", "--set", f"device={device}", expect=None)
                       for command in ("evaluate", "sample")]
            self.assertEqual(results[0].code, results[1].code)
            if device == "cpu" or results[0].code != DONE:
                self.assert_one_line_error(results[0], BAD_USAGE, "precision", "fp8 needs a GPU")
                self.assertEqual(results[0].err, results[1].err)

    def test_a_checkpoint_of_one_precision_is_evaluated_in_another(self):
        run = self.train(config(LLAMA, precision="bf16"), "run")
        losses = [json.loads(self.tandem("evaluate", run, "--json", "--samples", 6, "--set", f"precision={kind}").out)
                  for kind in ("fp32", "bf16", "fp16")]
        for loss in losses[1:]:
            self.assertAlmostEqual(losses[0]["eval_loss"], loss["eval_loss"], delta=0.02)


class RunDirectory(TandemTest):
    """Names in these lists are promised in docs/interface.md; the last test holds them against it."""

    FILES = ("config.yaml", "plan.json", "metrics.jsonl", "metrics.csv", "events.jsonl", "summary.json", "status.json", "checkpoints",
             "logs")
    METRICS = ("step", "epoch", "loss", "lr", "grad_norm", "loss_scale", "tokens", "tokens_per_s", "step_ms",
               "data_wait_ms", "rss_bytes", "device_bytes", "mfu", "time")
    GPU_METRICS = ("gpu_busy_percent", "gpu_power_w", "gpu_temperature_c", "gpu_used_bytes")
    SUMMARY = ("steps", "final_loss", "eval_loss", "loss_floor", "tokens_per_s", "peak_rss_bytes", "peak_device_bytes",
               "planned_bytes", "wall_s", "first_step_s", "world_size", "strategy", "precision", "hostname", "hardware")
    MANIFEST = ("step", "epoch", "samples", "loss", "metrics", "config", "mesh", "hostname", "hardware", "time")
    TENSOR = ("name", "shape", "dtype", "digest", "shards")
    SHARD = ("file", "offset", "bytes")
    EVENTS = ("start", "resume", "checkpoint", "eval", "overflow", "bad_checkpoint", "interrupt", "end")

    def setUp(self):
        super().setUp()
        self.content = config(GPT2, train={"eval_every": 2}, checkpoint={"every": 2, "keep": 2})
        self.run_dir = self.train(self.content, "run")

    def test_every_promised_file_is_there_and_no_other(self):
        self.assertEqual(sorted(self.FILES), sorted(path.name for path in self.run_dir.iterdir()))
        kept = sorted(path.name for path in (self.run_dir / "checkpoints").iterdir())
        self.assertEqual(["latest", "step-00000004", "step-00000005"], kept)
        self.assertEqual("step-00000005", (self.run_dir / "checkpoints" / "latest").resolve().name)

    def test_the_log_tells_the_run(self):
        log = self.run_dir / "logs" / "rank-0.log"
        first, *lines = log.read_text().splitlines()
        self.assertRegex(first, r"^\d{4}-\d\d-\d\dT[0-9:.]+Z rank 0 of 1 on .*, process [0-9]+$")
        for told in ("parameters, ", "step 4: eval loss", "step 5/5  loss", "trained to step 5"):
            self.assertEqual(1, sum(told in line for line in lines), (told, lines))
        self.tandem("train", self.directory / "run.yaml", "--run-dir", self.run_dir, "--set", "train.steps=6")
        self.assertIn("resumed from step 5", "".join(log.read_text().splitlines()[1 + len(lines):]))

    def test_metrics_have_every_field_in_both_files(self):
        rows = [json.loads(line) for line in (self.run_dir / "metrics.jsonl").read_text().splitlines()]
        self.assertEqual([1, 2, 3, 4, 5], [row["step"] for row in rows])
        for row in rows:
            self.assertLessEqual(set(self.METRICS), set(row))
            self.assertEqual(row["step"] in (2, 4, 5), "eval_loss" in row)
        header = (self.run_dir / "metrics.csv").read_text().splitlines()[0].split(",")
        self.assertLessEqual({*self.METRICS, "eval_loss"}, set(header))
        self.assertEqual(tandem_run.read_metrics(self.run_dir), tandem_run.read_csv_metrics(self.run_dir))

    def test_summary_has_every_field(self):
        summary = tandem_run.read_summary(self.run_dir)
        self.assertLessEqual(set(self.SUMMARY), set(summary))
        self.assertEqual(CATEGORIES, set(summary["planned_bytes"]))
        last = tandem_run.read_metrics(self.run_dir)[-1]
        self.assertEqual([float(last["loss"]), float(last["eval_loss"]), 5],
                         [summary["final_loss"], summary["eval_loss"], summary["steps"]])

    def test_manifest_has_every_field(self):
        manifest = tandem_run.read_manifest(self.run_dir, 5)
        self.assertLessEqual(set(self.MANIFEST), set(manifest))
        self.assertEqual((5, 30), (manifest["step"], manifest["samples"]))
        for tensor in manifest["tensors"]:
            self.assertLessEqual(set(self.TENSOR), set(tensor))
            for shard in tensor["shards"]:
                self.assertLessEqual(set(self.SHARD), set(shard))
                size = (checkpoint(self.run_dir, 5) / shard["file"]).stat().st_size
                self.assertLessEqual(shard["offset"] + shard["bytes"], size)

    def test_events_are_of_the_promised_kinds(self):
        kinds = [event["type"] for event in tandem_run.read_events(self.run_dir)]
        self.assertLessEqual(set(kinds), set(self.EVENTS))
        self.assertEqual(("start", "end"), (kinds[0], kinds[-1]))
        self.assertEqual((3, 3), (kinds.count("checkpoint"), kinds.count("eval")))

    def test_the_resolved_config_gives_the_same_run(self):
        again = self.directory / "again"
        self.tandem("train", self.run_dir / "config.yaml", "--run-dir", again)
        self.assert_equal_runs(self.run_dir, again)

    def test_the_plan_that_is_kept_is_the_one_that_is_shown(self):
        self.assertEqual(self.plan(self.content), json.loads((self.run_dir / "plan.json").read_text()))

    def test_going_on_past_the_end_and_starting_over(self):
        again = self.tandem("train", self.directory / "run.yaml", "--run-dir", self.run_dir)
        self.assertIn("already trained to step 5", again.err)
        self.tandem("train", self.directory / "run.yaml", "--run-dir", self.run_dir, "--set", "train.steps=7")
        self.assertEqual(7, len(tandem_run.read_metrics(self.run_dir)))
        self.tandem("train", self.directory / "run.yaml", "--run-dir", self.run_dir, "--resume-from-checkpoint", "none")
        self.assertEqual(5, len(tandem_run.read_metrics(self.run_dir)))
        self.assertEqual(7, len(tandem_run.read_metrics(self.directory / "run.1")))

    def test_going_on_from_an_earlier_checkpoint_cuts_the_metrics_back(self):
        self.tandem("train", self.directory / "run.yaml", "--run-dir", self.run_dir, "--resume-from-checkpoint",
                    checkpoint(self.run_dir, 4))
        other = self.train(self.content, "other")
        self.assert_equal_runs(other, self.run_dir)

    def test_an_interval_of_zero_means_never(self):
        content = config(MLP, train={"eval_every": 0}, checkpoint={"every": 0}, log={"csv": False})
        run = self.train(content, "never")
        self.assertEqual([], list((run / "checkpoints").glob("*")))
        self.assertEqual([], [row for row in tandem_run.read_metrics(run) if "eval_loss" in row])
        self.assertFalse((run / "metrics.csv").exists())

    def test_without_a_run_directory_it_is_named_after_the_config(self):
        self.tandem("train", self.write_config({**config(MLP), "name": "mine"}))
        self.assertTrue((self.directory / "runs" / "mine" / "summary.json").exists())

    def test_the_lists_above_are_those_of_the_documentation(self):
        text = (REPOSITORY / "docs" / "interface.md").read_text()
        for name in (*self.FILES, *self.METRICS, *self.GPU_METRICS, *self.SUMMARY, *self.MANIFEST, *self.TENSOR,
                     *self.EVENTS):
            self.assertIn(name, text)


if __name__ == "__main__":
    tandem_run.main()
