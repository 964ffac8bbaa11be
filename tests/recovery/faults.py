"""Faults at every call that a run makes for its files: whatever fails, comes short or kills, the next start ends where
an undisturbed run ends, every checkpoint that can be seen is whole, and nothing is left lying about.

`faults.py --tandem PATH --library PATH` tries a sample; with --all every call of every setting, with every fault.
"""

import argparse
import collections
import concurrent.futures
import os
import pathlib
import random
import shutil
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))

import tandem_run  # noqa: E402
from tandem_run import BAD_DATA, DONE, FAILED, MLP, TandemTest, config  # noqa: E402

# By what a call is, beside those that can happen to any: the library says what they mean.
KINDS = ("kill", "eio", "enospc", "dead")
MORE_KINDS = {"write": ("short", "full"), "open": ("full",), "mkdir": ("lost", "full"), "symlink": ("lost", "full"),
              "rename": ("lost", "kill-after"), "unlink": ("lost",)}
STEPS = 3
SAMPLE = 10  # of each setting
DEADLINE_S = tandem_run.SOON_S

options = None  # of the command line


class Setting:
    """A way to run, and the rank that meets the fault. One that is `begun` was killed before, at such a call, and has
    more to do than go on: it meets the fault when it is started again."""

    def __init__(self, name, rank, num_ranks=1, begun="", **checkpoint):
        self.name, self.rank, self.num_ranks, self.begun = name, rank, num_ranks, begun
        self.file = name.replace(", ", "-").replace(" ", "-") + ".yaml"
        model = {**MLP, "layers": 2, "width": 8}
        parallel = {"strategy": "fsdp", "data": 2, "timeout": 20} if num_ranks > 1 else {}
        self.content = config(model, parallel=parallel, checkpoint={"every": 1, **checkpoint},
                              data={"workers": 0, "eval_samples": 4},
                              train={"steps": STEPS, "batch": 4, "micro_batch": 2, "eval_every": 2, "optimizer": "sgd"})


SETTINGS = [
    Setting("one rank, behind its steps", "-", keep=2),
    Setting("one rank, at once", "-", keep=1, **{"async": False}),
    Setting("one rank, again", "-", keep=1, begun="rename */.tmp-latest-* -> */latest"),
    Setting("two ranks, rank 0", "0", num_ranks=2, keep=1),
    Setting("two ranks, rank 1", "1", num_ranks=2, keep=1),
    Setting("two ranks, rank 1, at once", "1", num_ranks=2, keep=1, **{"async": False}),
]


class Call:
    def __init__(self, line):
        number, self.name, self.path = line.split(" ", 2)
        self.number = int(number)

    def commits(self):
        """Whether it makes a checkpoint visible."""
        return self.name == "rename" and "/checkpoints/step-" in self.path.partition(" -> ")[2]


class Place:
    """The folder of one trial: its run directory, its log of calls, its temporary directory."""

    def __init__(self, test, setting, name, begun=None):
        self.test, self.setting = test, setting
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix=name, dir=test.directory))
        self.files, self.log, self.tmp = (self.directory / part for part in ("files", "calls", "tmp"))
        self.run = self.files / "run"
        self.files.mkdir()
        self.tmp.mkdir()
        if begun is not None:
            shutil.copytree(begun.run, self.run, symlinks=True)

    def train(self, expect, **fault):
        return self.test.tandem(*self.command(), expect=expect, env={"TMPDIR": str(self.tmp), **fault})

    def command(self):
        ranks = self.setting.num_ranks
        launch = ("launch", "--nproc-per-node", ranks, "--log-dir", self.directory / "logs") if ranks > 1 else ()
        return *launch, "train", self.test.directory / self.setting.file, "--run-dir", self.run

    def fault(self, number=0, kind="eio", like="", hold=""):
        """The environment of a run that meets a fault."""
        return {"LD_PRELOAD": str(options.library), "TANDEM_FAULT_DIR": str(self.files),
                "TANDEM_FAULT_RANK": self.setting.rank, "TANDEM_FAULT_AT": str(number), "TANDEM_FAULT_KIND": kind,
                "TANDEM_FAULT_LIKE": like, "TANDEM_FAULT_HOLD": hold, "TANDEM_FAULT_LOG": str(self.log)}

    def train_with(self, *fault, **named):
        return self.train(None, **self.fault(*fault, **named))

    def calls(self, rank=None):
        log = pathlib.Path(f"{self.log}.{self.setting.rank if rank is None else rank}")
        return [Call(line) for line in log.read_text().splitlines()] if log.exists() else []

    def checkpoints(self):
        return sorted((self.run / "checkpoints").glob("step-*"))

    def names(self):
        """Without what the launcher keeps of a verdict: whoever lost a rank wants to look at it later."""
        paths = (path.relative_to(self.run) for path in self.run.rglob("*"))
        return sorted(str(path) for path in paths if path.parts[0] != "hangs")


