#!/usr/bin/env python3
"""Checks every #include "tandem/..." against the table of layers in docs/architecture.md.

The table is the only statement of the rules: a row names its folders and what they may include. That
holds transitively (who may include runtime may include what runtime may), and arrows point down the
list: a row may name only rows above it. Tests beside the sources (x_test.cpp, x_test.h) may include any
layer. Prints one line per wrong include and exits 1 if there is any.
"""

import argparse
import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s+"tandem/([^"]+)"')
FOLDER = re.compile(r"`tandem/([a-z0-9_/]+)`")
SOURCE_SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}
TEST_SUFFIXES = ("_test.cpp", "_test.h")


class TableError(Exception):
    """The table itself is wrong or absent."""


def read_rows(markdown):
    """Yields (folders, may include) of each row of the table, as text."""
    for line in markdown.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.lstrip().startswith("|") and len(cells) == 3 and FOLDER.search(cells[0]):
            yield FOLDER.findall(cells[0]), cells[2].replace("`", "")


def read_layers(markdown):
    """Returns {layer: set of layers it may include}, itself and the transitive ones among them."""
    allowed = {}
    open_rows = []  # layers that may include all, which is known only at the end
    for folders, text in read_rows(markdown):
        above = set(allowed)
        if text == "all":
            open_rows += folders
            direct = above
        elif text == "all of the above":
            direct = above
        elif text == "nothing":
            direct = set()
        else:
            direct = {name.strip() for name in text.split(",")}
        for name in sorted(direct - above):
            raise TableError(f"tandem/{folders[0]} may include '{name}', which is no layer above it")
        reachable = direct.union(*(allowed[name] for name in direct))
        for folder in folders:
            if folder in allowed:
                raise TableError(f"tandem/{folder} has two rows")
            allowed[folder] = reachable | {folder}
    if not allowed:
        raise TableError("no table of layers found; expected rows such as | `tandem/base` | ... | nothing |")
    for folder in open_rows:
        allowed[folder] = set(allowed)
    return allowed


def layer_of(path, layers):
    """The layer a path below tandem/ belongs to: the longest folder that is one, or None."""
    parents = [parent.as_posix() for parent in pathlib.PurePosixPath(path).parents]
    return next((parent for parent in parents if parent in layers), None)


def wrong_includes(root, layers):
    """Yields one message for each include that the table does not allow."""
    for source in sorted((root / "tandem").rglob("*")):
        if source.suffix not in SOURCE_SUFFIXES:
            continue
        path = source.relative_to(root / "tandem").as_posix()
        layer = layer_of(path, layers)
        if layer is None:
            yield f"tandem/{path}:1: this folder has no row in the table of layers"
            continue
        is_test = path.endswith(TEST_SUFFIXES)
        for number, line in enumerate(source.read_text(encoding="utf-8").splitlines(), start=1):
            match = INCLUDE.match(line)
            if not match:
                continue
            target = layer_of(match.group(1), layers)
            where = f"tandem/{path}:{number}: includes tandem/{match.group(1)}"
            if target is None:
                yield f"{where}, which is in no layer"
            elif not is_test and target not in layers[layer]:
                others = ", ".join(sorted(layers[layer] - {layer})) or "nothing"
                yield f"{where}, but {layer} may include only {others}"


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=root, help="repository to check")
    root = parser.parse_args().root
    table = root / "docs" / "architecture.md"
    try:
        layers = read_layers(table.read_text(encoding="utf-8"))
    except (OSError, TableError) as error:
        sys.exit(f"{table}: {error}")
    messages = list(wrong_includes(root, layers))
    print("\n".join(messages) if messages else f"includes of {len(layers)} layers follow the table")
    return 1 if messages else 0


if __name__ == "__main__":
    sys.exit(main())
