#!/usr/bin/env python3
"""Runs whose checkpoints go to an S3 server of another make: resumed from there, killed, raced for, copied and cleared."""

import pathlib
import shutil
import signal

import s3_proxy
import store_run
import tandem_run
from store_run import STEPS, StoreTest
from tandem_run import BAD_DATA, FAILED, INTERRUPTED


class Training(StoreTest):
    def test_resumes_from_the_store_alone_with_the_same_bits(self):
        whole = self.train_there(self.content(store=False), "whole")
        first = self.train_there(self.content(train={"steps": 4}), "first")
        uploads = tandem_run.read_events(first, "upload")
        self.assertEqual(4, uploads[-1]["step"])
        shutil.rmtree(first)  # the machine is gone
        again = self.train_there(self.content(), "again")
        self.assertEqual(STEPS - 4, len(tandem_run.read_metrics(again)))
        self.assert_same(self.store, whole / "checkpoints" / "latest")
        listed = self.run_tandem("inspect", self.store + "/latest", "--verify").out
        self.assertIn(f"step       {STEPS} ", listed)
        self.assertIn("every byte matches its digest", listed)
        self.assert_all_is_named()
        named = self.train_there(self.content(store=False), "named", "--resume-from-checkpoint", f"{self.store}/step-00000006")
        self.assert_same(self.store, named / "checkpoints" / "latest")
        self.assert_no_secret(again, named)
        for text in server().content_and_texts(self.prefix())[2].values():
            self.assertNotIn(server().variables["AWS_ACCESS_KEY_ID"], text)

    def test_keeps_the_newest_and_the_best(self):
        content = self.content(train={"eval_every": 2, "lr": 1.0, "clip": 0, "warmup": 0},  # ever worse
                               checkpoint={"best": "eval_loss"})
        run = self.train_there(content, "run")
        best = (run / "checkpoints" / "best").readlink().name
        self.assertNotEqual(f"step-{STEPS:08}", best)
        objects, _ = server().content(self.prefix())
        bundles = {name.removeprefix(self.prefix()).split("/")[0] for name in objects if name.endswith("manifest.json")}
        self.assertLessEqual({best, f"step-{STEPS:08}"}, bundles)
        self.assertLessEqual(len(bundles), 3)  # what is saved while the store is busy stays local
        self.assert_same(self.store + "/best", run / "checkpoints" / "best")
        self.assert_all_is_named()

    def test_a_directory_is_a_store_too(self):
        self.store = str(self.directory / "store")
        whole = self.train_there(self.content(store=False), "whole")
        shutil.rmtree(self.train_there(self.content(train={"steps": 4}), "first"))
        self.train_there(self.content(), "again")
        self.assert_same(self.store, whole / "checkpoints" / "latest")
        result = self.run_tandem(*self.command(self.content(), "third", "--resume-from-checkpoint", "none"), expect=BAD_DATA)
        self.assertIn("holds checkpoints of another run", result.err)

    def test_a_kill_behind_the_last_upload_leaves_nothing_for_long(self):
        store = self.directory / "store"
        content = self.content(checkpoint={"store": str(store)})
        self.train_there(content, "run")
        (store / "claim-00000000").write_text("{}")  # as such a kill does
        (store / ".tmp-step-00000099-1").mkdir()
        self.train_there(content, "run")
        self.assertEqual(1, len(list(store.glob("claim-*"))))
        self.assertFalse((store / ".tmp-step-00000099-1").exists())

    def test_nor_where_the_disk_went_with_it_and_all_is_trained(self):
        self.train_there(self.content(), "run")
        server().ask("import boto3, sys; boto3.client('s3').put_object(Bucket='bucket', Key=sys.argv[1], Body=b'{}')",
                     self.prefix() + "claim-00000000")  # as a kill between the commit and the tidying does
        shutil.rmtree(self.directory / "run")
        again = self.train_there(self.content(), "again")  # nothing is left to train
        self.assertTrue((again / "summary.json").exists())
        self.assert_all_is_named()

    def test_a_store_that_cannot_be_reached_is_told_before_anything_is_done(self):
        result = self.run_tandem(*self.command(self.content(), "run"), expect=FAILED, AWS_SECRET_ACCESS_KEY="wrong")
        self.assertIn(f"{self.store}: cannot list: status 403", result.err)
        self.assertFalse((self.directory / "run").exists())
        self.store = "s3://no-such-bucket/x"
        result = self.run_tandem(*self.command(self.content(), "run"), expect=FAILED)
        self.assertIn("no bucket 'no-such-bucket' there", result.err)


