#!/usr/bin/env python3
"""Measures the cost of compiling one unit of the build: user CPU seconds and peak memory.

Takes the command of the first object whose path matches a regular expression (default: ResNet-56
of programs/cifar10.cpp in float32) from compile_commands.json of a build folder, gives it
--optimize instead of its -O, and compiles it --repeat times; the object is deleted. User seconds
are those of the compiler and its children, MB (10^6 bytes) the peak resident size of the largest
process.

The bounds, 15 s and 1.2 GB, are for -O2 and for the smallest time of the runs. Exit code 1 if one
is missed or the unit does not compile.
"""

import argparse
import json
import os
import re
import shlex
import statistics
import sys
import tempfile
from pathlib import Path

from compile_cost import REPOSITORY, compile_once, first_line

SECONDS, MEGABYTES, OPTIMIZE = 15, 1200, "-O2"


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("object", nargs="?", default=r"cifar10_56_float32\.dir/cifar10\.cpp",
        help="regular expression, searched in the path of the object")
    add("--build", type=Path, default=REPOSITORY / "build/release", help="build/release")
    add("--optimize", default=OPTIMIZE, help="default: -O2; write --optimize=-O0 for another")
    add("--repeat", type=int, default=3, help="compilations (3)")
    options = parser.parse_args()
    if options.repeat < 1:
        parser.error("--repeat: at least 1")
    try:
        options.object = re.compile(options.object)
    except re.error as error:
        parser.error(f"object: {error}")
    return options


def object_of(words):
    return words[words.index("-o") + 1] if "-o" in words[:-1] else ""


def unit(entries, pattern):
    """Path of the first object that matches, its command as words, and the command's folder."""
    for entry in entries:
        words = entry.get("arguments") or shlex.split(entry["command"])
        if pattern.search(object_of(words)):
            return object_of(words), words, entry["directory"]
    return None


def changed(words, optimize, target):
    """The command with another object, and `optimize` instead of each -O."""
    words = [word for word in words if not re.fullmatch("-O([0-9sgz]|fast)?", word)]
    words[words.index("-o") + 1] = str(target)
    return [words[0], optimize, *words[1:]]


def verdict_lines(optimize, seconds, megabytes):
    if optimize != OPTIMIZE:
        yield f"The bounds are for {OPTIMIZE}."
        return
    for what, value, bound in (("user seconds", seconds, SECONDS), ("peak MB", megabytes, MEGABYTES)):
        met = "met" if value <= bound else "MISSED"
        yield f"{what}: {value:.1f}, at most {bound}: {met}."


def main():
    options = parse()
    database = options.build / "compile_commands.json"
    try:
        found = unit(json.loads(database.read_text()), options.object)
    except OSError as error:
        sys.exit(f"unit_cost.py: {error}; configure the build first")
    if found is None:
        sys.exit(f"unit_cost.py: no object of {database} matches {options.object.pattern}")
    name, words, directory = found
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(directory)
        command = changed(words, options.optimize, Path(folder) / "object.o")
        for _ in range(options.repeat):
            _, _, user, peak, code, text = compile_once(command)
            if code:
                sys.exit(f"unit_cost.py: exit code {code}\n{text}")
            runs.append((user, peak / 1e6))
    seconds, megabytes = min(user for user, _ in runs), max(peak for _, peak in runs)
    print("| object | user s, min | user s, median | peak MB |\n|---|--:|--:|--:|")
    print(f"| {name} | {seconds:.2f} | {statistics.median(user for user, _ in runs):.2f} "
          f"| {megabytes:.0f} |")
    print(f"\n{options.optimize}, {options.repeat} compilations; load average "
          f"{os.getloadavg()[0]:.1f} at the end. {first_line([words[0], '--version'])}")
    verdicts = list(verdict_lines(options.optimize, seconds, megabytes))
    print("\n".join(verdicts))
    return 1 if any("MISSED" in line for line in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
