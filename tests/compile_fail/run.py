#!/usr/bin/env python3
"""Checks that programs fail to compile, and how.

A case may begin with `// flags: <options of the compiler>`. Then follows `// expect: <sentence>`; a
long sentence continues in the comment lines that follow immediately. The compiler must report exactly one error, and the sentence must appear within
the first ten lines of its output.

With --group instead of one case, those of the given cases that belong to the group are compiled as one
unit, in which each has a namespace of its own. An error belongs to the case that its lines
name, else to the one that expects it. Cases that do not
pass, because they see what other cases include or share an instantiation with them, are compiled again as a
smaller unit, and alone once that helps no more, so that only a case that fails alone is reported.
"""
import argparse
import itertools
import pathlib
import re
import subprocess
import sys

FLAGS = ["-std=c++20", "-fdiagnostics-color=never"]
# Headers that contain only declarations: faster.
COMPILED = "-DLOCKSTEP_SEPARATE_COMPILATION"
# group: includes of its cases; the first that fits counts.
GROUPS = {
    "training": r"lockstep|reference|predictor|cluster|sharded|parameter_server|strategies/m\w+|training/run_main",
    "data": "data/sources/tensors",
    "network": r"model/(sequential|shared|statement_graph)",
    "other": "",
}
# Most sentences come from here: the shorter the path to these headers, the fewer lines precede the sentences.
FIRST = ['#include "lockstep/concepts/kernel.hpp"', '#include "lockstep/concepts/layer.hpp"']
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


def group_of(case: str) -> str:
    return next(name for name, includes in GROUPS.items()
                if not includes or re.search(rf'^#include ["<]lockstep/({includes})\.hpp[">]', case, re.MULTILINE))


def complaints(output: str, sentence: str) -> list[str]:
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


def compile_alone(command: list[str], case: pathlib.Path, modes: list[list[str]]) -> list[str]:
    """The complaints about the case in the last mode, if it passes in none; prints the compiler's output then."""
    text = case.read_text(encoding="utf-8")
    sentence = sentence_of(text)
    for mode in modes:
        result = subprocess.run([*command, *mode, *flags_of(text), "-fsyntax-only", case], stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)
        found = complaints(result.stdout, sentence) if result.returncode else ["it compiles"]
        if not found:
            return []
    print(result.stdout)
    return found


def fits_unit(case: str) -> bool:
    return not flags_of(case) and not re.search("^#(?!include)", case, re.MULTILINE)


def wrapped(case: pathlib.Path, text: str) -> str:
    include = f'#include "{case.resolve()}"\n'
    if not re.search("^struct ls::", text, re.MULTILINE):
        return f"namespace case_{case.stem} {{\n{include}}}\n"
    # A specialization must stand outside of namespaces: the names of the case become its own otherwise.
    names = set(re.findall(r"^(?:struct|using|int|constexpr auto&) (\w+)\b(?!::)", text, re.MULTILINE))
    return "".join(f"#define {name} {name}_{case.stem}\n" for name in sorted(names)) + include + \
        "".join(f"#undef {name}\n" for name in sorted(names))


def errors_in(output: str) -> list[str]:
    """The output, divided by errors: lines that precede a diagnostic belong to it, notes to the error before them."""
    errors: list[list[str]] = []
    before: list[str] = []
    for line in output.splitlines():
        before.append(line)
        if re.search(r"\berror:", line):
            errors.append(before)
        elif errors and (re.search(r"\b(note|warning):", line) or re.match(r" *\d* \|", line)):
            errors[-1] += before
        else:
            continue
        before = []
    return ["\n".join(error) for error in errors]


def compile_unit(command: list[str], cases: list[pathlib.Path]) -> list[pathlib.Path]:
    """The cases that do not pass."""
    texts = {case: case.read_text(encoding="utf-8") for case in cases}
    includes = [line for text in texts.values() for line in text.splitlines() if line.startswith("#include")]
    unit = "".join(f"{line}\n" for line in dict.fromkeys(FIRST + includes)) + \
        "".join(wrapped(case, text) for case, text in texts.items())
    result = subprocess.run([*command, "-iquote", cases[0].parent, "-fsyntax-only", "-x", "c++", "-"], input=unit,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    output = {case: "" for case in cases}
    for error in errors_in(result.stdout):
        named = [case for case in cases if f"{case.resolve()}:" in error] or \
            [case for case, text in texts.items() if sentence_of(text) in error]
        if not named:
            return cases
        for case in named:  # An error that names several cases lets none of them pass.
            output[case] += error * len(named) + "\n"
    return [case for case, text in texts.items() if complaints(output[case], sentence_of(text))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", type=pathlib.Path, nargs="+")
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--include", action="append", default=[])
    parser.add_argument("--group", choices=GROUPS)
    options = parser.parse_args()
    command = [options.compiler, *FLAGS, *(f"-I{path}" for path in options.include)]
    alone, modes = options.cases, [[]]
    if options.group:
        modes = [[COMPILED], []]
        cases = {case: case.read_text(encoding="utf-8") for case in options.cases}
        cases = {case: text for case, text in cases.items() if group_of(text) == options.group}
        alone = [case for case, text in cases.items() if not fits_unit(text)]
        left = [case for case in cases if case not in alone]
        limit = ["-ferror-limit=0"] if "clang" in options.compiler else []
        while len(left) > 1:
            failed = compile_unit([*command, COMPILED, *limit], left)
            print(f"{len(left) - len(failed)} of {len(left)} cases pass as one unit")
            if len(failed) == len(left):
                break
            left = failed
        alone += left
    wrong = [f"{case.name}: " + "; ".join(found) for case in alone if (found := compile_alone(command, case, modes))]
    sys.exit("\n".join(wrong) or None)


if __name__ == "__main__":
    main()
