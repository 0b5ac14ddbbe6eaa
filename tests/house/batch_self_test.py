#!/usr/bin/env python3
"""Tests ../support/batch.py: what it writes compiles with the lines and the file names of the sources.
Usage: batch_self_test.py COMPILER"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

BATCH = pathlib.Path(__file__).resolve().parents[1] / "support" / "batch.py"
COMPILER = sys.argv.pop() if len(sys.argv) > 1 else "g++"
SOURCE = """// A comment
#include <cstddef>

namespace {
struct Same { int %s; };
const Same same{1};
}  // namespace

int %s() { return same.%s; }
"""


class Batch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder.name)
        for name in ("one", "two"):
            pathlib.Path(f"{name}.cpp").write_text(SOURCE % (name, "value", name))

    def batch(self):
        return subprocess.run([sys.executable, "-B", BATCH, "unit.cpp", "(extern |#define )", "one.cpp", "two.cpp"],
                              capture_output=True, text=True)

    def compile(self):
        return subprocess.run([COMPILER, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "unit.cpp"],
                              capture_output=True, text=True)

    def test_two_sources_can_use_the_same_names(self):
        self.assertEqual(self.batch().returncode, 0)
        compiled = self.compile()
        self.assertEqual((compiled.returncode, compiled.stderr), (0, ""))

    def test_an_error_names_the_source_and_its_line(self):
        with open("two.cpp", "a") as file:
            file.write("int wrong = none;\n")
        self.assertEqual(self.batch().returncode, 0)
        self.assertRegex(self.compile().stderr, r"(?m)^two\.cpp:10:13: error: .*none")

    def test_a_source_that_must_be_alone_is_refused(self):
        with open("two.cpp", "a") as file:
            file.write("extern int other;\n")
        refused = self.batch()
        self.assertEqual(refused.returncode, 1)
        self.assertRegex(refused.stderr, r"^two\.cpp has a line that matches .*: run cmake again\n$")
        self.assertFalse(pathlib.Path("unit.cpp").exists())


if __name__ == "__main__":
    unittest.main()