class FaultTest(TandemTest):
    def setUp(self):
        super().setUp()
        self.directory = self.directory.resolve()
        for variable in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
            os.environ.pop(variable, None)

    def undisturbed(self, setting, name):
        self.write_config(setting.content, setting.file)
        place = Place(self, setting, name)
        result = place.train_with()
        self.assertEqual(DONE, result.code, result)
        return place

    def assert_checkpoints_are_whole(self, place, number, kind):
        for checkpoint in place.checkpoints():
            self.tandem("inspect", checkpoint, "--verify")
        committed = [call for call in place.calls(0 if place.setting.num_ranks > 1 else "-") if call.commits()]
        met = place.setting.rank != "1"  # the rank that commits met the fault
        done = [call for call in committed if not met or call.number < number or (call.number > number and kind != "dead")]
        if done:
            self.assertNotEqual([], place.checkpoints(), "no whole checkpoint is left")

    def assert_told(self, result, kind):
        """What fails says so in a line of its own; what does not, ends as it should."""
        if kind.startswith("kill"):
            return
        self.assertIn(result.code, (DONE, FAILED, BAD_DATA), result)  # bad data: no checkpoint could be read
        self.assertNotIn("this is a bug", result.err, result)
        if result.code != DONE:
            self.assertIn("tandem: error: ", result.err, result)

    def begin(self, setting, name):
        """A run that was killed at the second call of those that its setting names; None where it names none."""
        if not setting.begun:
            return None
        place = Place(self, setting, name)
        place.train_with(2, "kill", like=setting.begun)
        return place

    def try_fault(self, whole, number, kind, name, begun=None):
        place = Place(self, whole.setting, name, begun)
        result = place.train_with(number, kind)
        self.assert_told(result, kind)
        self.assert_checkpoints_are_whole(place, number, kind)
        place.train(DONE)
        self.assert_equal_runs(whole.run, place.run)
        self.assertEqual(tandem_run.read_csv_metrics(whole.run), tandem_run.read_csv_metrics(place.run))
        self.assertEqual(whole.names(), place.names(), "what an undisturbed run leaves")
        self.assertEqual(os.readlink(whole.run / "checkpoints/latest"), os.readlink(place.run / "checkpoints/latest"))
        for checkpoint in place.checkpoints():
            self.tandem("inspect", checkpoint, "--verify")
        self.assertEqual([], os.listdir(place.tmp))
        shutil.rmtree(place.directory)
        return result.code

