"""`tandem convert`: every fixture gives a config that loads, nothing of a file goes without a word, files are safe."""

import json
import pathlib
import re
import sys
import tomllib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))

import tandem_run
from tandem_run import BAD_USAGE, REPOSITORY, TandemTest

FIXTURES = REPOSITORY / "tests" / "convert" / "fixtures"
FINDING = re.compile(r"(no counterpart|assumed): \S+ = .+: .+|to do: [a-z_.0-9]+: .+")

# Of each fixture: some values that `tandem explain` gives for its config, and keys of the file that are told as lost.
EXPECTED = {
    "deepspeed_zero2.json": (
        {"parallel.strategy": "zero2", "parallel.data": "8", "train.batch": "64", "train.micro_batch": "4", "train.clip": "0.5",
         "memory.offload": "[optimizer]", "precision": "bf16", "train.lr": "0.0003", "train.weight_decay": "0.01",
         "train.schedule": "linear", "train.warmup": "200", "train.steps": "5000", "memory.recompute": "full"},
        {"zero_optimization.overlap_comm", "zero_optimization.reduce_bucket_size", "steps_per_print",
         "zero_optimization.offload_optimizer.pin_memory", "activation_checkpointing.partition_activations",
         "zero_optimization.contiguous_gradients"}),
    "deepspeed_zero3_auto.json": (
        {"parallel.strategy": "fsdp", "memory.offload": "[params, optimizer]", "precision": "bf16", "train.schedule": "constant"},
        {"gradient_clipping", "optimizer.params.lr", "optimizer.params.weight_decay", "scheduler.params.warmup_num_steps",
         "fp16.hysteresis"}),
    "deepspeed_fp16.json": (
        {"parallel.strategy": "zero1", "precision": "fp16", "train.loss_scale": "4096.0", "train.loss_scale_window": "500",
         "train.optimizer": "lion", "train.batch": "32", "train.micro_batch": "8", "train.min_lr": "0.05", "train.beta2": "0.99"},
        {"fp16.min_loss_scale", "scheduler.params.warmup_type"}),
    "deepspeed_sgd.json": (
        {"train.optimizer": "sgd", "train.momentum": "0.9", "train.lr": "0.1", "train.batch": "32", "train.weight_decay": "0.0"},
        {"optimizer.params.nesterov", "scheduler.type"}),
    "accelerate_fsdp.yaml": (
        {"parallel.strategy": "fsdp", "parallel.data": "16", "memory.recompute": "full", "precision": "bf16",
         "memory.offload": "[params, optimizer]"},
        {"num_machines", "fsdp_config.transformer_layer_cls_to_wrap"}),
    "accelerate_fsdp2.yaml": (
        {"parallel.strategy": "zero2", "parallel.data": "3", "precision": "fp32", "memory.offload": "[optimizer]"},
        {"fsdp_config.offload_params"}),
    "accelerate_deepspeed.yaml": (
        {"parallel.strategy": "fsdp", "parallel.data": "4", "precision": "fp16", "memory.offload": "[optimizer]",
         "train.clip": "1.0", "train.batch": "128"},
        {"deepspeed_config.zero3_init_flag"}),
    "accelerate_deepspeed_file.yaml": (
        {"parallel.strategy": "zero2", "parallel.data": "8", "train.batch": "64", "train.lr": "0.0003"},
        {"steps_per_print"}),
    "accelerate_cpu.yaml": ({"parallel.strategy": "ddp", "parallel.data": "2", "device": "cpu", "precision": "fp32"}, set()),
    "trainer.json": (
        {"name": "my-model", "train.batch": "16", "train.micro_batch": "2", "train.lr": "2e-05", "train.beta2": "0.98",
         "train.eps": "1e-06", "train.clip": "0.3", "train.steps": "1200", "train.warmup": "36", "train.schedule": "cosine",
         "train.min_lr": "0.0", "checkpoint.every": "400", "checkpoint.keep": "2", "train.eval_every": "200", "train.seed": "7",
         "precision": "bf16", "memory.recompute": "full", "parallel.strategy": "fsdp", "data.workers": "4",
         "parallel.timeout": "1800.0"},
        {"report_to"}),
    "trainer_epochs.json": (
        {"train.optimizer": "adamw", "parallel.strategy": "fsdp", "memory.offload": "[params, optimizer]", "precision": "fp16",
         "train.loss_scale_window": "1000", "train.epochs": "2.0"},
        {"dataset_name", "save_strategy"}),
    "trainer_defaults.json": (
        {"train.lr": "5e-05", "train.batch": "8", "train.beta2": "0.999", "train.clip": "1.0", "train.weight_decay": "0.0",
         "train.warmup": "0", "train.seed": "42", "checkpoint.every": "500", "parallel.strategy": "single"}, set()),
    "torchtitan_8b.toml": (
        {"model.family": "llama", "model.layers": "32", "model.ffn": "14336", "model.context": "8192", "precision": "fp8",
         "parallel.strategy": "fsdp", "parallel.tensor": "8", "memory.recompute": "selective", "checkpoint.every": "500",
         "checkpoint.async": "true", "train.schedule": "cosine", "train.min_lr": "0.1", "train.warmup": "200"},
        {"training.dataset", "metrics", "job.dump_folder", "quantize"}),
    "torchtitan_pipeline.toml": (
        {"model.qk_norm": "head", "model.tied": "true", "parallel.data": "4", "parallel.tensor": "2", "parallel.pipeline": "2",
         "parallel.schedule": "interleaved", "parallel.chunks": "2", "train.batch": "64", "train.micro_batch": "1",
         "precision": "fp32", "memory.recompute": "every:2", "train.eval_every": "50"},
        {"parallelism.data_parallel_replicate_degree", "training.dataset"}),
    "torchtitan_unknown_model.toml": (
        {"parallel.pipeline": "1", "train.steps": "10", "parallel.strategy": "single"},
        {"model.flavor", "parallelism.pipeline_parallel_schedule"}),
}

