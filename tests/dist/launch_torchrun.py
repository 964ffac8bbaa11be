"""`tandem launch` takes what torchrun takes.
"""

import re
import signal

import network  # first: it finds the others
import tandem_run
from launching import LaunchTest
from tandem_run import BAD_USAGE, DONE, FAILED, INTERRUPTED, free_port

# Every flag of `torchrun --help` (torch 2.11), and newer ones.
TORCHRUN_FLAGS = (
    "--help", "--nnodes", "--nproc-per-node", "--rdzv-backend", "--rdzv-endpoint", "--rdzv-id", "--rdzv-conf",
    "--standalone", "--max-restarts", "--monitor-interval", "--start-method", "--event-log-handler", "--role", "--module",
    "--no-python", "--run-path", "--log-dir", "--redirects", "--tee", "--log-line-prefix-template",
    "--local-ranks-filter", "--duplicate-stdout-filters", "--duplicate-stderr-filters", "--node-rank", "--master-addr",
    "--master-port", "--local-addr", "--logs-specs", "--numa-binding", "--signals-to-handle", "--shutdown-timeout",
    "--virtual-local-rank", "--print-completion")


class Torchrun(LaunchTest):
    """Flags that are torchrun's own."""

    one_node_only = "what a launcher does by itself"

    def run_python(self, *flags, expect=DONE):
        (self.directory / "hello.py").write_text("import os, sys; print(os.environ['RANK'], __name__, sys.argv[1:])")
        return self.launch(*flags, expect=expect)

    def test_every_flag_is_taken_or_listed_with_a_reason(self):
        shown = self.launch("--help").out
        page = (tandem_run.REPOSITORY / "docs" / "launch.md").read_text()
        missing = re.search(r"## From torchrun\n.*?(?=\n## )", page, re.S)[0]
        for flag in TORCHRUN_FLAGS:
            with self.subTest(flag=flag):
                taken = re.search(rf"{flag}\b(?!.*refused)", shown)
                self.assertTrue(taken or re.search(rf"\| `{flag[2:]}` \|", missing), flag)
        for flag, value in (("--logs-specs", "x"), ("--numa-binding", "node"), ("--event-log-handler", "console"),
                            ("--start-method", "thread")):
            self.assert_one_line_error(self.launch(flag, value, "true", expect=None), BAD_USAGE, flag)

    def test_python_in_all_its_ways(self):
        for flags in (("hello.py", "x"), ("-m", "hello", "x"), ("--module", "hello", "x"), ("--run-path", "hello.py", "x"),
                      ("--run_path", "--no_python", "hello.py", "x")):
            with self.subTest(flags=flags):
                self.assertEqual("0 __main__ ['x']\n", self.run_python(*flags).out)
        (self.directory / "plain.py").write_text("#!/bin/sh\necho plain $1\n")
        (self.directory / "plain.py").chmod(0o755)
        self.assertEqual("plain x\n", self.launch("--no-python", "./plain.py", "x").out)
        self.assert_one_line_error(self.run_python("-m", "--no-python", "hello", expect=None), BAD_USAGE, "--no-python")
        self.environment["PYTHON_EXEC"] = "echo"
        self.assertEqual("-u hello.py x\n", self.run_python("hello.py", "x").out)

    def test_the_environment_of_a_role_and_of_a_virtual_local_rank(self):
        self.environment["CUDA_VISIBLE_DEVICES"] = "4,7"
        script = "echo $LOCAL_RANK $CUDA_VISIBLE_DEVICES $ROLE_NAME $TORCHELASTIC_ERROR_FILE > of-$RANK"
        self.launch("--nproc-per-node", 2, "--log-dir", "logs", "--role", "trainer", "--virtual-local-rank", "sh", "-c", script)
        for rank, device in enumerate((4, 7)):
            self.assertEqual(["0", str(device), "trainer", str(self.directory / "logs" / f"rank-{rank}.error.json")],
                             (self.directory / f"of-{rank}").read_text().split())

    def test_torchruns_variables_are_defaults(self):
        self.environment.update(PET_NPROC_PER_NODE="3", PET_ROLE="one", PET_NO_PYTHON="1")
        self.launch("--role", "two", "sh", "-c", "echo $ROLE_NAME > of-$RANK")
        self.assertEqual(["two\n"] * 3, [(self.directory / f"of-{rank}").read_text() for rank in range(3)])

    def show(self, *flags):
        result = self.launch("--nproc-per-node", 3, *flags, "sh", "-c", "echo out $RANK; echo err $RANK >&2")
        return [sorted(text.splitlines()) for text in (result.out, result.err)]

    def test_what_is_shown(self):
        for flags, out, err in (
                (("-t", "3", "--local-ranks-filter", "1"), ["[rank 1] out 1"], ["[rank 1] err 1"]),
                (("--tee", "1:3,2:1"), ["[rank 1] out 1", "[rank 2] out 2", "out 0"], ["[rank 1] err 1", "err 0"]),
                (("-r", "3"), [], []),
                (("-r3",), [], []),
                (("--redirects", "0:1"), [], ["err 0"]),
                (("--local_ranks_filter=2",), ["out 2"], ["err 2"]),
                (("--local-ranks-filter", "1,2"), ["[rank 1] out 1", "[rank 2] out 2"], ["[rank 1] err 1", "[rank 2] err 2"]),
                (("-t", "1", "--role", "r", "--log-line-prefix-template", "${role_name}${local_rank}/${rank}: "),
                 ["r0/0: out 0", "r1/1: out 1", "r2/2: out 2"], [])):
            with self.subTest(flags=flags):
                self.assertEqual([out, err], self.show(*flags))

    def test_lines_with_chosen_words_are_kept_once_more(self):
        self.show("--log-dir", "logs", "--duplicate-stdout-filters", "t 1,no", "--duplicate_stderr_filters", "err")
        kept = [sorted((self.directory / "logs" / f"filtered_{name}.log").read_text().splitlines())
                for name in ("stdout", "stderr")]
        self.assertEqual([["[rank 1] out 1"], [f"[rank {rank}] err {rank}" for rank in range(3)]], kept)

    def test_more_signals_are_passed_on_and_end_the_launch(self):
        script = "trap 'touch told-$RANK; exit 75' USR1; touch up-$RANK; while true; do sleep 0.02; done"
        agent = self.agent("--nproc-per-node", 2, "--signals-to-handle", "SIGTERM,SIGUSR1", "sh", "-c", script)
        self.wait_for(lambda: self.exists("up-0") and self.exists("up-1"), "the start of the ranks")
        agent.send_signal(signal.SIGUSR1)
        self.result(agent, INTERRUPTED)
        self.assertTrue(self.exists("told-0") and self.exists("told-1"))

    def test_a_shutdown_has_a_limit(self):
        script = "[ $RANK = 1 ] && { while ! [ -e up ]; do sleep 0.01; done; exit 1; }; trap '' TERM; touch up; " \
                 "while true; do sleep 0.02; done"
        result = self.launch("--nproc-per-node", 2, "--shutdown-timeout", "0.1", "sh", "-c", script, expect=FAILED)
        self.assertIn("rank 0 did not stop on SIGTERM and had to be killed", result.err)

    def test_rendezvous_settings(self):
        result = self.launch("--rdzv-conf", "timeout=9,read_timeout=3", "true")
        self.assertIn("--rdzv-conf: read_timeout has no meaning here", result.err)
        agent = self.agent("--nnodes", 2, "--node-rank", 0, "--rdzv-endpoint", f"127.0.0.1:{free_port()}",
                           "--insecure", "--rdzv_conf", "join_timeout=0.4", "true")
        self.assert_one_line_error(self.result(agent, None), FAILED, "only 1 of 2 nodes joined within 0.4 s")


if __name__ == "__main__":
    network.main()
