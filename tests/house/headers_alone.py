#!/usr/bin/env python3
"""Compiles each header alone, two at a time and without output, through a program that only
includes it. Left out are those whose own unit test includes them first, which shows the same.
Usage: headers_alone.py INCLUDE_ROOT [--without FOLDER] COMPILER [FLAG...]; FOLDER: "cuda" leaves out all that needs
NVIDIA's headers, "cuda/kernels" the kernels for GPUs"""
import concurrent.futures
import pathlib
import re
import subprocess
import sys


def check(command: list[str], header: str) -> str:
    result = subprocess.run([*command, "-std=c++20", "-fsyntax-only", "-x", "c++", "-"],
                            input=f'#include "{header}"\n', stdout=subprocess.PIPE, text=True,
                            stderr=subprocess.STDOUT)
    return f"{header}:\n{result.stdout}" if result.returncode or result.stdout else ""


def is_first_in_its_test(header: str) -> bool:
    test = pathlib.Path(__file__).parent.parent / "unit" / \
        pathlib.Path(header).relative_to("lockstep").with_suffix(".cpp")
    first = re.search(r'^#include\s*[<"]([^>"]+)', test.read_text("utf-8"), re.MULTILINE) \
        if test.exists() else None
    return first is not None and first[1] == header


def main(root: pathlib.Path, command: list[str]) -> None:
    left_out = None
    if command[0] == "--without":
        left_out, command = command[1], command[2:]
    headers = [path.relative_to(root).as_posix() for path in sorted(root.rglob("*.hpp"))
               if path.parent.name != "impl"]
    headers = [header for header in headers if not is_first_in_its_test(header) and
               not (left_out and left_out in header)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        found = list(filter(None, pool.map(lambda h: check([*command, f"-I{root}"], h), headers)))
    print(f"{len(headers)} headers, {len(found)} with complaints")
    sys.exit("\n".join(found) or None)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2:])
