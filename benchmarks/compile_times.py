#!/usr/bin/env python3
"""User seconds and peak memory of the compiler for three programs, in both forms of the library, as rows of the table in
docs/performance.md: the median of --repeat runs, in turn. MB are 10^6 bytes. A * marks a figure above its bound."""
import argparse
import statistics
import tempfile
from pathlib import Path

from compile_cost import REPOSITORY, compile_once

# A program, its definitions, and (user seconds, MB) of its bounds: header-only, compiled.
MNIST = ("-DLOCKSTEP_OPTIMIZER=sgd", "-DLOCKSTEP_PRECISION=float32", "-DLOCKSTEP_MULTI_WORKER",
         "-DASIO_STANDALONE")
CIFAR10 = ("-DLOCKSTEP_DEPTH=56", "-DLOCKSTEP_PRECISION=float32")
SOURCES = {"quickstart": "examples/01_quickstart.cpp", "mnist_multi_worker": "programs/mnist.cpp",
           "cifar10": "programs/cifar10.cpp"}
UNITS = {"quickstart": ((), (8, 500), (2.5, 330)), "mnist_multi_worker": (MNIST, (25, 1000), (4.5, 430)),
         "cifar10": (CIFAR10, (13, 650), (4.5, 430))}
FORMS = {"header-only": (), "compiled": ("-DLOCKSTEP_SEPARATE_COMPILATION",)}


def cell(runs, bound):
    figures = [statistics.median(values) for values in zip(*runs)]
    seconds, megabytes = (f"{figure:.{digits}f}{'*' if figure > most else ''}"
                          for figure, most, digits in zip(figures, bound, (1, 0)))
    return f"{seconds} s, {megabytes} MB (at most {bound[0]} s, {bound[1]} MB)"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--optimize", default="-O2", help="default: -O2; write --optimize=-O0 for another")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("units", nargs="*", default=list(UNITS), help=f"of {', '.join(UNITS)}; default: all")
    options = parser.parse_args()
    if options.repeat < 1 or not set(options.units) <= set(UNITS):
        parser.error(f"--repeat is at least 1, and the units are {', '.join(UNITS)}")
    runs = {}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.repeat):
            for unit in options.units:
                for form, flags in FORMS.items():
                    _, _, user, peak, code, text = compile_once(
                        [options.compiler, "-std=c++20", options.optimize, f"-I{REPOSITORY / 'include'}",
                         f"-I{REPOSITORY / 'programs'}", *UNITS[unit][0], *flags, "-c",
                         str(REPOSITORY / SOURCES[unit]), "-o", str(Path(folder, "unit.o"))])
                    if code:
                        raise SystemExit(f"{unit}, {form}: exit code {code}\n{text}")
                    runs.setdefault((unit, form), []).append((user, peak / 1e6))
    print("| unit | header-only | compiled |\n|---|---|---|")
    for unit in options.units:
        cells = [cell(runs[unit, form], bound) for form, bound in zip(FORMS, UNITS[unit][1:])]
        print(f"| {unit} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
