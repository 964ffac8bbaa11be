"""What README.md and docs/ name exists: links, files, commands, flags and config keys."""

import re
import subprocess
import sys

import tandem_run
from tandem_run import GPT2, LLAMA, MLP, RESNET, REPOSITORY, TandemTest, config

COMMANDS = ("train", "launch", "plan", "explain", "profile", "bench", "prepare", "evaluate", "sample", "inspect", "tokenize",
            "import", "export", "info", "convert", "compare", "copy", "dash", "gc", "report", "status", "pipeline", "sweep", "chaos", "submit", "logs", "cancel", "doctor", "calibrate")


class Documentation(TandemTest):
    PAGES = sorted([REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *(REPOSITORY / "docs").rglob("*.md")])
    MADE_BY_USERS = ("build/", "runs/", "models/", "data/", "checkpoints/", "/", "http", "step.json", "~")

    def code_pieces(self, page):
        text = page.read_text()
        blocks = re.findall(r"```\w*\n(.*?)```", text, re.S)
        return blocks + re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.S))

    def code_words(self, page):
        """Words in `inline code` and code blocks, without punctuation around them."""
        for piece in self.code_pieces(page):
            for word in piece.split():
                yield word.strip("(),;:[]\"'")

    def test_links_lead_somewhere(self):
        for page in self.PAGES:
            for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
                if target.startswith("http"):
                    continue
                with self.subTest(page=page.name, link=target):
                    self.assertTrue((page.parent / target).exists())

    def test_files_exist(self):
        found = 0
        for page in self.PAGES:
            for word in self.code_words(page):
                path = word.split("=")[-1]
                if not re.fullmatch(r"[\w.-]+(/[\w.-]+)+/?", path) or path.startswith(self.MADE_BY_USERS):
                    continue
                known_place = (REPOSITORY / path.split("/")[0]).is_dir() or (
                    REPOSITORY / "tandem" / path.split("/")[0]).is_dir()
                if not known_place:
                    continue
                found += 1
                with self.subTest(page=page.name, path=path):
                    self.assertTrue((REPOSITORY / path).exists() or (REPOSITORY / "tandem" / path).exists())
        self.assertGreater(found, 30)

    def command_lines(self, page):
        """Pairs of a program and its words: each `tandem COMMAND ...` and `python3 FILE ...` in code."""
        for line in [line for piece in self.code_pieces(page) for line in piece.replace("\\\n", " ").splitlines()]:
            used = re.search(r"(?:^|[/ ])tandem ([a-z]+)\b(?!:)(.*)", line)
            if used:
                yield used[1], used[2].split("#")[0].split()
            used = re.search(r"\bpython3 (\w+/\w+\.py)(.*)", line)
            if used:
                yield used[1], used[2].split()

    def test_flags_and_commands_exist(self):
        helps = {command: self.tandem(command, "--help").out for command in COMMANDS}
        for page in self.PAGES:
            for script in {program for program, _ in self.command_lines(page) if program.endswith(".py")}:
                helps[script] = subprocess.run([sys.executable, REPOSITORY / script, "--help"], text=True, check=True,
                                               stdout=subprocess.PIPE).stdout
        flags = {program: set(re.findall(r"--[a-z][a-z-]*", text)) | {"--help"} for program, text in helps.items()}
        known = set().union(*flags.values()) | {"--version"}
        found = 0
        for page in self.PAGES:
            for program, words in self.command_lines(page):
                with self.subTest(page=page.name, program=program):
                    self.assertIn(program, helps)
                for word in words:
                    if program == "launch" and word in COMMANDS:
                        program = word  # what each rank runs; the flags after it are its own
                    if word == "--" or word.endswith(".py"):
                        break
                    if flag := re.match(r"\[?(--[a-z][a-z-]*)", word):
                        found += 1
                        with self.subTest(page=page.name, program=program, flag=flag[1]):
                            self.assertIn(flag[1], flags[program])
            for line in page.read_text().splitlines():
                if re.search(r"\b(cmake|ctest|apt|git|ninja|scripts/\w+|tests/[\w/]+\.py) --?\w", line) or " -- " in line:
                    continue  # another program's flags
                for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]*", line):
                    with self.subTest(page=page.name, flag=flag):
                        self.assertIn(flag, known)
        self.assertGreater(found, 40)

    def test_keys_exist(self):
        choices = [{"optimizer": optimizer} for optimizer in ("adamw", "sgd", "lion", "muon", "lars", "adafactor")]
        choices += [{"schedule": "wsd"}, {"schedule": "step"}, {"schedule": "points", "points": [[0, 1]], "warmup": 0}]
        keys = {line.split()[0] for model in (GPT2, LLAMA, RESNET, MLP) for train in choices
                for line in self.tandem("explain", self.write_config(config(model, train=train))).out.splitlines()}
        sections = {key.split(".")[0] for key in keys if "." in key}
        found = 0
        for page in self.PAGES:
            for word in self.code_words(page):
                key = re.match(r"([a-z]+\.[a-z_0-9]+)(?:[=:]|$)", word)
                if not key or key[1].split(".")[0] not in sections:
                    continue
                if key[1].endswith((".yaml", ".json", ".md", ".cpp", ".h", ".safetensors")):
                    continue
                found += 1
                with self.subTest(page=page.name, key=key[1]):
                    self.assertIn(key[1], keys)
        self.assertGreater(found, 60)

    def test_every_shipped_config_plans(self):
        configs = sorted((REPOSITORY / "configs").glob("*.yaml"))
        self.assertGreater(len(configs), 4)
        without_cuda = "cuda not built" in self.tandem("--version").out
        for path in configs:
            with self.subTest(config=path.name):
                if without_cuda and "device: cuda" in path.read_text():
                    self.refuse(tandem_run.BAD_USAGE, ["device: cuda", "built without CUDA"], "plan", path)
                else:
                    self.tandem("plan", path)

    def test_no_placeholder_is_left(self):
        for page in self.PAGES:
            words = re.findall(r"\b(?:TODO|FIXME|XXX|TBD|[A-Z]+_PICTURE|PLACEHOLDER)\b", page.read_text())
            self.assertEqual([], words, page.name)


if __name__ == "__main__":
    tandem_run.main()
