#!/usr/bin/env python3
"""Checks that each header compiles alone, in both forms, without output.

Compiled form: each header and each .ipp file, two at a time, through a program that only includes it. There the headers
only declare, so that what one of them misses does not come with another's definitions. Left out are headers whose own
unit test includes them first, which shows the same.
Header-only form: one program that includes all of them. What compiles alone in the one form does so in the other, since
arrows.py refuses headers that need themselves; what is left are definitions that do not get along with each other, and
those that are not inline, which the program's symbols show.

Usage: headers_alone.py INCLUDE_ROOT [--without FOLDER] COMPILER [FLAG...]; FOLDER: "cuda" leaves out all that needs
NVIDIA's headers, "cuda/kernels" the kernels for GPUs"""
import concurrent.futures
import pathlib
import re
import subprocess
import sys
import tempfile


def compile_unit(command: list[str], headers: list[str]) -> str:
    source = "".join(f'#include "{header}"\n' for header in headers)
    result = subprocess.run([*command, "-std=c++20", "-x", "c++", "-"], input=source, stdout=subprocess.PIPE, text=True,
                            stderr=subprocess.STDOUT)
    failed = result.returncode or result.stdout
    return f"{headers[0] if len(headers) == 1 else 'all headers'}:\n{result.stdout}" if failed else ""


def check_all(command: list[str], headers: list[str]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        unit = pathlib.Path(folder, "unit.o")
        said = compile_unit([*command, "-O0", "-c", "-o", str(unit)], headers)
        if said:
            return said
        symbols = subprocess.run(["nm", "-C", unit], check=True, stdout=subprocess.PIPE, text=True).stdout
    strong = re.findall(r"^\w+ [TDBRGS] .*", symbols, re.MULTILINE)
    return "\n".join(["not inline in the header-only form, LOCKSTEP_DECL is missing:", *strong]) if strong else ""


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
    command = [*command, f"-I{root}"]
    files = [path.relative_to(root).as_posix() for path in sorted(root.rglob("*.[hi]pp")) if path.parent.name != "impl"]
    files = [file for file in files if not (left_out and left_out in file)]
    alone = [file for file in files if not is_first_in_its_test(file)]
    compiled = [*command, "-DLOCKSTEP_SEPARATE_COMPILATION", "-fsyntax-only"]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        together = pool.submit(check_all, command, [file for file in files if file.endswith(".hpp")])
        found = list(filter(None, [*pool.map(lambda file: compile_unit(compiled, [file]), alone), together.result()]))
    print(f"{len(alone)} of {len(files)} files, {len(found)} with complaints")
    sys.exit("\n".join(found) or None)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2:])
