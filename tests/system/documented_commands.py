"""Every command that README.md, docs/ and the examples of --help show runs, and shows the bytes that they say.

A command is run as it stands, in the order of its page, but for what `short` changes: fewer steps and shorter
sequences, and `plan` where a config wants a GPU. What is not run at all is in NOT_RUN, each with its reason.
"""

import gzip
import json
import os
import pathlib
import random
import re
import shlex
import shutil
import subprocess
import sys

import small_images
import small_tokenizer
import tandem_run
from tandem_run import REPOSITORY, TandemTest

sys.path.insert(0, str(REPOSITORY / "tests" / "hub"))

import tiny_models

COMMANDS = ("train", "launch", "plan", "explain", "profile", "bench", "prepare", "evaluate", "sample", "inspect", "tokenize",
            "import", "export", "info", "convert", "compare", "status", "copy", "dash", "gc", "report", "pipeline", "sweep", "chaos", "submit", "logs", "cancel", "doctor", "calibrate")
PAGES = sorted([REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md")])

# Pattern of a command: why it is not run. Flags of all of them are checked by documentation.py.
NOT_RUN = {
    r"^scripts/(quickstart|test)": "CI itself: they install, build and test",
    r"^cmake ": "tests/system/own_model.sh does it, into a prefix of its own",
    r"^tandem chaos": "trains once for each trial; tests/recovery/chaos.py does",
    r"^tandem dash": "serves until Ctrl-C; tests/watch/dash.py and page.py ask it",
    r"^python3 bench/": "measures for minutes, some of it beside PyTorch",
    r"^tandem submit (--slurm|--kubernetes) (?!--dry-run)": "needs a cluster; tests/cluster has some",
    r"^tandem (logs|cancel|status) (JOB|4711)": "needs a job on a cluster; tests/cluster has some",
    r" RUN OUT.gguf --format gguf": "needs a run that keeps a tokenizer; the page has one, too",
    r" --nnodes ": "needs several nodes; tests/dist/nodes.py starts them",
    r" --ema$": "needs a run with train.ema; tests/dist/knobs.py has one",
    r"^tandem copy SRC DST": "needs places to copy between; tests/store/behind.py has some",
    r"s3://": "needs an S3 server; tests/store/behind.py starts one",
    r"^echo \$\?": "shows the exit code of the command before it, which a person has interrupted",
}

# Stand-ins for words in capitals, and files that a reader has.
STAND_INS = {"CONFIG": "configs/quickstart.yaml", "RUN": "runs/trained", "A": "runs/trained",
             "B": "runs/other/checkpoints/step-00000300", "ARGS...": "arguments", "RUN...": "runs/trained"}
ISAS = ("portable", "avx2", "avx512", "avx512_bf16", "amx")
TEXTS = ("book.txt", "book1.txt", "book2.txt", "my.txt")
SHORT = ("--set", "model.context=16", "--set", "train.eval_every=2", "--set", "checkpoint.every=2", "--set",
         "data.eval_samples=4")


class Command:
    def __init__(self, where, text):
        self.where, self.text, self.shown = where, text, []  # shown: the lines that follow it

    def __str__(self):
        return f"{self.where}: {self.text}"

    def error(self):
        """The line it ends with, where that is an error."""
        return self.shown[-1] if self.shown and self.shown[-1].startswith("tandem: error: ") else None

    def words(self):
        return [STAND_INS.get(word, word) for word in shlex.split(self.text)]


def as_command(line):
    """The command of a line, without prompt, comment and remark; None if it is none."""
    line = re.sub(r"\s+#\s.*|\s{2,}\(.*\)$", "", line.strip().removeprefix("$ "))
    line = re.sub(r"^build/(release/bin|own_model)/(tandem|own_model)\b", "tandem", line)
    known = r"(tandem (%s|--version)( |$)(?!:)|python3 |scripts/|cmake |echo )" % "|".join(COMMANDS)
    return line if re.match(known, line) else None


def commands_of(page):
    """In the order of the page: those of code blocks, and those within sentences.

    What a command shows is the rest of its block and, where no word is in between, the block after it.
    """
    commands, last, end = [], None, 0
    text = page.read_text()
    for found in re.finditer(r"```(\w*)\n(.*?)```|`(tandem [^`\n]+)`", text, re.S):
        language, block, inline = found.groups()
        if inline:
            if re.match(r"tandem \w+ ([^-]|--help)", inline) and "[" not in inline and as_command(inline):
                commands.append(Command(page.name, as_command(inline)))
            continue
        if text[end:found.start()].strip():
            last = None
        end = found.end()
        for line in [] if language else block.replace("\\\n", " ").splitlines():
            if as_command(line):
                last = Command(page.name, as_command(line))
                commands.append(last)
            elif last:
                last.shown.append(line)
    return commands


def device_of(words):
    for word in words:
        if word.endswith(".yaml") and (REPOSITORY / word).exists():
            if found := re.search(r"^device: (\w+)", (REPOSITORY / word).read_text(), re.M):
                return found[1]
    return "auto"


def short(words, has_cuda):
    """The same command in less time, and on any machine."""
    chosen = [word for word in words if word in COMMANDS]
    command = chosen[-1] if chosen else ""
    if device_of(words) == "cuda" and command in ("train", "profile", "bench", "plan"):
        config = next(word for word in words if word.endswith(".yaml"))
        # A plan for a GPU needs none, but a program with CUDA; without, the config is planned for CPUs.
        cpu = ["--device", "cpu", "--set", "memory.gradients=fp32", "--set", "precision=bf16"]
        return ["tandem", "plan", config, "--set", "memory.limit=1TB", *([] if has_cuda else cpu)]
    if command in ("train", "profile", "bench"):
        # A command that names the steps goes on from one that does not.
        steps = 4 if any(word.startswith("train.steps=") for word in words) else 3
        images = any(word.startswith("configs/resnet") for word in words)  # which have no context
        words = [*words, *(SHORT[2:] if images else SHORT), "--set", f"train.steps={steps}"]
    return [*words, "--steps", "1"] if command in ("profile", "bench") else words


class DocumentedCommands(TandemTest):
    @classmethod
    def setUpClass(cls):
        shared = tandem_run.temporary_directory()
        cls.addClassCleanup(shared.cleanup)
        cls.shared = pathlib.Path(shared.name)
        cls.has_cuda = "cuda not built" not in cls.output("--version")
        # A trained run, whose checkpoint of step 300 is also another's.
        cls.output("train", REPOSITORY / "configs/quickstart.yaml", "--run-dir", cls.shared / "trained", "--device", "cpu",
                   *SHORT, "--set", "train.steps=300", "--set", "checkpoint.every=300", "--set", "train.eval_every=0",
                   "--set", "model.layers=1", "--set", "model.width=32")

    @classmethod
    def output(cls, *arguments):
        done = subprocess.run([tandem_run.program(), *map(str, arguments)], text=True, capture_output=True, timeout=600,
                              stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise AssertionError(f"tandem {' '.join(map(str, arguments))}: {done.stderr}")
        return done.stdout

    def setUp(self):
        super().setUp()
        self.not_run = set()

    def place(self, name, commands):
        """A directory that looks like the repository after a build, and the quickstart, unless it is about to run."""
        place = self.directory / name
        place.mkdir()
        os.symlink(REPOSITORY / "configs", place / "configs")
        shutil.copytree(REPOSITORY / "examples", place / "examples")  # a pipeline writes beside its file
        runs = ["trained", "other"]
        if not any("train configs/quickstart.yaml" in " ".join(command.words()) for command in commands):
            runs.append("quickstart")
        for run in runs:
            shutil.copytree(self.shared / "trained", place / "runs" / run, symlinks=True)
        for text in TEXTS:
            (place / text).write_text("".join(f"Sentence {number} of {text}.\n" for number in range(400)))
        tiny_models.make("llama", place / "models/smollm2")
        small_tokenizer.write(place / "models/smollm2", words=("the",))
        shutil.copy(REPOSITORY / "tests/convert/fixtures/deepspeed_zero2.json", place / "ds_config.json")
        small_tokenizer.write(place / "path/to/model")
        (place / "web").mkdir()
        for number in range(3):
            lines = "".join(json.dumps({"text": f"Page {line} of site {number}.\n"}) + "\n" for line in range(100))
            (place / f"web/{number}.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
        small_images.write_classes(place / "photos", random.Random(1))
        (place / "script.py").write_text("import os\nprint('rank', os.environ['RANK'])\n")
        return place

    def run_all(self, name, commands):
        place, ran = self.place(name, commands), 0
        for command in commands:
            with self.subTest(command=str(command)):
                ran += self.run_one(place, command)
        return ran

    def run_one(self, place, command):
        reasons = [pattern for pattern in NOT_RUN if re.search(pattern, command.text)]
        if reasons:
            self.not_run |= set(reasons)
            return 0
        words = command.words() if command.error() else short(command.words(), self.has_cuda)
        self.assertEqual("tandem", words[0], "neither a command of tandem nor in NOT_RUN")
        shown_for = re.search(r"parameters, .* for cpu (\w+)", "\n".join(command.shown))
        isa = self.use_isa(shown_for[1]) if shown_for else None
        done = subprocess.run([tandem_run.program(), *words[1:], *(["--device", "cpu"] if isa else [])], cwd=place,
                              text=True, capture_output=True, timeout=600, stdin=subprocess.DEVNULL, errors="replace",
                              env={**os.environ, **({"TANDEM_ISA": isa} if isa else {})})
        self.check_end(command.error(), done, shlex.join(words))
        if isa:
            self.check_plan(command.shown, done.stdout, same_isa=isa == shown_for[1])
        return 1

    def check_end(self, error, done, words):
        """Done, or ended with the error that the page shows, whose figures are this machine's."""
        said = f"{words}: {done.stderr[-2000:]}"
        if not error:
            return self.assertEqual(0, done.returncode, said)
        self.assertNotEqual(0, done.returncode, said)
        self.assertEqual(*(re.sub(r"\d[\d.]*", "N", text) for text in (error, done.stderr.strip())))

    def use_isa(self, shown):
        """The instruction set of a plan that a page shows, or what this CPU has of it."""
        found = re.search(r"\(cpu (\w+)", self.output("--version"))[1]
        return shown if ISAS.index(shown) <= ISAS.index(found) else found

    def check_plan(self, shown, printed, same_isa):
        """Every line of a plan that a page shows is a line of the plan. Scratch memory depends on the instruction set."""
        found = 0
        lines = {" ".join(line.split()) for line in printed.splitlines()}
        for line in filter(str.strip, shown):
            if same_isa or not re.match(r"\S|  (workspace|total) ", line):
                found += 1
                self.assertIn(" ".join(line.split()), lines)
        self.assertGreater(found, 0)

    def test_of_every_page(self):
        ran = 0
        for page in PAGES:
            ran += self.run_all("-".join(page.relative_to(REPOSITORY).parts), commands_of(page))
        self.assertGreater(ran, 45)
        never = set(NOT_RUN) - self.not_run
        self.assertEqual(set(), never, "no page has such a command any more")

    def test_the_bytes_of_the_offloaded_config(self):
        path = REPOSITORY / "configs/llama-7b-offload.yaml"
        plan = self.tandem("plan", path, "--device", "cpu", "--set", "memory.limit=1TB").out
        host = int(re.search(r"^  host +(\d+)", plan, re.M)[1])
        self.assertIn(f"({host / 1e9:.1f} GB)", path.read_text())

    def test_of_every_help(self):
        for name in ("", *COMMANDS):
            text = self.tandem(*([name] if name else []), "--help").out
            commands = [Command(f"{name} --help", as_command(line)) for line in text.split("Example:\n")[1].splitlines()
                        if as_command(line)]
            ran = self.run_all(f"help-{name}", commands)
            if name not in ("dash", "chaos", "logs", "cancel", "copy", "gc"):  # all in NOT_RUN
                self.assertGreater(ran, 0, name)


if __name__ == "__main__":
    tandem_run.main()
