#!/usr/bin/env python3
"""Checks what docs/style.md promises about sizes: of files, functions and folders, and that nothing is written twice.

Prints one line for each thing that is too large and exits 1 if there is any. Lines that mean nothing by themselves
(blank ones, comments, includes, lone brackets) do not count where two blocks are compared.
"""

import argparse
import collections
import pathlib
import re
import sys

MOST_LINES_OF_A_FILE = 500
MOST_LINES_OF_A_FUNCTION = 100
MOST_FILES_OF_A_FOLDER = 60
MOST_LINES_TWICE = 12
CPP_SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}
SUFFIXES = CPP_SUFFIXES | {".py"}
FOLDERS = ("tandem", "tests", "bench", "examples", "docs")

NOT_FUNCTIONS = ("if", "for", "while", "switch", "catch", "return", "constexpr")


def sources(root):
    for folder in FOLDERS:
        yield from sorted(path for path in (root / folder).rglob("*") if path.suffix in SUFFIXES)


def is_test(name):
    return name.stem.endswith("_test") or name.parts[0] == "tests"


COMMENT = r"//[^\n]*|/\*.*?\*/"
STRING = r'R"\w*\(.*?\)\w*"|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\''


def without_comments(text):
    return re.sub(f"({STRING})|{COMMENT}", lambda match: match[1] or "", text, flags=re.S)


def blank_text(text):
    """The same text with comments, strings, characters and preprocessor lines as spaces, line for line."""
    def spaces(match):
        return re.sub(r"[^\n]", " ", match[0])
    text = re.sub(r"^[ \t]*#(?:\\\n|[^\n])*", spaces, text, flags=re.M)
    return re.sub(f"{COMMENT}|{STRING}", spaces, text, flags=re.S)


def is_function(head):
    """Whether a body that follows `head` (since the last ; { or }) is a function's."""
    head = head.strip()
    if not head or "(" not in head:
        return False
    depth = 0
    for i in range(len(head) - 1, -1, -1):  # the last bracket that closes at this level
        if head[i] == ")":
            depth += 1
        elif head[i] == "(":
            depth -= 1
            if depth == 0:
                name = re.search(r"([\w~:]+|operator\S+)\s*$", head[:i])
                if name and name[1] in NOT_FUNCTIONS:
                    return False
                return bool(name)
    return False


def functions(text):
    """Pairs of the first line of each function and how many lines it has, from its head to its last bracket."""
    text = blank_text(text)
    found = []
    stack = []  # of open brackets: whether a function begins, its first line, where the head began
    since, line = 0, 1
    for i, char in enumerate(text):
        if char == "\n":
            line += 1
        elif char == "{":
            head = text[since:i]
            is_value = i > 0 and re.match(r"[\w>]", text[i - 1])  # a member's value: name_{2}
            begins = not is_value and not any(kind for kind, _, _ in stack) and is_function(head)
            stack.append((begins, line - head.lstrip().count("\n"), since if is_value else None))
            since = i + 1
        elif char == "}" and stack:
            begins, first, before = stack.pop()
            since = i + 1 if before is None else before
            if begins:
                found.append((first, line - first + 1))
        elif char == ";":
            since = i + 1
    return found


def python_functions(text):
    lines = text.splitlines()
    for i, line in enumerate(lines):
        head = re.match(r"(\s*)def ", line)
        if not head:
            continue
        last = i
        for j in range(i + 1, len(lines)):
            if lines[j].strip() and len(lines[j]) - len(lines[j].lstrip()) <= len(head[1]):
                break
            last = j if lines[j].strip() else last
        yield i + 1, last - i + 1


def meaningful_lines(text, suffix):
    """Pairs of a line's number and its text, for those that say something."""
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith(("//", "#include", "#pragma", "import ", "from ", "namespace ")):
            continue
        if suffix == ".py" and line.startswith("#") or re.fullmatch(r"[\]\[(){};,]+", line):
            continue
        yield number, line


def repeated(files):
    """For each block that stands twice: (lines, path, line, other path, other line). `files` are pairs of path and text."""
    size = MOST_LINES_TWICE + 1
    seen, found = {}, {}
    for path, text in files:
        lines = list(meaningful_lines(text, path.suffix))
        for i in range(len(lines) - size + 1):
            key = tuple(line for _, line in lines[i:i + size])
            if key not in seen:
                seen[key] = (path, i, lines[i][0])
                continue
            other, j, at = seen[key]
            if other == path and i - j < size:
                continue
            start = (path, other, i - j)
            if start in found and found[start][1] == i - 1:
                first, _, where, there = found[start]
                found[start] = (first, i, where, there)
            else:
                found[start] = (i, i, lines[i][0], at)
    for (path, other, _), (first, last, where, there) in found.items():
        yield size + last - first, path, where, other, there


def check(root):
    """Yields a line for each thing that is too large."""
    folders = collections.Counter()
    texts = {path: path.read_text(errors="replace") for path in sources(root)}
    for path, text in texts.items():
        name = path.relative_to(root)
        folders[name.parent] += 1
        count = text.count("\n")
        if count > MOST_LINES_OF_A_FILE:
            yield f"{name}: {count} lines; a file has at most {MOST_LINES_OF_A_FILE}: split it by idea"
        bodies = functions(text) if path.suffix in CPP_SUFFIXES else python_functions(text)
        for line, length in bodies:
            if length > MOST_LINES_OF_A_FUNCTION:
                yield f"{name}:{line}: a function of {length} lines; at most {MOST_LINES_OF_A_FUNCTION}"
    for folder, count in folders.items():
        if count > MOST_FILES_OF_A_FOLDER:
            yield f"{folder}: {count} files; a folder has at most {MOST_FILES_OF_A_FOLDER}: give it rooms"
    for tests in (False, True):
        chosen = [(path, text) for path, text in texts.items() if is_test(path.relative_to(root)) == tests]
        for lines, path, where, other, there in repeated(chosen):
            yield (f"{path.relative_to(root)}:{where}: {lines} lines that also stand in {other.relative_to(root)}:{there}; "
                   f"at most {MOST_LINES_TWICE}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2])
    problems = list(check(parser.parse_args().root))
    for problem in problems:
        print(problem)
    print(f"{len(problems)} things are too large" if problems else "files, functions and folders have sizes for a reader")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
