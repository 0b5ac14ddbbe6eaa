#!/usr/bin/env python3
"""Compiles each given file alone, without output, two at a time: headers through a program that
only includes them, programs as they are. Everything after `--` goes to the compiler."""
import concurrent.futures
import pathlib
import subprocess
import sys


def check(command: list[str], root: pathlib.Path, file: pathlib.Path) -> str:
    if file.suffix == ".hpp":
        command = [*command, f"-I{root}", "-x", "c++", "-"]
        source = f'#include "{file.relative_to(root).as_posix()}"\n'
    else:
        command, source = [*command, str(file)], ""
    result = subprocess.run(command, input=source, stdout=subprocess.PIPE, text=True,
                            stderr=subprocess.STDOUT)
    return f"{file}:\n{result.stdout}" if result.returncode or result.stdout else ""


def main() -> None:
    split = sys.argv.index("--")
    root, command = pathlib.Path(sys.argv[1]), [*sys.argv[split + 1:], "-std=c++20", "-fsyntax-only"]
    files = [pathlib.Path(name) for name in sys.argv[2:split]] or sorted(root.rglob("*.hpp"))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        found = [text for text in pool.map(lambda file: check(command, root, file), files) if text]
    print(f"{len(files)} files, {len(found)} with complaints")
    sys.exit("\n".join(found) or None)


if __name__ == "__main__":
    main()
