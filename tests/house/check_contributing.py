#!/usr/bin/env python3
"""Checks the lists of files in CONTRIBUTING.md against the sources.

Each list belongs to a real example: an op, an optimizer, a model. The sources that name the example, comments and tests
apart, are exactly those of its list, and no more than the page promises.
"""

import argparse
import pathlib
import re
import sys

import check_house

# What stands in the page before a list: the example's words in the sources, and how many files there may be.
HEAD = re.compile(r"^Files of (?P<name>[^:]+), at most (?P<most>\d+), found by `(?P<words>[^`]+)`:$")
ITEM = re.compile(r"^- `(?P<path>[^`]+)`")


def read_lists(text):
    """Yields (name, words, most, paths)."""
    found = None
    for line in text.splitlines() + [""]:
        if head := HEAD.match(line):
            found = (head["name"], head["words"], int(head["most"]), [])
        elif found and (item := ITEM.match(line)):
            found[3].append(item["path"])
        elif found and found[3] and not line.startswith("  "):
            yield found
            found = None


def files_that_name(root, words):
    pattern = re.compile(words)
    for path in sorted((root / "tandem").rglob("*")):
        name = path.relative_to(root)
        if path.suffix not in check_house.CPP_SUFFIXES or check_house.is_test(name):
            continue
        if pattern.search(check_house.without_comments(path.read_text())) or pattern.search(path.stem):
            yield str(name)


def check(root):
    lists = list(read_lists((root / "CONTRIBUTING.md").read_text()))
    if len(lists) < 5:
        yield f"CONTRIBUTING.md: {len(lists)} lists of files were found, expected at least 5"
    for name, words, most, paths in lists:
        found = list(files_that_name(root, words))
        for path in sorted(set(found) - set(paths)):
            yield f"CONTRIBUTING.md: {path} names {name} and is not in its list"
        for path in sorted(set(paths) - set(found)):
            yield f"CONTRIBUTING.md: {path} is in the list of {name} and does not name it"
        if len(paths) > most:
            yield f"CONTRIBUTING.md: {name} has {len(paths)} files, more than the {most} that are promised"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2])
    problems = list(check(parser.parse_args().root))
    for problem in problems:
        print(problem)
    print("the lists of CONTRIBUTING.md are true" if not problems else f"{len(problems)} differences")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
