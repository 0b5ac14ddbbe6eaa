#!/usr/bin/env python3
"""Builds a program header-only, as a user without a build system does, and runs a few steps of it on drawn data. All other
tests of the programs are of the compiled form.

Usage: header_only.py PROGRAM SOURCE LOCKSTEP_RUN COMPILER [FLAG...]; LOCKSTEP_RUN starts the workers of a job"""
import os
import pathlib
import subprocess
import sys
import tempfile

import symbols

sys.path.append(str(pathlib.Path(__file__).parents[1] / "house"))
import compile_memory
import kernels_apart

PROJECT = pathlib.Path(__file__).with_name("project")
CORE = ("-lfmt", "-lcrypto", "-lz", "-lpthread")
CPU = ("-ldnnl", "-l:libgomp.so.1", *CORE)
CLUSTER = ("-lssl", *CPU)
STEPS = ("--epochs", "1", "--steps-per-epoch", "2", "--progress", "none", "--report", "report.json")
QUICKSTART_MEGABYTES = 710
HIDDEN = ("-fPIC", "-fvisibility=hidden", "-fvisibility-inlines-hidden")


def call(*command) -> str:
    result = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode:
        sys.exit(f"exit code {result.returncode}: {' '.join(map(str, command))}\n{result.stdout}")
    return result.stdout


def compiled(compiler: list[str], program: str, *more) -> None:
    reported = call(*compiler, *more, "-o", program)
    if reported:
        sys.exit(f"{program}:\n{reported}")


def quickstart(compiler: list[str], source: pathlib.Path, _: str) -> None:
    compile_memory.compile_within(QUICKSTART_MEGABYTES, [*compiler, "-O2", "-o", "./program",
                                                         str(source / "examples/01_quickstart.cpp"), *CPU])
    reported = call("./program")
    if "Epoch 3/3" not in reported or "loss: " not in reported:
        sys.exit(f"three epochs expected:\n{reported}")
    if not any(map(kernels_apart.has_kernel, kernels_apart.symbols("./program"))):
        sys.exit("tests/house/kernels_apart.py finds no kernel in the header-only form; have their names changed?")


def trains(compiler: list[str], programs: pathlib.Path, name: str, libraries: tuple, start: list[str], *options: str) -> None:
    """The program of one unit. Its other sources are read in front of it, so that the headers are read once."""
    sources = [source for source in sorted((programs / "support").glob("*.cpp")) if not source.stem.endswith("_main")]
    sources.append(programs / f"support/{name}_main.cpp")
    compiled(compiler, "./program", f"-I{programs}", *(word for source in sources for word in ("-include", source)),
             programs / f"{name}.cpp", *libraries)
    call(*start, "./program", *STEPS, *options)
    report = pathlib.Path("report.json").read_text("utf-8")
    if '"loss"' not in report:
        sys.exit(f"a report with losses expected:\n{report}")


def mnist_multi_worker(compiler: list[str], source: pathlib.Path, run: str) -> None:
    trains([*compiler, "-DASIO_STANDALONE", "-DLOCKSTEP_MULTI_WORKER"], source / "programs", "mnist", CLUSTER, [run, "-n", "2"])


def cifar10(compiler: list[str], source: pathlib.Path, _: str) -> None:
    trains([*compiler, "-DLOCKSTEP_DEPTH=56"], source / "programs", "cifar10", CPU, [], "--depth", "56", "--batch", "4")


def two_units(compiler: list[str], *_) -> None:
    """Two units with the same model, and a library that hides a third one."""
    compiled(compiler, "./libdigits.so", "-shared", *HIDDEN, PROJECT / "digits.cpp", *CPU)
    compiled(compiler, "./program", PROJECT / "two_units.cpp", PROJECT / "other_unit.cpp", "./libdigits.so", *CPU)
    expected, reported = "loss falls: yes, slopes are equal: yes\n", call("./program")
    if not reported.endswith(expected):
        sys.exit(f"'{expected}' expected:\n{reported}")
    sys.exit(symbols.complaint(pathlib.Path("libdigits.so")) or None)


MISSING = """checkpoint: checkpoint: this program was built without checkpoints; add #include <lockstep/checkpoints.hpp>
"""
NOT_ELASTIC = MISSING + """elastic: multi_worker_mirrored: LOCKSTEP_MIN_WORKERS is set, but the program's strategy is not elastic; \
write ls::MultiWorkerMirrored<ls::Cpu, ls::Tcp, ls::Elastic> and #include <lockstep/elastic.hpp>, or unset it
"""
MADE = "checkpoint: made, after 2 steps\ncallbacks: made, after 2 steps\n"


def asks_for_features(compiler: list[str], expected: str, has_features: bool, *flags: str) -> None:
    compiled(compiler, "./program", *flags, PROJECT / "features.cpp", "-lssl", *CORE)
    reported = call("./program")
    if reported != expected:
        sys.exit(f"expected:\n{expected}reported:\n{reported}")
    if any(map(symbols.of_feature, kernels_apart.symbols("./program"))) != has_features:
        sys.exit("the program " + ("has no code of its features" if has_features else "has code of features it does not include"))


def without_features(compiler: list[str], *_) -> None:
    asks_for_features(compiler, MISSING, False)


def without_elastic(compiler: list[str], *_) -> None:
    asks_for_features(compiler, NOT_ELASTIC, False, "-DELASTIC", "-DASIO_STANDALONE")


def with_features(compiler: list[str], *_) -> None:
    asks_for_features(compiler, MADE, True, "-DWITH_FEATURES")


PROGRAMS = {function.__name__: function for function in
            (quickstart, without_features, without_elastic, with_features, mnist_multi_worker, cifar10, two_units)}

if __name__ == "__main__":
    source = pathlib.Path(sys.argv[2]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        PROGRAMS[sys.argv[1]]([*sys.argv[4:], "-std=c++20", "-O0", f"-I{source}/include"], source, sys.argv[3])
