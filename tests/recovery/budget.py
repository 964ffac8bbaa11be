"""train.budget: a run saves and ends with 76 before it costs more, counted over all its processes; more money goes on from there."""

import json
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "dist"))

import ranks  # noqa: E402
from ranks import GPT2, RanksTest, config, mesh  # noqa: E402
from tandem_run import BAD_USAGE  # noqa: E402

OUT_OF_BUDGET = 76
A_DOLLAR_A_SECOND = "3600USD/h"
ENDLESS = {"steps": 1000000, "schedule": "constant"}


def content(budget, **sections):
    return config(GPT2, train={**ENDLESS, "budget": f"{budget}USD", "price": A_DOLLAR_A_SECOND}, **sections)


class Budget(RanksTest):
    def spent(self, run):
        return json.loads((self.directory / run / "spent.json").read_text())["usd"]

    def last_saved(self, run):
        return json.loads((self.directory / run / "checkpoints" / "latest" / "manifest.json").read_text())["step"]

    def assert_told_why(self, run, saved):
        status = json.loads(self.tandem("status", self.directory / run, "--json").out)
        self.assertEqual(("interrupted", saved), (status["state"], status["last_checkpoint"]), status)
        self.assertIn("train.budget: ", status["message"])
        self.assertIn("USD to go", status["message"])

    def run_out(self, made, run, *launch):
        path = self.write_config(made, f"{run}.yaml")
        return self.tandem(*launch, "train", path, "--run-dir", self.directory / run, expect=OUT_OF_BUDGET)

    def test_a_run_ends_saved_before_it_costs_more(self):
        result = self.run_out(content(4), "run")
        self.assertIn("USD to go", result.err)
        self.assertIn("raise train.budget to go on", result.err)
        self.assertLessEqual(self.spent("run"), 4)
        saved = self.last_saved("run")
        self.assertGreater(saved, 1)
        self.assert_told_why("run", saved)
        # The same money again trains nothing more; more of it goes on from there.
        self.run_out(content(4), "run")
        self.assertEqual(saved, self.last_saved("run"))
        self.assert_told_why("run", saved)
        spent = self.spent("run")
        self.run_out(content(spent + 4), "run")
        self.assertGreater(self.last_saved("run"), saved)
        self.assertLessEqual(self.spent("run"), spent + 4)

    def test_a_killed_process_was_paid_for_and_ranks_agree(self):
        made = content(1000, parallel=mesh(strategy="ddp", data=2))
        path = self.write_config(made, "run.yaml")
        launch = ("launch", "--nproc-per-node", 2)
        process = self.start(*launch, "train", path, "--run-dir", self.directory / "run")
        noted = self.directory / "run" / "spent.json"
        self.wait_for(lambda: noted.exists() and self.spent("run") > 0, "steps")
        process.send_signal(signal.SIGKILL)
        process.communicate()
        spent = self.spent("run")
        self.run_out(content(spent + 5, parallel=mesh(strategy="ddp", data=2)), "run", *launch)
        self.assertGreater(self.spent("run"), spent)
        self.assertLessEqual(self.spent("run"), spent + 5)

    def test_a_budget_needs_a_price(self):
        path = self.write_config(config(GPT2, train={"budget": "5USD"}), "c.yaml")
        self.refuse(BAD_USAGE, ["train.budget", "set train.price"], "train", path)


if __name__ == "__main__":
    ranks.main()
