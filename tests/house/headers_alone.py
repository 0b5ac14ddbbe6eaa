#!/usr/bin/env python3
"""Checks that each header compiles alone, in both forms, without output.

Compiled form, where headers contain only declarations, so that a missing include is not hidden by another header's
definitions: a program includes a chain of headers, each of which includes all headers before it in the chain. Each is thus
preceded only by headers that it includes itself, as if it were alone. Frequently included headers are precompiled, and used
only for chains in which each header includes them.
Header-only form: one program that includes all headers. A header that compiles alone in the compiled form does so in this
one, since arrows.py rejects headers that include themselves indirectly; the program shows conflicts between definitions, and
its symbols show definitions that are not inline.

Usage: headers_alone.py INCLUDE_ROOT [--together] [--definitions] [--without WORD]... COMPILER [FLAG...]; --together checks
the header-only form only, with all headers in one program; --definitions also checks the .ipp files; files with WORD in their path are left out: "cuda" and "mpi", without the headers of NVIDIA and of MPI"""
import concurrent.futures
import functools
import pathlib
import re
import subprocess
import sys
import tempfile

COMPILED = ("-std=c++20", "-DLOCKSTEP_SEPARATE_COMPILATION")
COMPILED_ONLY = "lockstep/testing"  # refuses the header-only form
PRECOMPILED = 5


class Headers:
    """The files, as paths from the include root, and their includes in the compiled form."""

    def __init__(self, root: pathlib.Path, files: list[str]):
        self.files = files
        texts = {file: (root / file).read_text("utf-8") for file in files}
        self.direct = {file: [path for path in re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)', text, re.MULTILINE)
                              if not path.endswith(".ipp")] for file, text in texts.items()}
        self.lines = {file: text.count("\n") for file, text in texts.items()}

    @functools.cache
    def all(self, file: str) -> frozenset[str]:
        return frozenset().union(*({path} | self.all(path) for path in self.direct.get(file, ())))

    @functools.cache
    def cost(self, file: str) -> int:
        """Approximate number of lines that a compiler reads for the file."""
        return sum(self.lines.get(path, 1000) for path in {file} | self.all(file))

    def chains(self) -> list[list[str]]:
        """A minimum number of chains that contain each file once, by a matching of files with their successors."""
        after = {}

        def extend(file: str, seen: set[str]) -> bool:
            for before in sorted(self.all(file) & self.lines.keys(), key=lambda path: (-self.cost(path), path)):
                if before not in seen:
                    seen.add(before)
                    if before not in after or extend(after[before], seen):
                        after[before] = file
                        return True
            return False

        for file in self.files:
            extend(file, set())
        result = [[file] for file in sorted(set(self.files) - set(after.values()))]
        for chain in result:
            while chain[-1] in after:
                chain.append(after[chain[-1]])
        return result

    def precompiled(self, first: str, choices: list[str]) -> str | None:
        """The cheapest choice for a chain that begins with `first`."""
        return max(self.all(first) & set(choices), key=lambda path: (self.cost(path), path), default=None)

    def worth_precompiling(self, chains: list[list[str]]) -> list[str]:
        found = []

        def saved(choices: list[str]) -> int:
            best = (self.precompiled(chain[0], choices) for chain in chains)
            return sum(self.cost(path) for path in best if path)

        for _ in range(PRECOMPILED):
            best = max(([*found, file] for file in self.files if file.endswith(".hpp")), key=saved)
            if saved(best) == saved(found):
                break
            found = best
        return found


def includes(headers: list[str]) -> str:
    return "".join(f'#include "{header}"\n' for header in headers)


def compile_unit(command: list[str], headers: list[str], *flags: str) -> str:
    result = subprocess.run([*command, *flags], input=includes(headers), stdout=subprocess.PIPE, text=True,
                            stderr=subprocess.STDOUT)
    failed = result.returncode or result.stdout
    return f"{', '.join(headers[:20])}:\n{result.stdout}" if failed else ""


