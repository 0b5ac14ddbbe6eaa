#!/usr/bin/env python3
"""Tests run.py: a good case passes, and each kind of bad case is reported with a specific message."""
import argparse
import pathlib
import subprocess
import sys
import tempfile

import run

GOOD = '// expect: lockstep::Dense: no units; give a number\nstatic_assert(sizeof(int) == 0, "lockstep::Dense: no units; give a number");\n'
CASES = {  # name: (source, expected message of the runner; None for a good case)
    "good": (GOOD, None),
    "folded": (GOOD.replace("units; give", "units;\n// give", 1), None),
    "compiles": ("// expect: x\nint main() {}\n", "it compiles"),
    "wrong sentence": (GOOD.replace("expect: ", "expect: not "), "the output lacks"),
    "two errors": (GOOD + "int x = undeclared;\n", "2 errors"),
    "flags": ("// flags: -DOWN\n" + GOOD.replace("static_assert", "#ifdef OWN\nstatic_assert") + "#endif\n", None),
    "no sentence": ("int x = undeclared;\n", "does not begin"),
    "too late": (GOOD.replace("\n", "\n" + "#warning talk\n" * 12, 1), "not within the first"),
}

OTHER = GOOD.replace("Dense", "Pool")
GROUPS = {  # name: (sources, the cases that the runner reports)
    "both pass": ([GOOD, OTHER], []),
    "one compiles": ([GOOD, "// expect: x\nint number;\n", OTHER], ["case1.cpp: it compiles"]),
    "one has two errors": ([GOOD + "int x = undeclared;\n", OTHER], ["case0.cpp: 2 errors instead of one"]),
    "equal sentences": ([GOOD, GOOD], []),
}

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--compiler", default="g++")
options = parser.parse_args()
runner = pathlib.Path(__file__).with_name("run.py")
failures = []
for name, (source, words) in CASES.items():
    with tempfile.TemporaryDirectory() as folder:
        case = pathlib.Path(folder, "case.cpp")
        case.write_text(source, encoding="utf-8")
        result = subprocess.run([sys.executable, runner, "--compiler", options.compiler, case],
                                capture_output=True, text=True)
    good = result.returncode == 0 if words is None else \
        result.returncode == 1 and words in result.stderr
    if not good:
        failures.append(f"{name}: exit code {result.returncode}\n{result.stdout}{result.stderr}")
for name, (sources, reported) in GROUPS.items():
    with tempfile.TemporaryDirectory() as folder:
        cases = [pathlib.Path(folder, f"case{i}.cpp") for i in range(len(sources))]
        for case, source in zip(cases, sources):
            case.write_text(source, encoding="utf-8")
        result = subprocess.run([sys.executable, runner, "--compiler", options.compiler, "--include", runner.parents[2] / "include",
                                 "--group", "other", *cases], capture_output=True, text=True)
    if result.returncode != (1 if reported else 0) or result.stderr.splitlines() != reported or "as one unit" not in result.stdout:
        failures.append(f"{name}: exit code {result.returncode}\n{result.stdout}{result.stderr}")
build = runner.with_name("CMakeLists.txt").read_text(encoding="utf-8")
if f"group IN ITEMS {' '.join(run.GROUPS)})" not in build:
    failures.append("CMakeLists.txt does not run each group of run.py")
sys.exit("\n".join(failures) or None)
