#!/usr/bin/env python3
"""Checks that a program fails to compile, and how.

The case begins with `// expect: <sentence>`; a long sentence goes on in the comment lines that
follow at once. The compiler must refuse it with exactly one error, and the sentence must stand
within the first ten lines of its output.
"""
import argparse
import itertools
import pathlib
import re
import subprocess
import sys

FLAGS = ["-std=c++20", "-fsyntax-only", "-fdiagnostics-color=never"]
LINES = 10


def sentence_of(case: str) -> str:
    comment = [line[2:].strip() for line in
               itertools.takewhile(lambda line: line.startswith("//"), case.splitlines())]
    text = " ".join(comment)
    if not text.startswith("expect: "):
        sys.exit("the case does not begin with '// expect: <sentence>'")
    return text.removeprefix("expect: ")


def complaints(code: int, output: str, sentence: str) -> list[str]:
    if code == 0:
        return ["it compiles"]
    found = []
    errors = [line for line in output.splitlines() if re.search(r"\berror:", line)]
    if len(errors) != 1:
        found.append(f"{len(errors)} errors instead of one")
    where = [n for n, line in enumerate(output.splitlines(), 1) if sentence in line]
    if not where:
        found.append(f"the output does not say '{sentence}'")
    elif where[0] > LINES:
        found.append(f"the sentence stands in line {where[0]}, not within the first {LINES}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", type=pathlib.Path)
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--include", action="append", default=[])
    options = parser.parse_args()
    sentence = sentence_of(options.case.read_text(encoding="utf-8"))
    command = [options.compiler, *FLAGS, *(f"-I{path}" for path in options.include), options.case]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    found = complaints(result.returncode, result.stdout, sentence)
    if found:
        print(result.stdout)
        sys.exit(f"{options.case.name}: " + "; ".join(found))


if __name__ == "__main__":
    main()
