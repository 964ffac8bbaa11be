"""Whatever is wrong with what the user gives: one line that says so, the promised exit code, nothing left behind."""

import json
import resource
import subprocess

import tandem_run
from tandem_run import BAD_DATA, BAD_USAGE, FAILED, GPT2, LLAMA, MLP, RESNET, TandemTest, config


class BadConfigs(TandemTest):
    def refuse_config(self, parts, text):
        path = self.directory / "config.yaml"
        path.write_text(text if isinstance(text, str) else json.dumps(text, indent=1))
        self.refuse(BAD_USAGE, parts, "train", path, "--run-dir", self.directory / "run")

    def refuse_set(self, parts, *assignments):
        path = self.write_config(config(GPT2))
        flags = [flag for assignment in assignments for flag in ("--set", assignment)]
        self.refuse(BAD_USAGE, parts, "train", path, "--run-dir", self.directory / "run", *flags)

    def test_unknown_keys_name_the_nearest(self):
        self.refuse_config(["config.yaml:2", "model.layer", "did you mean model.layers?"],
                           "model:\n  layer: 2\n")
        self.refuse_config(["trian", "did you mean train"], "trian: {steps: 2}\n")
        self.refuse_set(["train.step", "did you mean train.steps?"], "train.step=3")
        self.refuse_set(["checkpoint.evry", "did you mean checkpoint.every?"], "checkpoint.evry=3")

    def test_wrong_types(self):
        for assignment, expected in {
            "train.steps=many": "a whole number",
            "train.steps=2.5": "a whole number",
            "train.steps=0": "at least 1",
            "train.steps=99999999999999999999": "a whole number",
            "train.lr=fast": "a number",
            "train.lr=-1": "at least 0",
            "train.lr=nan": "a number",
            "train.steps=[1, 2]": "a whole number",
            "model.tied=maybe": "true or false",
            "model.family=gpt3": "gpt2",
            "precision=fp31": "fp32",
            "memory.limit=5parsecs": "bytes",
            "memory.recompute=every:0": "every:K",
            "checkpoint=3": "keys under it",
        }.items():
            with self.subTest(assignment=assignment):
                self.refuse_set([assignment.split("=")[0], expected], assignment)
        self.refuse_config(["train.steps", "a whole number"], "train: {steps: {a: 1}}\n")

    def test_a_list_of_the_wrong_kind(self):
        path = self.write_config(config(RESNET))
        for value in ("[1, two]", "[]", "[0]"):
            with self.subTest(value=value):
                self.refuse(BAD_USAGE, ["model.blocks"], "train", path, "--set", f"model.blocks={value}")

    def test_a_batch_that_does_not_divide_names_the_nearest_that_does(self):
        self.refuse_set(["train.batch", "7", "use train.batch = 6 or 9"], "train.batch=7")

    def test_heads_that_do_not_divide(self):
        self.refuse_set(["model.heads", "model.width", "48", "use model.heads = 4 or 6"], "model.heads=5")
        path = self.write_config(config(LLAMA))
        self.refuse(BAD_USAGE, ["model.kv_heads", "model.heads"], "train", path, "--set", "model.kv_heads=4")

    def test_keys_of_another_family(self):
        self.refuse_set(["model.blocks", "gpt2", "resnet"], "model.blocks=[1]")

    def test_what_this_version_cannot_do(self):
        self.refuse_set(["precision", "fp8 needs a GPU", "bf16"], "precision=fp8")
        self.refuse_set(["checkpoint.memory", "set one of them to 0"], "checkpoint.memory=2", "checkpoint.replay=2")

    def test_meshes_that_cannot_work_name_the_nearest_that_does(self):
        for assignments, use in {
            ("parallel.data=2",): "parallel.strategy = ddp",
            ("parallel.strategy=dp", "parallel.pipeline=3"): "parallel.strategy = ddp",
            ("parallel.tensor=2",): "parallel.tensor = 1",
            ("parallel.pipeline=4",): "parallel.pipeline = 3",
            ("parallel.pipeline=3", "parallel.schedule=interleaved"): "parallel.schedule = 1f1b",
            ("memory.offload=[params]",): "parallel.strategy = fsdp or memory.offload = [optimizer]",
        }.items():
            with self.subTest(assignments=assignments):
                self.refuse_set([assignments[-1].split("=")[0], f"use {use}"], *assignments)

    def test_files_that_are_no_config(self):
        self.refuse_config(["config.yaml:3", "not valid YAML"], "model:\n  {layers: 2\n")
        self.refuse_config(["config.yaml", "key: value"], "- 1\n- 2\n")
        self.refuse_config(["train.steps", "twice"], "train: {steps: 2, steps: 3}\n")
        self.refuse_config(["config.yaml", "one YAML document"], "name: a\n---\nname: b\n")
        self.refuse(BAD_USAGE, ["nowhere.yaml", "no such file"], "train", "nowhere.yaml")
        self.refuse(BAD_USAGE, ["is a directory"], "train", self.directory)

    def test_bad_set_syntax(self):
        for assignment in ("train.lr", "=3", "", "train.lr="):
            with self.subTest(assignment=assignment):
                self.refuse_set(["--set"], assignment)


