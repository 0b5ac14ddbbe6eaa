#!/usr/bin/env python3
"""Measures the cost of compiling programs that use lockstep: seconds and peak memory, as a table.

Compiles the given programs (default: examples/01_quickstart.cpp) and generated stacks of layers to an
object file, with each compiler. A stack of n layers alternates Dense and ReLU; 'equal' repeats
Dense<64>, so that few distinct operations are instantiated, 'different' gives each Dense its own
width. Include paths and definitions are those of build/release/compile_commands.json when that
exists, else only -Iinclude.

Seconds are wall time, CPU seconds are user and system time of compiler and children; both are the
smallest of --repeat runs. MB (10^6 bytes) is the peak resident size of the largest process.

With at least three sizes of stacks it reports whether the cost grows at most linearly: whether the
largest takes at most the user seconds that a line through the two below it predicts, plus a fifth
for the spread of the figures; a single compilation spreads more, so use --repeat 3.
"""

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
SPREAD = 1.2
WITH_VALUE = ("-I", "-isystem", "-D", "-include")


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("programs", nargs="*", type=Path, default=[REPOSITORY / "examples/01_quickstart.cpp"])
    add("--layers", default="10,50,150", help="sizes of the stacks; empty: none (10,50,150)")
    add("--compilers", default="g++,clang++", help="separated by commas (g++,clang++)")
    add("--optimize", default="-O2", help="default: -O2; write --optimize=-O0 for another")
    add("--repeat", type=int, default=1, help="runs of each, the smallest counts (1)")
    add("--build", type=Path, default=REPOSITORY / "build/release", help="build/release")
    add("--json", type=Path, help="write every figure to this file")
    options = parser.parse_args()
    try:
        options.layers = [int(text) for text in options.layers.split(",") if text]
    except ValueError:
        parser.error("--layers: give whole numbers, separated by commas")
    if any(count < 1 for count in options.layers) or options.repeat < 1:
        parser.error("--layers and --repeat: at least 1")
    options.compilers = options.compilers.split(",")
    return options


def stack_source(count, different):
    """A program whose model has `count` layers after its Input."""
    layers, width, made = ["ls::Input<64>"], 64, 0
    for index in range(count):
        if index % 2:
            layers.append("ls::ReLU")
        else:
            width = 64 + made if different else 64
            made += 1
            layers.append(f"ls::Dense<{width}>")
    stack = ",\n    ".join(layers)
    return f"""#include <lockstep/cpu.hpp>
#include <lockstep/lockstep.hpp>
#include <span>
#include <vector>
namespace ls = lockstep;

struct Net : ls::Sequential<
    {stack}> {{}};

int main() {{
  ls::Model model{{Net{{}}, ls::OneDevice<ls::Cpu>{{}}, ls::MeanSquaredError{{}}, ls::SGD{{}}}};
  const std::vector<float> x(64, 0.5f), y({width}, 0.5f);
  model.train_on_batch(std::span<const float>(x), std::span<const float>(y));
}}
"""


def build_flags(build):
    """Include paths, definitions and language standard of the build tree's own programs."""
    database = build / "compile_commands.json"
    try:
        entries = json.loads(database.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return ["-std=c++20", f"-I{REPOSITORY / 'include'}"], "no compile_commands.json: -Iinclude"
    examples = [e for e in entries if Path(e["file"]).is_relative_to(REPOSITORY / "examples")]
    if not examples:
        return ["-std=c++20", f"-I{REPOSITORY / 'include'}"], f"{database} has no example: -Iinclude"
    entry = next((e for e in examples if Path(e["file"]).stem == "01_quickstart"), examples[0])
    words = entry.get("arguments") or shlex.split(entry["command"])
    flags, index = [], 1
    while index < len(words):
        word = words[index]
        if word in WITH_VALUE and index + 1 < len(words):
            flags += [word, words[index + 1]]
            index += 1
        elif word.startswith((*WITH_VALUE, "-std=")) or word == "-pthread":
            flags.append(word)
        index += 1
    folder = Path(entry["directory"])
    for index, word in enumerate(flags):  # a path may be relative to the entry's folder
        if word.startswith("-I") and len(word) > 2:
            flags[index] = f"-I{folder / word[2:]}"
        elif index and flags[index - 1] in ("-I", "-isystem", "-include"):
            flags[index] = str(folder / word)
    return flags, f"flags of {Path(entry['file']).name} in compile_commands.json"


def compile_once(command):
    """Runs a compiler: wall, CPU and user seconds, peak bytes, exit code, messages."""
    with tempfile.TemporaryFile() as messages:
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=messages, stderr=messages)
        # wait4, since RUSAGE_CHILDREN's peak is that of all compilers so far.
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        messages.seek(0)
        text = messages.read().decode(errors="replace")
    unit = 1 if sys.platform == "darwin" else 1024
    cpu = usage.ru_utime + usage.ru_stime
    return wall, cpu, usage.ru_utime, usage.ru_maxrss * unit, process.returncode, text


