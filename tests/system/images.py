"""Images from files: trained on from a folder and from shards, the same bits for any number of workers and ranks and after
a resume; broken ones named, or left out and counted."""

import json
import random

import small_images
import tandem_run
from tandem_run import BAD_DATA, BAD_USAGE, RESNET, TandemTest, config

MODEL = {**RESNET, "classes": 3}
CHANGED = {"flip": True, "pad": 2, "crop": 0.4, "color": 0.3, "mixup": 0.4}


class Images(TandemTest):
    def setUp(self):
        super().setUp()
        self.photos = small_images.write_classes(self.directory / "photos", random.Random(1))

    def write(self, name="images.yaml", data=(), **sections):
        data = {"train": str(self.photos), **CHANGED, **dict(data)}
        train = {"steps": 6, "batch": 8, "micro_batch": 4, "eval_every": 3, **sections.pop("train", {})}
        return self.write_config(config(MODEL, data=data, train=train, **sections), name)

    def losses(self, run):
        return [(row["step"], row["loss"], row.get("eval_loss"))
                for row in map(json.loads, (run / "metrics.jsonl").read_text().splitlines())]

    def train(self, name, path, *flags):
        run = self.directory / name
        self.tandem("train", path, "--run-dir", run, *flags)
        return self.losses(run)

    def test_workers_ranks_and_resumes_change_no_bit(self):
        path = self.write()
        alone = self.train("alone", path, "--set", "data.workers=0")
        self.assertEqual(alone, self.train("team", path, "--set", "data.workers=3"))
        flat = ("--set", "train.warmup=0", "--set", "train.schedule=constant")
        whole = self.train("whole", path, *flat)
        self.train("two", path, *flat, "--set", "train.steps=3", "--set", "checkpoint.every=3")
        self.assertEqual(whole, self.train("two", path, *flat))
        group = self.write("group.yaml")
        flags = ("--set", "model.norm=group", "--set", "model.groups=4", "--set", "threads=1")
        one = self.train("one", group, *flags)
        run = self.directory / "ranks"
        self.tandem("launch", "--nproc-per-node", "2", "train", group, "--run-dir", run, *flags, "--set",
                    "parallel.strategy=ddp", "--set", "parallel.data=2")
        for (step, loss, evaluated), (_, other, other_evaluated) in zip(one, self.losses(run)):
            self.assertAlmostEqual(loss, other, delta=2e-6 * loss, msg=f"step {step}")  # sums of other halves
            if evaluated is not None:
                self.assertAlmostEqual(evaluated, other_evaluated, delta=2e-5 * evaluated)

    def test_prepared_ones_train_as_the_folder_does(self):
        split = self.directory / "split"
        small_images.write_classes(split / "train", random.Random(2))
        small_images.write_classes(split / "val", random.Random(3))
        said = self.tandem("prepare", "--images", split, "--out", "set", "--threads", "3").out
        self.assertIn("3 classes, 36 images for training and 36 for evaluation", said)
        path = self.write(data={"normalize": False})
        of = lambda place: ("--set", f"data.train={place}", "--set", f"data.eval={place}")
        self.assertEqual(self.train("folder", path, *of(split)), self.train("set-run", path, *of(self.directory / "set")))
        self.tandem("prepare", "--images", split, "--size", "16", "--out", "pixels", "--threads", "1")
        self.train("pixels-run", path, *of(self.directory / "pixels"))
        report = json.loads(self.tandem("evaluate", "pixels-run", "--json").out)
        self.assertEqual(36, report["targets"])

    def test_a_broken_image_is_named_or_left_out_and_counted(self):
        broken = self.photos / "dog" / "4.png"
        broken.write_bytes(broken.read_bytes()[:200])
        path = self.write()
        self.refuse(BAD_DATA, [str(broken), "broken image"], "train", path, "--run-dir", "stops")
        self.refuse(BAD_DATA, [str(broken), "broken image"], "prepare", "--images", self.photos, "--out", "out")
        self.assertFalse((self.directory / "out").exists() or (self.directory / "out.partial").exists())
        done = self.tandem("train", path, "--run-dir", "skips", "--set", "data.broken=skip", "--set", "train.steps=12")
        self.assertIn(f"warning: {broken}: ", done.err)
        self.assertIn("1 image could not be read and was left out", done.err + done.out)
        done = self.tandem("prepare", "--images", self.photos, "--out", "out", "--skip-broken")
        self.assertIn("1 that cannot be read left out", done.out)
        self.assertIn(str(broken), done.err)

    def test_classes_and_flags_are_checked(self):
        path = self.write()
        self.refuse(BAD_USAGE, ["has 3 classes, but model.classes is 7; set it to 3"], "train", path, "--set",
                    "model.classes=7")
        self.refuse(BAD_DATA, ["no images: expected a folder for each class"], "train", path, "--set",
                    f"data.train={self.photos / 'cat'}")
        self.refuse(BAD_USAGE, ["data.mixup"], "train", path, "--set", "data.mixup=-0.2")
        self.refuse(BAD_USAGE, ["FILES of text, or --images DIR"], "prepare", "--out", "out")

    def test_evaluations_tell_the_first_five(self):
        path = self.write_config(config(RESNET, train={"steps": 2, "eval_every": 2}))
        self.tandem("train", path, "--run-dir", "shapes")
        row = json.loads((self.directory / "shapes/metrics.jsonl").read_text().splitlines()[-1])
        self.assertTrue(row["eval_accuracy"] <= row["eval_top5"] <= 1, row)
        self.assertGreaterEqual(json.loads(self.tandem("evaluate", "shapes", "--json").out)["top5"], 0)


if __name__ == "__main__":
    tandem_run.main()