class BadCommandLines(TandemTest):
    def setUp(self):
        super().setUp()
        self.config = self.write_config(config(GPT2))

    def test_unknown_flags_and_subcommands_name_the_nearest(self):
        self.refuse(BAD_USAGE, ["trian", "'train'"], "trian", self.config)
        self.refuse(BAD_USAGE, ["--stpes", "'--steps'"], "bench", self.config, "--stpes", 3)
        self.refuse(BAD_USAGE, ["--run-dri", "'--run-dir'"], "train", self.config, "--run-dri", "x")
        self.refuse(BAD_USAGE, ["--tensor", "'--tensors'"], "inspect", "x", "--tensor")
        self.refuse(BAD_USAGE, ["extra"], "plan", self.config, "extra")

    def test_missing_arguments(self):
        for command in ("train", "plan", "explain", "profile", "bench", "evaluate", "sample", "inspect", "prepare"):
            with self.subTest(command=command):
                self.refuse(BAD_USAGE, ["required"], command)
        self.refuse(BAD_USAGE, ["--run-dir"], "train", self.config, "--run-dir")

    def test_flags_with_bad_values(self):
        for command, target, flag, value in (
            ("bench", self.config, "--steps", "abc"), ("bench", self.config, "--steps", "0"),
            ("bench", self.config, "--warmup", "-1"), ("profile", self.config, "--steps", "1.5"),
            ("evaluate", "x", "--samples", "-3"), ("sample", "x", "--tokens", "-3"),
            ("sample", "x", "--temperature", "-1"), ("sample", "x", "--temperature", "warm"),
            ("sample", "x", "--seed", "-1"), ("prepare", "x", "--shard-tokens", "0")):
            with self.subTest(command=command, flag=flag, value=value):
                out = ["--out", "y"] if command == "prepare" else []
                parts = [flag, "expected", f"found '{value}'"]
                result = self.refuse(BAD_USAGE, parts, command, target, f"{flag}={value}", *out)
                self.assertLess(len(result.err), 200)
        self.refuse(BAD_USAGE, ["--dump", "after:fuse"], "plan", self.config, "--dump", "after:fuze")
        self.refuse(BAD_USAGE, ["--dump", "after:fuse"], "plan", self.config, "--dump", "fuse")
        self.refuse(BAD_USAGE, ["--without data", "recompute", "fuse"], "plan", self.config, "--without", "data")
        self.refuse(BAD_USAGE, ["device", "'gpu'"], "train", self.config, "--device", "gpu")

    def test_nonsense_in_the_environment(self):
        nonsense = {"TANDEM_ISA": "sse9"}
        self.refuse(BAD_USAGE, ["TANDEM_ISA", "'sse9'", "avx2"], "train", self.config, "--run-dir", "run", env=nonsense)
        self.refuse(BAD_USAGE, ["TANDEM_ISA"], "plan", self.config, env=nonsense)

    def test_a_run_directory_that_cannot_be_made(self):
        (self.directory / "file").write_text("in the way")
        self.refuse(FAILED, ["file/run"], "train", self.config, "--run-dir", self.directory / "file" / "run")
        self.refuse(BAD_USAGE, ["file: is a file; a run needs a directory"], "train", self.config, "--run-dir",
                    self.directory / "file")

    def test_a_trace_that_cannot_be_written(self):
        self.refuse(FAILED, ["nowhere"], "profile", self.config, "--steps", 1, "--trace", "nowhere/trace.json")