class Faults(FaultTest):
    def try_all(self, whole, trials, begun):
        """Returns what ended how often with which exit code."""
        def attempt(trial):
            number, (call, kind) = trial
            try:
                return kind, self.try_fault(whole, call.number, kind, f"trial-{number}", begun)
            except AssertionError as error:
                return f"{whole.setting.name}: {kind} at call {call.number} ({call.name} {call.path}): {error}"

        ended, failures = collections.Counter(), []
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            for outcome in pool.map(attempt, enumerate(trials)):
                if isinstance(outcome, str):
                    failures.append(outcome)
                    print(outcome[:1500], file=sys.stderr, flush=True)
                else:
                    ended[outcome] += 1
        self.assertEqual([], [failure.splitlines()[0] for failure in failures], f"of {len(trials)}")
        return ended

    def test_every_call(self):
        for number, setting in enumerate(SETTINGS):
            with self.subTest(setting=setting.name):
                begin = time.monotonic()
                whole = self.undisturbed(setting, f"undisturbed-{number}")
                begun = self.begin(setting, f"begun-{number}")
                calls = whole.calls()
                if begun is not None:
                    again = Place(self, setting, f"again-{number}", begun)
                    again.train_with()
                    calls = again.calls()
                self.assertGreater(len(calls), 20)
                trials = [(call, kind) for call in calls for kind in KINDS + MORE_KINDS.get(call.name, ())]
                if not options.all:
                    trials = random.Random(number).sample(trials, SAMPLE)
                ended = self.try_all(whole, trials, begun)
                told = ", ".join(f"{kind}: {count} with {code}" for (kind, code), count in sorted(ended.items()))
                print(f"{setting.name}: {len(trials)} faults at {len(calls)} calls in {time.monotonic() - begin:.0f} s ({told})",
                      file=sys.stderr)