class Killed(StoreTest):
    def kill_and_resume(self, ranks, keep_disk):
        train = {"batch": 8, "micro_batch": 1}
        parallel = {"parallel": {"strategy": "fsdp", "data": ranks}} if ranks > 1 else {}
        whole = self.train_there(self.content(store=False, train=train, **parallel), "whole", ranks=ranks)
        # Slow enough for a kill in the middle: a step takes milliseconds.
        process = self.start(*self.command(self.content(train={**train, "eval_every": 1}, data={"eval_samples": 2000}, **parallel), "run",
                                           ranks=ranks), env=self.environment())
        run = self.directory / "run"
        self.wait_for(lambda: (run / "events.jsonl").exists() and tandem_run.read_events(run, "upload"), "an upload")
        process.kill()
        process.wait()
        if not keep_disk:
            self.wait_for(lambda: not self.is_alive(run), "the ranks to end")
            shutil.rmtree(run)
        self.train_there(self.content(train=train, **parallel), "run", ranks=ranks)
        self.assert_same(self.store, whole / "checkpoints" / "latest")
        self.run_tandem("inspect", self.store, "--verify")
        self.assert_all_is_named()

    def is_alive(self, run):
        """Whether a process still has a file of the run directory open."""
        for link in pathlib.Path("/proc").glob("[0-9]*/fd/*"):
            try:
                if str(link.readlink()).startswith(str(run) + "/"):
                    return True
            except OSError:
                pass
        return False

    def test_and_resumed_from_the_store_with_an_empty_disk(self):
        self.kill_and_resume(ranks=1, keep_disk=False)

    def test_and_resumed_from_the_disk_the_store_follows(self):
        self.kill_and_resume(ranks=1, keep_disk=True)

    def test_four_ranks_resume_from_the_store_with_an_empty_disk(self):
        self.kill_and_resume(ranks=4, keep_disk=False)


class Story(StoreTest):
    def test_what_a_run_says_of_itself_outlives_its_machine(self):
        process = self.start(*self.command(self.content(train={"steps": 100000, "eval_every": 50}), "run"), env=self.environment())
        run = self.directory / "run"
        self.wait_for(lambda: (run / "events.jsonl").exists() and len(tandem_run.read_events(run, "upload")) >= 3, "uploads")
        process.kill()
        process.wait()
        shutil.rmtree(run)
        objects, _ = server().content(self.prefix() + "runs/")
        folder = next(iter(objects)).removeprefix(self.prefix()).split("/")[1]
        self.run_tandem("copy", f"{self.store}/runs/{folder}", self.directory / "story")
        story = self.directory / "story"
        self.assertEqual(["config.yaml", "events.jsonl", "logs", "metrics.csv", "metrics.jsonl", "plan.json"],
                         sorted(path.name for path in story.iterdir()))
        self.assertGreaterEqual(len(tandem_run.read_metrics(story)), 2)
        self.assertTrue(tandem_run.read_events(story, "checkpoint"))
        self.assertIn("process", (story / "logs" / "rank-0.log").read_text())
        self.assert_no_secret(story)

    def test_of_a_run_that_ends_is_whole(self):
        run = self.train_there(self.content(train={"batch": 8, "micro_batch": 1}, parallel={"strategy": "fsdp", "data": 2}), "run", ranks=2)
        objects, _ = server().content(self.prefix() + "runs/")
        folder = next(iter(objects)).removeprefix(self.prefix()).split("/")[1]
        self.run_tandem("copy", f"{self.store}/runs/{folder}", self.directory / "story")
        for name in ("metrics.jsonl", "metrics.csv", "summary.json", "config.yaml", "plan.json", "logs/rank-1.jsonl"):
            self.assertEqual((run / name).read_bytes(), (self.directory / "story" / name).read_bytes(), name)