class BadData(TandemTest):
    def refuse_data(self, data, *parts):
        for key in ("data.train", "data.eval"):
            with self.subTest(key=key):
                path = self.write_config(config(GPT2))
                self.refuse(BAD_DATA, [data, *parts], "train", path, "--run-dir", "run", "--set", f"{key}={data}")

    def prepared(self):
        text = self.directory / "text.txt"
        text.write_text("".join(f"line {number}\n" for number in range(500)))
        self.tandem("prepare", "--out", self.directory / "shards", text)
        return self.directory / "shards"

    def test_missing_empty_and_short_files(self):
        self.refuse_data("nowhere.txt", "no such file")
        (self.directory / "empty.txt").write_text("")
        self.refuse_data("empty.txt", "empty")
        (self.directory / "short.txt").write_text("ten bytes.")
        self.refuse_data("short.txt", "10 tokens", "model.context")
        self.refuse(BAD_USAGE, ["builtin:storys", "did you mean builtin:stories"], "train",
                    self.write_config(config(GPT2)), "--set", "data.train=builtin:storys")

    def test_data_that_does_not_suit_the_model(self):
        self.refuse(BAD_USAGE, ["builtin:shapes", "gpt2"], "train", self.write_config(config(GPT2)), "--set",
                    "data.train=builtin:shapes")
        text = self.directory / "text.txt"
        text.write_text("some text " * 100)
        self.refuse(BAD_USAGE, ["text.txt"], "train", self.write_config(config(MLP)), "--run-dir", "run", "--set",
                    "data.train=text.txt")

    def test_damaged_shards(self):
        shards = self.prepared()
        for name in ("train-00000.tokens", "eval-00000.tokens"):
            whole = (shards / name).read_bytes()
            split = "data.train" if name.startswith("train") else "data.eval"
            damages = {"empty": b"", "half a header": whole[:20], "truncated": whole[:-2], "too long": whole + b"xx",
                       "no header": b"x" * len(whole), "flipped header": whole[:18] + b"\xff" + whole[19:]}
            for damage, content in damages.items():
                with self.subTest(shard=name, damage=damage):
                    (shards / name).write_bytes(content)
                    self.refuse(BAD_DATA, [name], "train", self.write_config(config(GPT2)), "--run-dir", "run", "--set",
                                f"{split}={shards}")
            (shards / name).write_bytes(whole)
        (shards / "eval-00000.tokens").unlink()
        self.refuse(BAD_DATA, ["eval-00000.tokens", "missing"], "train", self.write_config(config(GPT2)), "--set",
                    f"data.eval={shards}")

    def test_a_token_outside_the_vocabulary_is_an_error_and_never_an_address(self):
        shards = self.prepared()
        tokens = shards / "train-00000.tokens"
        content = tokens.read_bytes()
        size = 2 * json.loads((shards / "index.json").read_text())["splits"]["train"][0]["tokens"]
        tokens.write_bytes(content[:128] + b"\xff" * size + content[128 + size:])
        path = self.write_config(config(GPT2))
        result = self.tandem("train", path, "--run-dir", "run", "--set", f"data.train={shards}", expect=BAD_DATA)
        self.assertIn("train-00000.tokens", result.err.splitlines()[-1])

    def test_damaged_indices(self):
        shards = self.prepared()
        index = shards / "index.json"
        whole = index.read_text()
        for damage in ("", "{", "[]", whole[:100], whole.replace('"version": 2', '"version": 9'),
                       whole.replace('"tokens": ', '"tokens": 1')):
            with self.subTest(content=damage[:20]):
                index.write_text(damage)
                self.refuse(BAD_DATA, ["shards"], "train", self.write_config(config(GPT2)), "--run-dir", "run", "--set",
                            f"data.train={shards}")
        index.unlink()
        self.refuse(BAD_DATA, ["shards"], "train", self.write_config(config(GPT2)), "--set", f"data.train={shards}")

    def test_prepare_leaves_all_or_nothing(self):
        good, empty, binary = (self.directory / name for name in ("good.txt", "empty.txt", "binary.dat"))
        good.write_text("words and words\n" * 50)
        empty.write_text("")
        binary.write_bytes(b"text and \0 zero" * 10)
        self.refuse(BAD_DATA, ["nowhere.txt"], "prepare", "--out", "out", good, "nowhere.txt")
        self.refuse(BAD_DATA, ["empty.txt"], "prepare", "--out", "out", good, empty)
        self.refuse(BAD_DATA, ["binary.dat", "offset 9"], "prepare", "--out", "out", good, binary)
        self.refuse(BAD_USAGE, ["already exists"], "prepare", "--out", self.directory, good)
        self.refuse(BAD_USAGE, ["eval fraction"], "prepare", "--out", "out", good, "--eval-fraction", 1)
        self.refuse(BAD_USAGE, ["bpe"], "prepare", "--out", "out", good, "--tokenizer", "bpe")


