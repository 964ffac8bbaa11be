"""Machines that are taken back: a notice of each cloud, at a random moment of a run, is followed by a save within it and exit
code 75; the run goes on elsewhere with the same bits. The servers that give notice are metadata_servers.py's.

With --tries N, N notices of each cloud, with 30 s and 120 s; one of each without it.
"""

import argparse
import pathlib
import random
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "dist"))

import metadata_servers  # noqa: E402
import ranks  # noqa: E402
import tandem_run  # noqa: E402
from ranks import GPT2, RanksTest, config, mesh  # noqa: E402
from tandem_run import BAD_USAGE, INTERRUPTED  # noqa: E402

# Steps beyond any that a busy machine takes before a notice is seen, and a rate that does not depend on their number.
ENDLESS = {"steps": 1000000, "schedule": "constant"}
SOON_S = 60  # for a step and a save on a busy machine; asking takes five seconds at the most
_tries = 1


def content(cloud, server, **sections):
    return config(GPT2, spot={"watch": cloud, "endpoint": server.url}, train=ENDLESS, **sections)


class Notices(RanksTest):
    def serve(self, cloud):
        server = metadata_servers.Server(metadata_servers.CLOUDS[cloud])
        self.addCleanup(server.close)
        return server

    def begin(self, made, run):
        """Starts a run and returns its process once steps are taken."""
        path = self.write_config(made, f"{run}.yaml")
        many = ranks.num_processes(made)
        before = ("launch", "--nproc-per-node", many) if many > 1 else ()
        process = self.start(*before, "train", path, "--run-dir", self.directory / run)
        metrics = self.directory / run / "metrics.jsonl"
        self.wait_for(lambda: metrics.exists() and metrics.read_bytes().count(b"\n") > 3, "steps")
        return process

    def notice(self, process, server, seconds):
        server.give_notice(seconds)
        begun = time.monotonic()
        said = process.communicate(timeout=SOON_S)[1].decode()
        self.assertEqual(INTERRUPTED, process.returncode, said)
        self.assertLess(time.monotonic() - begun, seconds + 1)
        return said

    def check_went_on(self, made, run, steps):
        """Goes on without a cloud, to its end, with the bits of a run that nobody disturbed."""
        quiet = {**made, "spot": {}, "checkpoint": {}, "train": {**made["train"], "steps": steps}}
        self.train(quiet, run)
        self.assert_equal_runs(self.train(quiet, f"{run}-undisturbed"), self.directory / run)

    def test_a_notice_of_each_cloud(self):
        rng = random.Random(7)
        for number in range(_tries):
            for cloud in metadata_servers.CLOUDS:
                with self.subTest(cloud=cloud, number=number):
                    server = self.serve(cloud)
                    made = content(cloud, server, checkpoint={"every": 0},
                                   **({"parallel": mesh("fsdp", data=2)} if number % 2 else {}))
                    run = f"{cloud}-{number}"
                    process = self.begin(made, run)
                    time.sleep(rng.uniform(0, 1))
                    self.notice(process, server, rng.choice((30, 120)))
                    event = tandem_run.read_events(self.directory / run, "interrupt")[-1]
                    self.assertIn("notice: ", event["message"])
                    self.assertEqual(0, server.refused)
                    done = len(tandem_run.read_metrics(self.directory / run))
                    self.assertEqual(done, event["step"], "nothing is lost")
                    self.check_went_on(made, run, done + 5)

    def test_the_cloud_is_found_and_a_silent_server_stops_nobody(self):
        server = self.serve("azure")
        process = self.begin(content("auto", server), "found")
        server.silent = True
        self.wait_for(lambda: server.questions > 2, "questions")
        asked = server.questions
        self.wait_for(lambda: server.questions > asked + 1, "questions after an error")
        self.assertIsNone(process.poll())
        server.silent = False
        said = self.notice(process, server, 30)
        self.assertIn("notices of azure are watched", said)
        self.assertEqual(1, said.count("warning: spot.watch: Azure: the metadata server answers with 503"), said)

    def test_a_file_is_a_notice_on_every_rank(self):
        made = config(GPT2, parallel=mesh("ddp", data=2), train=ENDLESS, checkpoint={"every": 0},
                      spot={"file": str(self.directory / "notice")})
        process = self.begin(made, "file")
        (self.directory / "notice").write_text("90\n")
        self.assertEqual(INTERRUPTED, process.wait(SOON_S), process.stderr.read())
        (self.directory / "notice").unlink()
        self.check_went_on(made, "file", len(tandem_run.read_metrics(self.directory / "file")) + 3)

    def test_a_notice_too_short_for_a_save_keeps_what_is_saved(self):
        made = config(GPT2, train=ENDLESS, checkpoint={"every": 10}, spot={"file": str(self.directory / "notice")})
        process = self.begin(made, "short")
        saved = lambda: tandem_run.read_events(self.directory / "short", "checkpoint")  # noqa: E731
        self.wait_for(lambda: len(saved()) > 1, "checkpoints")
        (self.directory / "notice").write_text("0\n")
        self.assertEqual(INTERRUPTED, process.wait(SOON_S))
        self.assertIn("no save is begun: a save takes about", process.stderr.read().decode())
        kept = tandem_run.read_events(self.directory / "short", "interrupt")[-1]["step"]
        self.assertEqual(saved()[-1]["step"], kept)
        self.assertEqual(0, kept % 10)
        (self.directory / "notice").unlink()
        self.check_went_on(made, "short", kept + 3)

    def test_checkpoints_by_the_clock(self):
        made = config(GPT2, train=ENDLESS, checkpoint={"every": 0, "minutes": 0.01, "keep": 0},
                      parallel=mesh("fsdp", data=2))
        process = self.begin(made, "clock")
        events = self.directory / "clock" / "events.jsonl"
        self.wait_for(lambda: events.read_text().count('"checkpoint"') > 2, "checkpoints")
        process.terminate()
        self.assertEqual(INTERRUPTED, process.wait(SOON_S))
        self.check_went_on(made, "clock", len(tandem_run.read_metrics(self.directory / "clock")) + 3)

    def test_nonsense_is_refused(self):
        for key, value, told in (("spot.watch", "ibm", "none, auto, aws, gcp, azure"), ("spot.endpoint", "host", "http://"),
                                 ("checkpoint.every", "often", "auto"), ("checkpoint.minutes", "-1", "at least 0"),
                                 ("checkpoint.mtbf", "0", "above 0")):
            with self.subTest(key=key):
                path = self.write_config(config(GPT2))
                self.refuse(BAD_USAGE, (key, told), "train", path, "--set", f"{key}={value}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--tries", type=int, default=1)
    known, sys.argv[1:] = parser.parse_known_args()
    _tries = known.tries
    ranks.main()
