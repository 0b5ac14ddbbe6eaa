#!/usr/bin/env python3
"""Writes one unit of several test sources, so that what they all include and instantiate is compiled once.

The unit begins with the includes of all sources; then follows the rest of each, in a namespace of its own, so that they
can use the same names. A source with a line that matches APART cannot be in a namespace, and is a unit of its own.
Paths are relative to the folder that the compiler runs in, this one. Usage: batch.py UNIT APART SOURCE..."""
import os
import pathlib
import re
import sys


def body(lines: list[str]) -> int:
    """The index of the first line that is neither blank nor a comment nor of the preprocessor."""
    return next((n for n, line in enumerate(lines) if line.strip() and not line.startswith(("#", "//"))), len(lines))


def main(unit: str, apart: str, *sources: str) -> None:
    heads, bodies = [], []
    for source in sources:
        lines = pathlib.Path(source).read_text("utf-8").splitlines()
        if any(re.match(apart, line) for line in lines):
            sys.exit(f"{source} has a line that matches {apart}, so it must be compiled alone: run cmake again")
        name, path, at = pathlib.Path(source).stem, os.path.relpath(source), body(lines)
        heads += [f'#line 1 "{path}"', *lines[:at]]
        bodies += [f"namespace source_{name} {{", f'#line {at + 1} "{path}"', *lines[at:], f"}}  // namespace source_{name}"]
    pathlib.Path(unit).write_text("\n".join(heads + bodies) + "\n", "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