class WithoutBounds(TandemTest):
    """What has no end is refused before it takes the machine: each runs with 400 MB of memory, as a guard."""

    def refuse_within(self, code, parts, *arguments, megabytes=400, stack=None):
        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))
            if stack is not None:
                resource.setrlimit(resource.RLIMIT_STACK, (stack << 20, stack << 20))

        return self.refuse(code, parts, *arguments, preexec_fn=limit)

    def refuse_text(self, parts, text):
        path = self.directory / "config.yaml"
        path.write_text(text)
        result = self.refuse_within(BAD_USAGE, ["config.yaml", *parts], "explain", path)
        self.assertLess(len(result.err), 600)

    def test_long_files(self):
        self.refuse_text(["a config has at most 1.0 MiB, found 38.1 MiB"], "model: {blocks: [" + "1, " * 13333333 + "1]}")
        self.refuse_text(["a config has at most 1.0 MiB"], "name: " + "x" * 40_000_000)

    def test_long_values_in_short_files(self):
        self.refuse_text(["lists of at most 1024 items"], "model: {blocks: [" + "1, " * 300_000 + "1]}")
        self.refuse_text(["values of at most 4096 characters"], "name: " + "x" * 1_000_000)
        self.refuse_text(["not valid YAML"], "x" * 1_000_000 + ": 1")
        self.refuse_text(["expected `key: value` pairs"], "x" * 4_000)
        self.refuse_text(["lists of at most 1024 items"], "".join(f"k{number}: 1\n" for number in range(100_000)))

    def test_deep_nests_and_bombs(self):
        for text in ("[" * 500_000, "{a: " * 250_000, "- " * 500_000, "? " * 500_000):
            with self.subTest(text=text[:4]):
                self.refuse_text(["config.yaml:"], text)
        bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n"
        for last, name in zip("abcdefgh", "bcdefghi"):
            bomb += f"{name}: &{name} [{', '.join(['*' + last] * 9)}]\n"
        self.refuse_text(["a: no such key"], bomb)
        self.refuse_text(["model.blocks"], "model: {blocks: &a [*a, *a]}")

    def test_sizes_of_models(self):
        path = self.write_config(config(GPT2))
        for key, value in {"model.layers": 100_000, "model.width": 10**9, "model.heads": 10**6, "model.vocab": 10**9,
                           "model.context": 10**8, "train.batch": 10**9, "train.micro_batch": 10**8,
                           "data.prefetch": 10**8, "data.workers": 10**6, "threads": 10**6}.items():
            with self.subTest(key=key):
                self.refuse_within(BAD_USAGE, [key, "at most"], "plan", path, "--set", f"{key}={value}")
        wide = [word for size in ("model.width=1048576", "model.heads=16", "model.vocab=16777216", "model.layers=2048")
                for word in ("--set", size)]
        self.refuse_within(BAD_USAGE, ["64 bits", "use a smaller model."], "plan", path, *wide)
        self.refuse_within(BAD_USAGE, ["passes a step", "use a larger train.micro_batch"], "plan", path, "--set",
                           "parallel.pipeline=3", "--set", "train.batch=3000000", "--set", "train.micro_batch=3")

    def test_no_memory_and_no_threads_are_the_machine_not_a_bug(self):
        path = self.write_config(config(GPT2, data={"workers": 0}))
        self.refuse_within(tandem_run.DOES_NOT_FIT, ["memory: the system has no more to give", "use a smaller one"],
                           "plan", path, "--set", "model.layers=2000", megabytes=120)
        result = self.tandem("train", path, "--run-dir", "run", expect=FAILED, preexec_fn=lambda: (
            resource.setrlimit(resource.RLIMIT_STACK, (1000 << 20, 1000 << 20)),
            resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))))
        error = result.err.splitlines()[-1]
        self.assertIn("threads: cannot start another", error)
        self.assertIn("set threads and data.workers lower", error)


class OddPlaces(TandemTest):
    def test_names_that_are_not_utf8(self):
        odd = "caf\udce9.txt"  # the byte e9
        (self.directory / odd).write_text("some text\n" * 100)
        path = self.write_config(config(GPT2))
        for command in ("train", "plan", "explain"):
            self.refuse(BAD_USAGE, ["--set data.train: expected UTF-8 text, found 'caf\\xe9.txt'; rename the file"],
                        command, path, "--set", f"data.train={odd}")
        self.tandem("train", path, "--run-dir", "run\udce9", "--set", "train.steps=1")
        self.assertTrue((self.directory / "run\udce9" / "summary.json").exists())

    def test_a_loop_of_links_and_a_long_name_are_files_that_are_not_there(self):
        loop = self.directory / "loop"
        loop.symlink_to(loop)
        for name in (loop, "n" * 300):
            path = self.write_config(config(GPT2))
            self.refuse(BAD_USAGE, ["no such file"], "explain", name)
            self.refuse(BAD_DATA, ["no such"], "inspect", name)
            self.refuse(BAD_DATA, ["no such"], "train", path, "--set", f"data.train={name}")

    def test_output_that_cannot_be_written_is_an_error(self):
        path = self.write_config(config(GPT2))
        for arguments in (("explain", path), ("plan", path, "--json")):
            with open("/dev/full", "w") as full:
                done = subprocess.run([tandem_run.program(), *map(str, arguments)], stdout=full, stderr=subprocess.PIPE,
                                      text=True)
            self.assertEqual(FAILED, done.returncode)
            self.assertEqual(1, len(done.stderr.splitlines()), done.stderr)
            self.assertIn("standard output", done.stderr)


if __name__ == "__main__":
    tandem_run.main()