class Ranks(StoreTest):
    def test_loading_four_ranks_into_three_reads_its_bytes_once(self):
        # Where ranks cut a tensor, both read the block of a digest: these are the shorter the smaller the checkpoint. Units of 3 MB here.
        model = {**tandem_run.GPT2, "width": 256, "heads": 8, "layers": 12, "context": 16}
        train = {"batch": 12, "micro_batch": 1, "steps": 1, "optimizer": "sgd"}
        content = {**self.content(train=train, parallel={"strategy": "fsdp", "data": 4}), "model": model}
        self.train_there(content, "four", ranks=4)
        objects, _ = server().content(self.prefix())
        total = sum(size for name, size in objects.items() if name.endswith(".ckpt"))
        shutil.rmtree(self.directory / "four")
        with s3_proxy.Proxy(server()) as proxy:
            self.variables = proxy.variables
            content = {**self.content(train={**train, "steps": 2}, parallel={"strategy": "fsdp", "data": 3}), "model": model}
            self.train_there(content, "three", ranks=3)
            read = sum(size for name, size in proxy.read.items() if name.endswith(".ckpt"))
        self.assertGreater(total, 30 << 20)
        self.assertGreaterEqual(read, total)
        self.assertLessEqual(read, 1.05 * total, f"{read} bytes of {total}")
        self.assertEqual(2, int(tandem_run.read_metrics(self.directory / "three")[-1]["step"]))


class TwoRuns(StoreTest):
    def test_one_prefix_is_the_first_ones(self):
        self.train_there(self.content(), "first")
        result = self.run_tandem(*self.command(self.content(), "second", "--resume-from-checkpoint", "none"), expect=BAD_DATA)
        self.assertIn("holds checkpoints of another run", result.err)

    def test_that_race_one_wins_and_the_other_says_why(self):
        content = self.content(train={"steps": 1000000})
        racers = [self.start(*self.command(content, run), env=self.environment()) for run in ("a", "b")]
        self.wait_for(lambda: any(racer.poll() is not None for racer in racers), "one of them to give up")
        loser = next(racer for racer in racers if racer.poll() is not None)
        winner = next(racer for racer in racers if racer is not loser)
        events = self.directory / ("a" if winner is racers[0] else "b") / "events.jsonl"
        error = loser.stderr.read().decode()
        self.assertEqual(BAD_DATA, loser.returncode, error)
        self.assertRegex(error, "is writing checkpoints there, and (was faster|lives)")
        self.wait_for(lambda: events.exists() and tandem_run.read_events(events.parent, "upload"), "an upload of the winner")
        winner.send_signal(signal.SIGTERM)
        self.assertEqual(INTERRUPTED, winner.wait(tandem_run.DEADLINE_S))
        self.run_tandem("inspect", self.store, "--verify")
        self.assert_all_is_named()


    def start_and_await_upload(self, run):
        process = self.start(*self.command(self.content(train={"steps": 1000000}), run), env=self.environment())
        events = self.directory / run / "events.jsonl"
        self.wait_for(lambda: events.exists() and tandem_run.read_events(events.parent, "upload"), "an upload")
        return process

    def assert_takes_no_more_than_the_first_leaves(self, first):
        """A machine with an empty disk is told to go on from the store while the first run is at it."""
        for run, arguments in (("second", ()), ("third", ("--resume-from-checkpoint", self.store))):
            result = self.run_tandem(*self.command(self.content(), run, *arguments), expect=BAD_DATA)
            self.assertIn("watching for up to 30 s whether it lives", result.err)
            self.assertIn("is writing checkpoints there, and lives", result.err)
            self.assertFalse((self.directory / run).exists())
        self.assertIsNone(first.poll())

    def test_a_living_one_is_not_taken_over(self):
        first = self.start_and_await_upload("first")
        self.assert_takes_no_more_than_the_first_leaves(first)
        uploads = len(tandem_run.read_events(self.directory / "first", "upload"))
        self.wait_for(lambda: len(tandem_run.read_events(self.directory / "first", "upload")) > uploads, "the first to go on")
        first.send_signal(signal.SIGTERM)
        self.assertEqual(INTERRUPTED, first.wait(tandem_run.DEADLINE_S))
        self.assert_all_is_named()
        self.assertFalse([name for name in server().content(self.prefix())[0] if "/alive-" in name])
        self.train_there(self.content(train={"steps": 1}), "heir")  # at once: it has ended, and took back its sign
        self.assert_all_is_named()

    def test_nor_is_one_in_a_directory(self):
        self.store = str(self.directory / "store")
        first = self.start_and_await_upload("first")
        self.assert_takes_no_more_than_the_first_leaves(first)

    def test_one_that_gives_no_sign_is_taken_over_and_stops_when_it_wakes(self):
        first = self.start_and_await_upload("first")
        first.send_signal(signal.SIGSTOP)
        step = int(tandem_run.read_events(self.directory / "first", "upload")[-1]["step"])
        second = self.train_there(self.content(train={"steps": step + 1000}), "second")
        self.assertGreaterEqual(int(tandem_run.read_metrics(second)[0]["step"]), step)
        first.send_signal(signal.SIGCONT)
        self.assertEqual(BAD_DATA, first.wait(tandem_run.DEADLINE_S))
        self.assertIn("is writing checkpoints there, and was faster", first.stderr.read().decode())
        self.assert_same(self.store, second / "checkpoints" / "latest")
        self.run_tandem("gc", self.store, "--delete", "--older-than", "0")  # what it was bringing when it was stopped
        self.assert_all_is_named()


