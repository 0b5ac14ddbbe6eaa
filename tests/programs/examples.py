"""The numbered examples: each is one file of at most 80 lines, and prints what the comment at its head promises.

The head's "Expected output" is compared line by line. `...` stands for text that varies, such as times and digits
that differ between processors. Examples of workers run as two processes.

Keras and PyTorch are not run here but in export_slow.py. Of example 11 the test checks the tensors' names and shapes,
that the values, read with Keras' layouts, give the output that the program prints, and the architecture next to them.
"""

import collections
import json
import math
import pathlib
import re
import struct
import subprocess
import unittest

import contract

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
MAX_LINES = 80
WORKERS = {"multi_worker", "rendezvous", "two_inputs_multi_worker"}


def numbered():
    return sorted(EXAMPLES.glob("[0-9][0-9]_*.cpp"))


def name_of(path):
    return path.stem.partition("_")[2]


def expected_output(path):
    """The lines below "// Expected output:", up to the end of the comment or an empty line of it."""
    found = re.search(r"^// Expected output:\n((?://   .*\n)+)", path.read_text("utf-8"), re.MULTILINE)
    return [line.removeprefix("//").strip() for line in found[1].splitlines()] if found else []


def matches(pattern, line):
    return re.fullmatch(".*".join(map(re.escape, pattern.split("..."))), line) is not None


class Examples(contract.Case):
    def output(self, name, *arguments):
        start = [contract.BIN / "lockstep-run", "-n", "2"] if name in WORKERS else []
        done = subprocess.run([*start, contract.BIN / name, *arguments], capture_output=True, text=True, cwd=self.dir,
                              timeout=300)
        self.assertEqual(done.returncode, 0, f"{name}: {done.stdout}{done.stderr}")
        lines = [line.removeprefix("[0]").strip() for line in done.stdout.splitlines()]  # lockstep-run names the rank
        return [line for line in lines if line]

    def test_numbers_are_unique(self):
        numbers = [path.name[:2] for path in numbered()]
        self.assertEqual(len(numbers), len(set(numbers)))
        self.assertTrue(numbers)

    def test_each_is_one_short_file(self):
        for path in numbered():
            with self.subTest(path.name):
                text = path.read_text("utf-8")
                self.assertLessEqual(len(text.splitlines()), MAX_LINES)
                self.assertEqual(re.findall(r'^#include "', text, re.MULTILINE), [], "includes a support header")

    def test_benchmarks_programs_and_examples_have_different_names(self):
        benchmarks, programs, examples = ([re.sub(r"^\d\d_", "", path.stem) for path in (EXAMPLES.parent / folder).glob("*.cpp")]
                                          for folder in ("benchmarks", "programs", "examples"))
        self.assertIn("workers", benchmarks)
        self.assertIn("mnist", programs)
        self.assertIn("quickstart", examples)
        self.assertEqual([name for name, count in collections.Counter(benchmarks + programs + examples).items() if count > 1], [])

    def test_each_prints_what_its_head_promises(self):
        for path in numbered():
            with self.subTest(path.name):
                expected, output = expected_output(path), self.output(name_of(path))
                self.assertTrue(expected, "no expected output in its head")
                self.assertEqual(len(expected), len(output), "\n".join(output))
                for pattern, line in zip(expected, output):
                    self.assertTrue(matches(pattern, line), f"expected {pattern!r}, printed {line!r}")

    def test_a_pattern_matches_whole_lines(self):
        self.assertTrue(matches("loss ...", "loss 0.25"))
        self.assertTrue(matches("pi (3.1...)", "pi (3.1416)"))
        self.assertFalse(matches("pi (3.1...)", "pi (3.2416)"))
        self.assertFalse(matches("loss: yes", "loss: yes, no"))

    def test_the_weights_for_python(self):
        path = self.dir / "w.safetensors"
        output = self.output("weights_in_python", path)
        tensors = contract.safetensors(path)
        shapes = {"conv2d/bias": [8], "conv2d/kernel": [3, 3, 1, 8], "dense/bias": [10], "dense/kernel": [5408, 10]}
        self.assertEqual({name: entry["shape"] for name, (entry, _) in tensors.items()}, shapes)
        for name, (entry, data) in tensors.items():
            self.assertEqual(entry["dtype"], "F32", name)
            self.assertEqual(len(data), 4 * math.prod(entry["shape"]), name)
        w = {name: struct.unpack(f"<{len(data) // 4}f", data) for name, (_, data) in tensors.items()}
        printed = [float(number) for number in output[-1].partition(": ")[2].split()]
        # An image of ones: each output of the convolution is the sum of its kernel, at all 26 x 26 places.
        channels = [sum(w["conv2d/kernel"][c::8]) + w["conv2d/bias"][c] for c in range(8)]
        self.assertEqual(len(printed), 10)
        for k, found in enumerate(printed):
            rows = w["dense/kernel"][k::10]  # in Keras' order, (place, channel)
            wanted = sum(value * channels[row % 8] for row, value in enumerate(rows)) + w["dense/bias"][k]
            self.assertAlmostEqual(found, wanted, delta=1e-3)
        architecture = json.loads((self.dir / "w.json").read_text("utf-8"))
        self.assertEqual({p["name"]: p["shape"] for layer in architecture["layers"] for p in layer["parameters"]}, shapes)


if __name__ == "__main__":
    unittest.main(verbosity=1)