class Moments(FaultTest):
    """Places and moments that have a story of their own."""

    def start_held(self, setting, hold, *fault, **named):
        self.write_config(setting.content, setting.file)
        place = Place(self, setting, "held-")
        process = self.start(*place.command(), env={"TMPDIR": str(place.tmp), **place.fault(*fault, **named, hold=hold)})
        return place, process

    def await_held(self, place, process, rank, number, what):
        held = pathlib.Path(f"{place.log}.{rank}.held-{number}")
        self.wait_for(lambda: held.exists() or process.poll() is not None, what)
        self.assertIsNone(process.poll(), f"it ended before {what}")

    def let_go(self, place, rank, number):
        pathlib.Path(f"{place.log}.{rank}.go-{number}").touch()

    def test_a_rank_that_fails_late_takes_nothing_away_from_what_rank_0_commits(self):
        # Rank 1 cannot sync the directory of the second save. Where its part can be seen by then, rank 0 comes to the
        # moment of the commit before rank 1 hears of it.
        setting = Setting("late", "1", num_ranks=2, keep=1)
        whole = self.undisturbed(setting, "undisturbed-")
        synced = "fsync */.tmp-step-00000002-*-2"  # its name ends with the number of the save
        place, process = self.start_held(setting, synced, 1, "eio", like=synced)
        self.await_held(place, process, 1, 1, "rank 1's sync")
        pending = next((place.run / "checkpoints").glob(".tmp-step-00000002-*"))
        if (pending / "part-00001.json").exists():
            self.await_held(place, process, 0, 1, "the commit")
        self.let_go(place, 1, 1)
        self.wait_for(lambda: not (pending / "rank-00001.ckpt").exists(), "rank 1 to fail")
        self.let_go(place, 0, 1)
        self.assertEqual(FAILED, process.wait(DEADLINE_S))
        self.assertNotEqual([], place.checkpoints())
        for checkpoint in place.checkpoints():
            self.tandem("inspect", checkpoint, "--verify")
        self.assertIn("resumed from step 1", place.train(DONE).err)
        self.assert_equal_runs(whole.run, place.run)

    def test_a_save_is_told_when_it_is_done(self):
        # The second save comes while the first is being committed, and the third while the second is.
        setting = Setting("told", "-", keep=0)
        place, process = self.start_held(setting, "rename * -> */checkpoints/step-*")
        rows = lambda: len((place.run / "metrics.jsonl").read_text().splitlines())  # noqa: E731
        self.await_held(place, process, "-", 1, "the first commit")
        self.wait_for(lambda: rows() == 2, "the second step")
        self.let_go(place, "-", 1)
        self.await_held(place, process, "-", 2, "the second commit")
        self.wait_for(lambda: rows() == 3, "the third step")
        self.assertEqual([1], [event["step"] for event in tandem_run.read_events(place.run, "checkpoint")])
        for number in (2, 3):
            self.let_go(place, "-", number)
        self.assertEqual(DONE, process.wait(DEADLINE_S))
        events = tandem_run.read_events(place.run, "checkpoint")
        self.assertEqual([1, 2, 3], [event["step"] for event in events])

    def test_what_a_kill_left_undone_after_the_last_commit_is_done_by_the_next_start(self):
        setting = Setting("undone", "-", keep=1)
        whole = self.undisturbed(setting, "undisturbed-")
        place = Place(self, setting, "killed-")
        place.train_with(STEPS, "kill", like="rename */.tmp-latest-* -> */latest")
        self.assertEqual([f"step-{step:08}" for step in (STEPS - 1, STEPS)], [path.name for path in place.checkpoints()])
        self.assertEqual(f"step-{STEPS - 1:08}", os.readlink(place.run / "checkpoints/latest"))
        (place.run / "summary.json").write_text("{}")  # as if it had come to its end
        self.assertIn("already trained", place.train(DONE).err)
        self.assertEqual(whole.names(), place.names())
        self.assertEqual(f"step-{STEPS:08}", os.readlink(place.run / "checkpoints/latest"))

    def test_what_a_kill_left_beside_a_file_goes_with_the_next_start(self):
        setting = Setting("beside", "-", keep=1)
        whole = self.undisturbed(setting, "undisturbed-")
        for file in ("plan.json", "config.yaml", "summary.json"):
            with self.subTest(file=file):
                place = Place(self, setting, "killed-")
                place.train_with(1, "kill", like=f"rename */{file}.tmp-* -> */{file}")
                self.assertEqual(1, len(list(place.run.glob(f"{file}.tmp-*"))))
                place.train(DONE)
                self.assertEqual(whole.names(), place.names())

    def test_a_leftover_that_cannot_be_removed_is_told_and_keeps_nobody_from_training(self):
        setting = Setting("stuck", "-", keep=1)
        place = self.undisturbed(setting, "stuck-")
        stuck = place.run / "checkpoints/.tmp-step-00000009-stuck"
        stuck.mkdir()
        (stuck / "rank-00000.ckpt").write_text("half")
        for steps, told in ((STEPS, "already trained"), (STEPS + 1, f"resumed from step {STEPS}")):
            self.write_config({**setting.content, "train": {**setting.content["train"], "steps": steps}}, setting.file)
            result = place.train(DONE, **place.fault(1, "dead", like=f"unlink *{stuck.name}*"))
            self.assertIn(f"warning: {stuck}: cannot remove what a killed save left", result.err)
            self.assertIn(told, result.err)
        place.train(DONE)
        self.assertFalse(stuck.exists())

    def test_no_power_cut_takes_a_directory_or_a_file_away_with_what_was_saved_in_it(self):
        """Whatever appears in a directory, the directory is synced before the first checkpoint counts on it."""
        place = self.undisturbed(Setting("synced", "-", keep=1), "synced-")
        calls = place.calls()
        commit = next(call.number for call in calls if call.commits())
        for made in ("", "checkpoints", "metrics.jsonl", "metrics.csv", "events.jsonl"):
            path = place.run / made
            how = "open" if path.suffix else "mkdir"
            appears = max(call.number for call in calls if call.name == how and call.path == str(path) and call.number < commit)
            synced = [call.number for call in calls if call.name == "fsync" and call.path == str(path.parent)]
            self.assertTrue(any(appears < number < commit for number in synced), f"{path}: {appears}, {synced}, {commit}")

    def test_a_file_system_that_cannot_exchange_directories_loses_no_checkpoint(self):
        # Going back to a step saves it anew, in place of the one that is there.
        setting = Setting("plain", "-", keep=1)
        place = self.undisturbed(setting, "plain-")
        last = place.checkpoints()[0]
        fault = place.fault(2, "kill", like=f"rename */.tmp-step-* -> */{last.name}")
        self.tandem(*place.command(), "--resume-from-checkpoint", last, "--set", f"train.steps={STEPS + 1}", expect=None,
                    env={**fault, "TANDEM_FAULT_PLAIN": "1"})
        self.assertEqual([], place.checkpoints())
        self.assertIn("already trained", place.train(DONE).err)
        self.tandem("inspect", last, "--verify")
        self.assertEqual(["latest", last.name], sorted(os.listdir(place.run / "checkpoints")))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--library", required=True, type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    options, sys.argv[1:] = parser.parse_known_args()
    tandem_run.main()