class Copies(StoreTest):
    def test_go_there_and_back_and_are_exported(self):
        run = self.train_there(self.content(store=False), "run")
        self.assertIn("2 checkpoints copied", self.run_tandem("copy", run, self.store).out)
        self.assertIn("0 checkpoints copied", self.run_tandem("copy", run, self.store).out)
        self.assert_all_is_named()
        self.run_tandem("copy", self.store, self.directory / "back")
        self.assert_same(self.directory / "back" / "latest", run / "checkpoints" / "latest")
        self.run_tandem("export", self.store, self.directory / "exported")
        self.run_tandem("export", run, self.directory / "expected")
        for name in ("model.safetensors", "config.json"):
            self.assertEqual((self.directory / "expected" / name).read_bytes(), (self.directory / "exported" / name).read_bytes())

    def test_that_are_killed_go_on_where_they_were(self):
        run = self.train_there(self.content(store=False, train={"batch": 8, "micro_batch": 1}, checkpoint={"keep": 1},
                                            parallel={"strategy": "fsdp", "data": 4}), "run", ranks=4)
        with s3_proxy.Proxy(server()) as proxy:
            self.variables = proxy.variables
            files = lambda: {name: size for name, size in proxy.written.items() if name.endswith(".ckpt")}
            process = self.start("copy", run, self.store, env=self.environment())

            def kill_at_the_third(request):
                if len(files()) < 2:
                    return None
                process.kill()
                return "cut_before"

            proxy.trouble = kill_at_the_third
            self.assertEqual(-signal.SIGKILL, process.wait(tandem_run.DEADLINE_S))
            first = files()
            proxy.trouble = lambda request: None
            proxy.reset()
            self.assertIn("1 checkpoint copied", self.run_tandem("copy", run, self.store).out)
            self.assertEqual(2, len(first))
            self.assertEqual(2, len(files()))
            self.assertFalse(first.keys() & files().keys())
        self.variables = server().variables
        self.assert_same(self.store, run / "checkpoints" / "latest")

    def test_gc_names_what_no_checkpoint_needs_and_frees_it(self):
        run = self.train_there(self.content(), "run")
        server().ask("import boto3, sys; boto3.client('s3').put_object(Bucket='bucket', Key=sys.argv[1], Body=b'half')",
                     self.prefix() + "step-00000004/dead.rank-00000.ckpt")
        upload = server().begin_upload(self.prefix() + "step-00000006/dead.rank-00000.ckpt")
        server().ask("import boto3, sys; boto3.client('s3').put_object(Bucket='bucket', Key=sys.argv[1], Body=b'mine')",
                     self.store.removeprefix("s3://bucket/") + "-beside/step-00000004/note")
        server().ask("import boto3, sys; boto3.client('s3').put_object(Bucket='bucket', Key=sys.argv[1], Body=b'')",
                     self.prefix() + "alive-nobody")
        self.assert_all_is_named(beside={"step-00000004/dead.rank-00000.ckpt", "alive-nobody", upload})
        freed = self.run_tandem("gc", self.store, "--delete").out
        self.assertIn("stays, it may be a living run's", freed)
        self.assertIn("1 removed", freed)  # moto says of every upload that it was begun in 2010
        self.assert_all_is_named(beside={"step-00000004/dead.rank-00000.ckpt", "alive-nobody"})
        self.assertIn("2 removed", self.run_tandem("gc", self.store, "--delete", "--older-than", "0").out)
        self.assert_all_is_named()
        self.assert_same(self.store, run / "checkpoints" / "latest")
        self.assertTrue(server().content(self.store.removeprefix("s3://bucket/") + "-beside/")[0])


def server():
    return store_run.server


if __name__ == "__main__":
    store_run.main()