def measure(options, name, source, compiler, flags, folder):
    command = [compiler, *flags, options.optimize, "-c", str(source), "-o",
               str(Path(folder) / "object.o")]
    row = {"program": name, "compiler": compiler}
    runs = []
    for _ in range(options.repeat):
        wall, cpu, user, peak, code, text = compile_once(command)
        if code:
            errors = [line for line in text.splitlines() if "error" in line] or ["no message"]
            row["error"] = f"exit code {code}: {errors[0]}"
            return row
        runs.append((wall, cpu, user, peak))
    row["seconds"] = round(min(run[0] for run in runs), 2)
    row["cpu_seconds"] = round(min(run[1] for run in runs), 2)
    row["user_seconds"] = round(min(run[2] for run in runs), 2)
    row["megabytes"] = round(min(run[3] for run in runs) / 1e6)
    return row


def growth(cost):
    """Seconds of the largest size divided by the prediction of a non-decreasing line through the
    two sizes below it. None for fewer than three sizes."""
    if len(cost) < 3:
        return None
    first, second, last = sorted(cost)[-3:]
    slope = max(0.0, (cost[second] - cost[first]) / (second - first))
    return cost[last] / (cost[second] + slope * (last - second))


def growth_lines(options, rows):
    """Growth verdicts for stacks of different and of equal layers, for each compiler."""
    cost = {(row["program"], row["compiler"]): row["user_seconds"]
            for row in rows if "error" not in row}
    for compiler in options.compilers:
        for kind in ("different", "equal"):
            found = growth({count: cost[key] for count in options.layers
                            if (key := (f"{count} layers, {kind}", compiler)) in cost})
            if found:
                met = "met" if found <= SPREAD else "MISSED"
                yield (f"{compiler}, {kind}: the largest takes {found:.2f} of the linear prediction; "
                       f"at most linear: {met}.")


def first_line(command):
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.split("\n")[0]


def main():
    options = parse()
    flags, origin = build_flags(options.build)
    compilers = [name for name in options.compilers if shutil.which(name)]
    for name in options.compilers:
        if name not in compilers:
            print(f"compile_cost.py: {name} is not installed, so it is skipped", file=sys.stderr)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        sources = [(path.stem, path) for path in options.programs]
        for count in options.layers:
            for kind in ("equal", "different"):
                path = Path(folder) / f"stack_{count}_{kind}.cpp"
                path.write_text(stack_source(count, kind == "different"))
                sources.append((f"{count} layers, {kind}", path))
        for name, path in sources:
            for compiler in compilers:
                row = measure(options, name, path, compiler, flags, folder)
                if "error" in row:
                    print(f"compile_cost.py: {name}, {compiler}: {row['error']}", file=sys.stderr)
                rows.append(row)

    print("| program | compiler | seconds | CPU seconds | peak MB |\n|---|---|--:|--:|--:|")
    for row in rows:
        figures = ("failed | - | -" if "error" in row else
                   f"{row['seconds']:.2f} | {row['cpu_seconds']:.2f} | {row['megabytes']}")
        print(f"| {row['program']} | {row['compiler']} | {figures} |")
    print(f"\n{options.optimize}, {origin}; smallest of {options.repeat}. Load average "
          f"{os.getloadavg()[0]:.1f} at the end.")
    for line in growth_lines(options, rows):
        print(line)
    for compiler in compilers:
        print(f"{compiler}: {first_line([compiler, '--version'])}")
    if options.json:
        options.json.write_text(json.dumps({"flags": flags, "rows": rows}, indent=1) + "\n")
    return 1 if not rows or any("error" in row for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