def check_each(pool: concurrent.futures.Executor, command: list[str], headers: Headers, folder: str) -> list[str]:
    chains = headers.chains()
    choices = headers.worth_precompiling(chains)
    command = [*command, *COMPILED]

    def precompile(place: int) -> str:
        path = f"{folder}/{place}.hpp"
        pathlib.Path(path).write_text(includes([choices[place]]), "utf-8")
        return compile_unit(command, [choices[place]], "-x", "c++-header", "-o", f"{path}.gch", path)

    def check(chain: list[str]) -> str:
        first = headers.precompiled(chain[0], choices)
        with_precompiled = ["-include", f"{folder}/{choices.index(first)}.hpp"] if first else []
        return compile_unit(command, chain, *with_precompiled, "-fsyntax-only", "-x", "c++", "-")

    found = list(filter(None, pool.map(precompile, range(len(choices)))))
    print(f"{len(headers.files)} files in {len(chains)} programs")
    return found or list(filter(None, pool.map(check, chains)))


def check_all(command: list[str], headers: list[str], folder: str) -> str:
    unit = f"{folder}/unit.o"
    headers = [header for header in headers if not header.startswith(COMPILED_ONLY)]
    output = compile_unit([*command, "-std=c++20", "-O0"], headers, "-c", "-o", unit, "-x", "c++", "-")
    if output:
        return output
    symbols = subprocess.run(["nm", "-C", unit], check=True, stdout=subprocess.PIPE, text=True).stdout
    strong = re.findall(r"^\w+ [TDBRGS] .*", symbols, re.MULTILINE)
    return "\n".join(["not inline in the header-only form, LOCKSTEP_DECL is missing:", *strong]) if strong else ""


def check_files(root: pathlib.Path, files: list[str], command: list[str]) -> list[str]:
    command = [*command, f"-I{root}"]
    with concurrent.futures.ThreadPoolExecutor(2) as pool, tempfile.TemporaryDirectory() as folder:
        together = pool.submit(check_all, command, [file for file in files if file.endswith(".hpp")], folder)
        found = check_each(pool, command, Headers(root, files), folder)
        return list(filter(None, [*found, together.result()]))


def self_test(command: list[str]) -> list[str]:
    """Headers that lack a standard header, lack another header, or have a definition that is not inline."""
    right = {"a": "#include <cstddef>\ninline std::size_t a() { return 1; }",
             "b": '#include "a.hpp"\ninline auto b() { return a(); }',
             "c": '#include "b.hpp"\ninline auto c() { return b(); }'}
    wrong = {"d": "inline std::size_t d() { return 1; }", "e": '#include "a.hpp"\ninline auto e() { return b(); }',
             "f": "int f() { return 1; }"}
    found = []
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in (right | wrong).items():
            (root / f"{name}.hpp").write_text(f"#pragma once\n{text}\n", "utf-8")
        for name in ("", *wrong):
            files = [f"{stem}.hpp" for stem in (*right, name) if stem]
            if bool(check_files(root, files, command)) != bool(name):
                found.append(f"this check's own test: {files}")
    return found


def main(root: pathlib.Path, command: list[str]) -> None:
    pattern, left_out, together = "*.hpp", [], command[0] == "--together"
    command = command[together:]
    if command[0] == "--definitions":
        pattern, command = "*.[hi]pp", command[1:]
    while command[0] == "--without":  # paths with this word
        left_out, command = [*left_out, command[1]], command[2:]
    files = [path.relative_to(root).as_posix() for path in sorted(root.rglob(pattern)) if path.parent.name != "impl"]
    files = [file for file in files if not any(word in file for word in left_out)]
    if together:
        with tempfile.TemporaryDirectory() as folder:
            sys.exit(check_all([*command, f"-I{root}"], files, folder) or None)
    sys.exit("\n".join(self_test(command) + check_files(root, files, command)) or None)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2:])
