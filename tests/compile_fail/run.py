#!/usr/bin/env python3
"""Checks that a program fails to compile, and how.

A case may begin with `// flags: <options of the compiler>`. Then follows `// expect: <sentence>`; a
long sentence continues in the comment lines that follow immediately. The compiler must report exactly one error, and the sentence must appear within
the first ten lines of its output.

With --precompile instead of a case: precompiles the headers of PRECOMPILED into --folder. A case that
runs with the same --folder is compiled as a part of the compiled form, whose headers contain only
declarations, and uses the first precompiled header that it has a use for, which is much faster.
"""
import argparse
import itertools
import pathlib
import re
import subprocess
import sys

FLAGS = ["-std=c++20", "-fdiagnostics-color=never"]
COMPILED = "-DLOCKSTEP_SEPARATE_COMPILATION"
KERNEL = "lockstep/concepts/kernel.hpp"
# name: (headers, includes of the cases that use it). Most sentences about kernels are in KERNEL: the shorter the path to it, the
# fewer lines precede them. Loading the first takes 0.3 s, so it is only for cases that would compile longer.
PRECOMPILED = {
    "training": ((KERNEL, "lockstep/lockstep.hpp", "lockstep/reference.hpp"),
                 r"lockstep|reference|predictor|cluster|sharded|parameter_server|strategies/m\w+|training/run_main"),
    "data": ((KERNEL, "lockstep/data/sources/tensors.hpp"), "data/sources/tensors"),
    "network": ((KERNEL, "lockstep/model/sequential.hpp"), r"model/(sequential|shared|statement_graph)"),
}
LINES = 10


def flags_of(case: str) -> list[str]:
    first = case.splitlines()[0]
    return first.removeprefix("// flags: ").split() if first.startswith("// flags: ") else []


def sentence_of(case: str) -> str:
    comment = [line[2:].strip() for line in
               itertools.takewhile(lambda line: line.startswith("//"), case.splitlines())]
    text = " ".join(comment[len(flags_of(case)) > 0:])
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
        found.append(f"the output lacks '{sentence}'")
    elif where[0] > LINES:
        found.append(f"the sentence stands in line {where[0]}, not within the first {LINES}")
    return found


def precompile(command: list[str], folder: pathlib.Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, (headers, _) in PRECOMPILED.items():
        path = folder / f"{name}.hpp"
        path.write_text("".join(f'#include "{header}"\n' for header in headers), encoding="utf-8")
        subprocess.run([*command, COMPILED, "-x", "c++-header", path, "-o", f"{path}.gch"], check=True)


def precompiled(case: str, folder: pathlib.Path) -> list[str]:
    """The options of the compiled form, with the precompiled header for the case. A case that includes parts of the training
    step does so to shorten the path to them."""
    if "lockstep/training/step/" in case:
        return [COMPILED]
    for name, (_, includes) in PRECOMPILED.items():
        if re.search(rf'^#include ["<]lockstep/({includes})\.hpp[">]', case, re.MULTILINE):
            return [COMPILED, "-include", str(folder / f"{name}.hpp")]
    return [COMPILED]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", type=pathlib.Path, nargs="?")
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--include", action="append", default=[])
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--precompile", action="store_true")
    options = parser.parse_args()
    command = [options.compiler, *FLAGS, *(f"-I{path}" for path in options.include)]
    if options.precompile:
        precompile(command, options.folder)
        return
    text = options.case.read_text(encoding="utf-8")
    sentence = sentence_of(text)
    # A precompiled header changes the order of includes and may lengthen the path to the error, so a failure is retried
    # without it, header-only.
    for flags in (precompiled(text, options.folder) if options.folder else [], []):
        result = subprocess.run([*command, *flags, *flags_of(text), "-fsyntax-only", options.case], stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)
        found = complaints(result.returncode, result.stdout, sentence)
        if not found:
            break
    if found:
        print(result.stdout)
        sys.exit(f"{options.case.name}: " + "; ".join(found))


if __name__ == "__main__":
    main()
