#!/usr/bin/env python3
"""Runs a benchmark of two builds in turn and reports whether the second one is slower.

BEFORE and AFTER are build folders (with bin/BENCHMARK), or git revisions, which are built in
build/compare/<commit> with the release preset's flags. Arguments after BENCHMARK are passed on.

  benchmarks/compare_builds.py v1.0 build/release peer_workloads --model mlp
  benchmarks/compare_builds.py --rounds 30 HEAD~1 HEAD step_overhead

Each round runs before, after and before again, in an order that changes from round to round, so
that a change of the machine's load affects both. A figure of a benchmark is

- each benchmark's real time in Google Benchmark's JSON (requested for `layers`),
- the median of "step_ms" in a last line of JSON, as printed by the programs of run.py,
- the number before "us" of each line "NAME median X us".

Per figure it prints the ratio after/before: the median over the rounds, the ratio of the minima,
and the 95 % interval of the median by bootstrap. The noise is the same interval of before/before,
two runs of one program: the ratios that this machine shows if nothing was changed. A figure is
slower if its median is beyond --threshold and its whole interval lies above 1 and above the
interval of the noise. Exit code: 1 if a figure is slower, 2 if nothing could be compared, else 0.
"""

import argparse
import json
import math
import os
import random
import re
import statistics
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent
sys.path.insert(0, str(HERE / "peers"))

from runs import Failed, alone, execute  # noqa: E402
from support import positive  # noqa: E402

GOOGLE = ["layers"]
RESAMPLES = 2000
LINE = re.compile(r"^\s*(.+?)\s+median\s+([0-9.]+) us\b", re.MULTILINE)


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("before", help="build folder or git revision")
    add("after", help="build folder or git revision")
    add("benchmark", help="a program of benchmarks/")
    add("arguments", nargs=argparse.REMAINDER, help="arguments of the benchmark")
    add("--rounds", type=positive, default=15)
    add("--threshold", type=float, default=1.03, help="largest acceptable ratio (1.03)")
    add("--cpus", type=positive, default=1, help="number of CPUs to bind each run to (1)")
    add("--lock", type=Path, help="hold an exclusive lock (flock) of this file during each round")
    add("--json", type=Path, help="write every figure to this file")
    options = parser.parse_args()
    if options.threshold < 1:
        parser.error("--threshold: at least 1")
    if options.cpus > len(os.sched_getaffinity(0)):
        parser.error(f"--cpus: this process may use {len(os.sched_getaffinity(0))}")
    return options


def program_of(build, benchmark):
    """The path of the benchmark in a build folder, or in the build of a revision."""
    folder = Path(build)
    if not folder.is_dir():
        git = ["git", "-C", str(REPOSITORY)]
        try:
            commit = execute([*git, "rev-parse", "--verify", "--quiet", f"{build}^{{commit}}"], 1)
        except Failed as error:
            raise Failed(f"'{build}' is neither a folder nor a git revision") from error
        tree = REPOSITORY / "build/compare" / commit.strip()[:12]
        if not tree.exists():
            execute([*git, "worktree", "add", "--detach", str(tree), commit.strip()], 1)
        folder = tree / "build/release"
        cpus = len(os.sched_getaffinity(0))
        print(f"building {benchmark} of {build} in {folder}", file=sys.stderr)
        execute(["cmake", "-S", str(tree), "-B", str(folder), "-G", "Ninja",
                 "-DCMAKE_BUILD_TYPE=Release", "-DLOCKSTEP_BUILD_TESTS=OFF"], cpus)
        execute(["cmake", "--build", str(folder), "--target", benchmark], cpus)
    program = folder / "bin" / benchmark
    if not program.is_file():
        raise Failed(f"{program} does not exist; build it first")
    return program


def figures(text):
    """Times by name in the output of a benchmark."""
    try:
        found = json.loads(text)
        if "benchmarks" in found:
            return {entry["name"]: entry["real_time"] for entry in found["benchmarks"]}
    except ValueError:
        pass
    try:
        return {"step": json.loads(text.strip().splitlines()[-1])["step_ms"]["median"]}
    except (ValueError, KeyError, IndexError, TypeError):
        return {name: float(value) for name, value in LINE.findall(text)}


def run(program, options):
    arguments = options.arguments
    if options.benchmark in GOOGLE:
        arguments = ["--benchmark_format=json", *arguments]
    found = figures(execute([str(program), *arguments], options.cpus))
    if not found:
        raise Failed(f"{program} prints no known figure; see --help")
    return found


def interval(logs, seed=1):
    """The 95 % interval of the median by bootstrap, as ratios."""
    draw = random.Random(seed)
    medians = sorted(statistics.median(draw.choices(logs, k=len(logs))) for _ in range(RESAMPLES))
    return math.exp(medians[RESAMPLES // 40]), math.exp(medians[-1 - RESAMPLES // 40])


def compare(before, after, again):
    """The verdict on a figure, from its times in each round: before, after, before again."""
    own = [math.log(a / math.sqrt(b * c)) for b, a, c in zip(before, after, again)]
    null = [math.log(c / b) for b, c in zip(before, again)]
    return {
        "median": math.exp(statistics.median(own)),
        "of_minima": min(after) / min(before + again),
        "interval": interval(own),
        "noise": interval(null),
        "before": statistics.median(before + again),
        "after": statistics.median(after),
    }


def is_slower(result, threshold):
    return (result["median"] > threshold
            and result["interval"][0] > max(1.0, result["noise"][1], 1 / result["noise"][0]))


def measure(options, before, after):
    """Times of each figure, by name: before, after, before again, each a list over the rounds."""
    times = {}
    for number in range(options.rounds):
        order = [(0, before), (1, after), (2, before)]
        draw = random.Random(number)
        draw.shuffle(order)
        with alone(options.lock):
            for place, program in order:
                for name, value in run(program, options).items():
                    times.setdefault(name, ([], [], []))[place].append(value)
        print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
    # Skips figures that only one of the two builds has.
    return {name: lists for name, lists in times.items()
            if all(len(values) == options.rounds for values in lists)}


def main():
    options = parse()
    try:
        before = program_of(options.before, options.benchmark)
        after = program_of(options.after, options.benchmark)
        times = measure(options, before, after)
    except Failed as error:
        print(f"compare_builds.py: {error}", file=sys.stderr)
        return 2
    if not times:
        print("compare_builds.py: the two builds have no figure in common", file=sys.stderr)
        return 2
    print("| figure | before | after | after / before | of minima | 95 % interval | noise | |\n"
          "|---|--:|--:|--:|--:|--:|--:|---|")
    results = {}
    for name, lists in times.items():
        result = results[name] = compare(*lists)
        result["slower"] = is_slower(result, options.threshold)
        low, high = result["interval"]
        least, most = result["noise"]
        print(f"| {name} | {result['before']:.4g} | {result['after']:.4g} | {result['median']:.3f} "
              f"| {result['of_minima']:.3f} | {low:.3f}..{high:.3f} | {least:.3f}..{most:.3f} "
              f"| {'SLOWER' if result['slower'] else ''} |")
    print(f"\n{options.rounds} rounds; {before} and {after}. Load average {os.getloadavg()[0]:.1f} "
          "at the end.")
    if options.json:
        options.json.write_text(json.dumps({"figures": results, "times": times}, indent=1) + "\n")
    return 1 if any(result["slower"] for result in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
