#!/usr/bin/env python3
"""Checks that a compiler accepts the units of a folder, two at a time and without output, with the
flags of compile_commands.json. Usage: units_compile.py DATABASE FOLDER COMPILER"""
import concurrent.futures
import json
import pathlib
import shlex
import subprocess
import sys


def check(entry: dict, compiler: str) -> str:
    words = shlex.split(entry["command"])
    flags = words[next(place for place, word in enumerate(words) if word.startswith("-")):]  # after a cache and the compiler
    # g++'s own: its parameters, and precompiled headers, which units include as well.
    flags = [flag for before, flag, after in zip(["", *flags], flags, [*flags[1:], ""])
             if not flag.startswith("--param=") and not (flag == "-include" and after.endswith("/cmake_pch.hxx"))
             and not (before == "-include" and flag.endswith("/cmake_pch.hxx"))]
    command = [compiler, *flags, "-fsyntax-only"]
    result = subprocess.run(command, cwd=entry["directory"], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)
    return f"{entry['file']}:\n{result.stdout}" if result.returncode or result.stdout else ""


def main(database: pathlib.Path, folder: pathlib.Path, compiler: str) -> None:
    units = [entry for entry in json.loads(database.read_text("utf-8"))
             if folder in pathlib.Path(entry["file"]).parents]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        found = list(filter(None, pool.map(lambda entry: check(entry, compiler), units)))
    print(f"{len(units)} units, {len(found)} with complaints")
    sys.exit("\n".join(found) or (None if units else f"there is no unit of {folder}"))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3])