# Nothing else of these is told as lost.
ALL_OF_THEM = ("deepspeed_zero2.json", "accelerate_fsdp.yaml", "accelerate_fsdp2.yaml", "accelerate_deepspeed.yaml",
               "accelerate_cpu.yaml", "trainer.json", "trainer_defaults.json")

ODD_VALUES = ([], {}, -1, 1e300, "x", "auto", True, None, [1, "a"], {"enabled": 1}, 0, 2.5)


def leaves(table, at=()):
    for key, value in table.items():
        yield (*at, key)
        if isinstance(value, dict):
            yield from leaves(value, (*at, key))


def changed(table, path, value):
    if len(path) == 1:
        return {**table, path[0]: value}
    return {**table, path[0]: changed(table[path[0]], path[1:], value)}


class Convert(TandemTest):
    def explained(self, config):
        return dict(re.match(r"(\S+) +(\[.*?\]|\"[^\"]*\"|\S+)", line).groups()
                    for line in self.tandem("explain", config).out.splitlines())

    def test_every_fixture_is_expected(self):
        self.assertEqual(set(EXPECTED), {path.name for path in FIXTURES.iterdir()})

    def test_every_fixture_gives_a_config_that_loads(self):
        for name, (values, lost) in EXPECTED.items():
            with self.subTest(file=name):
                done = self.tandem("convert", FIXTURES / name)
                config = self.directory / f"{name}.out.yaml"
                config.write_text(done.out)
                found = self.explained(config)
                self.assertEqual(values, {key: found.get(key) for key in values})
                *findings, summary = done.err.splitlines()
                for line in findings:
                    self.assertRegex(line, FINDING)
                self.assertIn(f"{len(re.findall('^no counterpart', done.err, re.M))} without a counterpart", summary)
                told = set(re.findall(r"^no counterpart: (\S+) =", done.err, re.M))
                self.assertEqual(set(), lost - told, done.err)
                self.assertEqual(set(), told - lost if name in ALL_OF_THEM else set())

    def test_the_kind_of_file_is_found_from_its_keys(self):
        for name in EXPECTED:
            kind = re.match("[a-z]+", name)[0]
            self.assertIn(f"{name}: {kind}: ", self.tandem("convert", FIXTURES / name).err.splitlines()[-1])
            self.assertEqual(self.tandem("convert", FIXTURES / name).out,
                             self.tandem("convert", FIXTURES / name, "--from", kind).out)

    def test_a_key_that_nobody_knows_is_told(self):
        path = self.directory / "ds.json"
        path.write_text(json.dumps({"train_batch_size": 8, "brand_new": {"thing": 3}}))
        self.assertIn("no counterpart: brand_new.thing = 3: ", self.tandem("convert", path).err)

    def test_what_is_there_is_replaced_only_by_force(self):
        out = self.directory / "out.yaml"
        source = FIXTURES / "trainer.json"
        self.assertEqual("", self.tandem("convert", source, "--out", out).out)
        first = out.read_text()
        self.refuse(BAD_USAGE, [str(out), "--force"], "convert", FIXTURES / "accelerate_cpu.yaml", "--out", out)
        self.assertEqual(first, out.read_text())
        self.tandem("convert", FIXTURES / "accelerate_cpu.yaml", "--out", out, "--force")
        self.assertNotEqual(first, out.read_text())

    def test_a_converted_config_trains(self):
        out = self.directory / "cpu.yaml"
        self.tandem("convert", FIXTURES / "accelerate_cpu.yaml", "--out", out)
        self.tandem("launch", "--nproc-per-node", "2", "train", out, "--run-dir", self.directory / "run", "--set", "train.steps=2",
                    "--set", "model.layers=1", "--set", "model.width=48", "--set", "model.context=16", "--set", "threads=1")
        self.assertEqual(2, len(tandem_run.read_metrics(self.directory / "run")))

    def test_a_model_directory_that_is_there_is_taken(self):
        sys.path.insert(0, str(REPOSITORY / "tests" / "hub"))
        import tiny_models
        tiny_models.make("llama", self.directory / "tiny")
        path = self.directory / "args.json"
        path.write_text(json.dumps({"model_name_or_path": "tiny", "per_device_train_batch_size": 2, "max_steps": 4}))
        out = self.directory / "converted.yaml"
        self.tandem("convert", path, "--out", out)
        self.assertEqual("tiny", self.explained(out)["model.from"].strip('"'))

    def test_bad_files_are_refused_in_one_line(self):
        for name, text, expected in (
                ("a.json", '{"train_batch_size": 8,\n}', "a.json:2: not JSON"),
                ("a.toml", "[training]\nsteps = = 3\n", "a.toml:2: not TOML"),
                ("a.yaml", "distributed_type: [FSDP\n", "a.yaml:"),
                ("a.json", '{"hidden_size": 8}', "by its keys"),
                ("a.json", "[]", "expected a table"),
                ("a.json", '{"train_batch_size": 7, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1}',
                 "no multiple of"),
                ("a.json", '{"train_batch_size": -7}', "expected a global batch"),
                ("a.json", '{"learning_rate": {"x": 1}}', "learning_rate"),
                ("a.json", '{"learning_rate": "fast"}', "learning_rate: expected a number"),
                ("a.yaml", "train: {steps: 3}\nparallel: {data: 1}\n", "of Tandem already")):
            path = self.directory / name
            path.write_text(text)
            with self.subTest(text=text):
                self.refuse(BAD_USAGE, [expected], "convert", path, "--out", "never.yaml")
                self.assertFalse((self.directory / "never.yaml").exists())
        self.refuse(BAD_USAGE, ["no such file"], "convert", "absent.json")
        self.refuse(BAD_USAGE, ["--from"], "convert", FIXTURES / "trainer.json", "--from", "keras")
        self.refuse(tandem_run.BAD_DATA, ["nested"], "convert", self.deep())

    def test_odd_values_are_taken_or_refused_in_one_line(self):
        number = 0
        for path in sorted(FIXTURES.iterdir()):
            if path.suffix == ".yaml":
                continue
            root = json.loads(path.read_text()) if path.suffix == ".json" else tomllib.loads(path.read_text())
            for key in leaves(root):
                number += 1
                value = ODD_VALUES[number % len(ODD_VALUES)]
                odd = self.directory / "odd.json"
                odd.write_text(json.dumps(changed(root, key, value)))
                done = self.tandem("convert", odd, "--from", re.match("[a-z]+", path.name)[0], expect=None)
                with self.subTest(file=path.name, key=key, value=value):
                    self.assertIn(done.code, (0, BAD_USAGE), done)
                    if done.code == BAD_USAGE:
                        self.assert_one_line_error(done, BAD_USAGE, "odd.json")
        self.assertGreater(number, 200)

    def deep(self):
        path = self.directory / "deep.json"
        path.write_text('{"a":' * 100000 + "1" + "}" * 100000)
        return path


if __name__ == "__main__":
    tandem_run.main()
