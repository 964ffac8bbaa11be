#!/usr/bin/env python3
"""check_house.py sees what is too large."""

import pathlib
import tempfile
import unittest

import check_house

LONG = "".join(f"  call({i});\n" for i in range(120))


def function(name, body):
    return f"void {name}(int a) {{\n{body}}}\n"


class House(unittest.TestCase):
    def check(self, **files):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in files.items():
                file = root / "tandem" / name.replace("__", "/").replace("_cpp", ".cpp").replace("_py", ".py")
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
            return list(check_house.check(root))

    def test_small_ones_pass(self):
        self.assertEqual([], self.check(a_cpp=function("f", "  call(1);\n"), b_py="def f():\n    pass\n"))

    def test_a_long_file(self):
        self.assertIn("501 lines", self.check(a_cpp="int a;\n" * 501)[0])

    def test_a_long_function_wherever_it_stands(self):
        for text in (function("f", LONG), "namespace a {\n" + function("f", LONG) + "}\n",
                     "struct A {\n  A() : a_(1), b_{2} {\n" + LONG + "  }\n};\n",
                     "auto f(int a) const -> std::vector<int> {\n" + LONG + "}\n"):
            self.assertEqual(1, len([line for line in self.check(a_cpp=text) if "a function of" in line]), text[:60])
        self.assertIn("a_py" .replace("_", "."), self.check(a_py="def f():\n" + LONG.replace(";", ""))[0])

    def test_a_long_class_is_no_function(self):
        members = "".join(f"  int f{i}(int a) {{ return {i}; }}\n" for i in range(120))
        self.assertEqual([], self.check(a_cpp=f"#if defined(X)\nclass A {{\n{members}}};\n#endif\n"))

    def test_a_block_that_stands_twice(self):
        block = "".join(f"  call({i});\n" for i in range(13))
        found = self.check(a_cpp=function("f", block), b_cpp=function("g", "  other();\n" + block))
        self.assertEqual(1, len(found))
        self.assertIn("tandem/b.cpp:3: 13 lines that also stand in tandem/a.cpp:2", found[0])
        short = "".join(f"  call({i});\n" for i in range(12))
        self.assertEqual([], self.check(a_cpp=function("f", short), b_cpp=function("g", short)))

    def test_a_block_twice_in_one_file(self):
        block = "".join(f"  call({i});\n" for i in range(20))
        self.assertIn("20 lines", self.check(a_cpp=function("f", block) + function("g", block))[0])

    def test_a_full_folder(self):
        self.assertIn("61 files", self.check(**{f"x__f{i}_cpp": f"int a{i};\n" for i in range(61)})[0])


if __name__ == "__main__":
    unittest.main()
