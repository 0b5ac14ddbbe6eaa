#!/usr/bin/env python3
"""Compiles each header alone, two at a time and without output, through a program that only
includes it. Usage: headers_alone.py INCLUDE_ROOT COMPILER [FLAG...]"""
import concurrent.futures
import pathlib
import subprocess
import sys


def check(command: list[str], header: str) -> str:
    result = subprocess.run([*command, "-std=c++20", "-fsyntax-only", "-x", "c++", "-"],
                            input=f'#include "{header}"\n', stdout=subprocess.PIPE, text=True,
                            stderr=subprocess.STDOUT)
    return f"{header}:\n{result.stdout}" if result.returncode or result.stdout else ""


def main(root: pathlib.Path, command: list[str]) -> None:
    headers = [path.relative_to(root).as_posix() for path in sorted(root.rglob("*.hpp"))]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        found = list(filter(None, pool.map(lambda h: check([*command, f"-I{root}"], h), headers)))
    print(f"{len(headers)} headers, {len(found)} with complaints")
    sys.exit("\n".join(found) or None)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2:])
