"""`tandem chaos` on configs of a user: every kind of disturbance, on one rank and on several, is survived bit for bit.

With --tries N, N trials of each config; one of each kind without it."""

import argparse
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "dist"))

import ranks  # noqa: E402
import tandem_run  # noqa: E402
from ranks import GPT2, LLAMA, RanksTest, config, mesh  # noqa: E402
from tandem_run import BAD_USAGE  # noqa: E402

KINDS = ["kill", "stop", "term", "flip", "disk", "net"]
_tries = 0


class Chaos(RanksTest):
    def check(self, content, seed):
        path = self.write_config(content)
        kinds = KINDS if ranks.num_processes(content) > 1 else KINDS[:5]
        tries = _tries or len(kinds)
        told = json.loads(self.tandem("chaos", path, "--tries", tries, "--seed", seed, "--timeout", 3, "--dir", "trials", "--json").out)
        self.assertEqual([kinds[number % len(kinds)] for number in range(tries)], [trial["kind"] for trial in told["trials"]])
        self.assertEqual([], [trial for trial in told["trials"] if not trial["survived"]])
        self.assertFalse((self.directory / "trials").exists(), "nothing is left where all is well")

    def test_two_ranks(self):
        self.check(config(LLAMA, parallel=mesh("fsdp", data=2), train={"steps": 60, "eval_every": 0}, checkpoint={"every": 7}), 3)

    def test_one_rank(self):
        self.check(config(GPT2, train={"steps": 60, "eval_every": 0}, checkpoint={"every": 5}), 4)

    def test_nonsense_is_refused(self):
        path = self.write_config(config(GPT2))
        self.refuse(BAD_USAGE, ("--kinds", "kil"), "chaos", path, "--kinds", "kil")
        self.refuse(BAD_USAGE, ("--kinds net", "one rank"), "chaos", path, "--kinds", "net")
        self.refuse(BAD_USAGE, ("--ranks 3", "mesh has 1 rank"), "chaos", path, "--ranks", 3)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--tries", type=int, default=0)
    known, sys.argv[1:] = parser.parse_known_args()
    _tries = known.tries
    ranks.main()
