#!/usr/bin/env python3
"""check_layers.py has to fail on each kind of wrong include, and only on those."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.dont_write_bytecode = True
import check_layers  # noqa: E402

TABLE = """
| folder | what lives there | may include |
|---|---|---|
| `tandem/base` | errors | nothing |
| `tandem/ir` | graphs | base |
| `tandem/comm` | ranks | base |
| `tandem/kernels/cpu`, `tandem/kernels/cuda` | kernels | ir |
| `tandem/train` | loop | all of the above |
| `tandem/dash` | page | base, comm |
| `tandem/cli` | commands | all |
"""


def check(files):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for path, includes in files.items():
            source = root / "tandem" / path
            source.parent.mkdir(parents=True, exist_ok=True)
            source.write_text("".join(f'#include "tandem/{include}"\n' for include in includes))
        return list(check_layers.wrong_includes(root, check_layers.read_layers(TABLE)))


class Includes(unittest.TestCase):
    def test_accepts_own_layer_lower_layers_and_what_those_may_include(self):
        self.assertEqual(check({"ir/a.cpp": ["ir/a.h", "base/error.h"]}), [])
        self.assertEqual(check({"kernels/cpu/a.cpp": ["base/error.h", "kernels/cpu/b.h"]}), [])
        self.assertEqual(check({"train/a.cpp": ["kernels/cuda/b.h", "comm/c.h"]}), [])
        self.assertEqual(check({"cli/a.cpp": ["dash/b.h", "train/c.h"]}), [])

    def test_refuses_an_arrow_that_points_up(self):
        self.assertEqual(
            check({"ir/a.cpp": ["base/error.h", "train/loop.h"]}),
            ["tandem/ir/a.cpp:2: includes tandem/train/loop.h, but ir may include only base"])

    def test_refuses_a_sibling(self):
        self.assertEqual(len(check({"kernels/cpu/a.h": ["kernels/cuda/b.h"]})), 1)
        self.assertEqual(len(check({"comm/a.h": ["ir/b.h"]})), 1)
        self.assertEqual(len(check({"train/a.h": ["dash/b.h"]})), 1)

    def test_refuses_folders_that_have_no_row(self):
        self.assertEqual(len(check({"extra/a.cpp": []})), 1)
        self.assertEqual(len(check({"ir/a.cpp": ["extra/b.h"]})), 1)

    def test_lets_tests_include_any_layer_but_no_unknown_one(self):
        self.assertEqual(check({"ir/a_test.cpp": ["train/loop.h"]}), [])
        self.assertEqual(len(check({"ir/a_test.cpp": ["extra/b.h"]})), 1)

    def test_sees_includes_with_unusual_spaces(self):
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder) / "tandem" / "base" / "a.h"
            source.parent.mkdir(parents=True)
            source.write_text('  #  include   "tandem/ir/graph.h"\n')
            layers = check_layers.read_layers(TABLE)
            self.assertEqual(len(list(check_layers.wrong_includes(pathlib.Path(folder), layers))), 1)


class Table(unittest.TestCase):
    def refused(self, markdown):
        with self.assertRaises(check_layers.TableError):
            check_layers.read_layers(markdown)

    def test_is_refused_when_absent_unknown_upward_or_double(self):
        self.refused("no table here")
        self.refused("| `tandem/ir` | graphs | bass |")
        self.refused("| `tandem/ir` | graphs | base |\n| `tandem/base` | errors | nothing |")
        self.refused("| `tandem/base` | a | nothing |\n| `tandem/base` | b | nothing |")


if __name__ == "__main__":
    unittest.main()
