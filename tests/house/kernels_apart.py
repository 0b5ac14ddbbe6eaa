#!/usr/bin/env python3
"""Checks that a program of the compiled form has no kernel of the library in its object file, and what its compilation costs.
../consumers/header_only.py checks that `has_kernel` finds one in the header-only form.

Usage: kernels_apart.py MEGABYTES SOURCE COMPILER FLAGS..."""
import pathlib
import re
import subprocess
import sys
import tempfile

import compile_memory

KERNEL = re.compile(r"lockstep::(detail::)?(Kernel(Calls|Run)?<|\w+Calls<|PooledConvolution<|DenseTiles::|onednn::)")
ASKED = re.compile(r" U lockstep::detail::KernelCalls<lockstep::\w+, lockstep::BasicCpu<lockstep::Float32>")


def symbols(binary: str) -> list[str]:
    return subprocess.run(["nm", "-C", binary], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()


def has_kernel(symbol: str) -> bool:
    kind, _, name = symbol[17:].partition(" ")
    return kind != "U" and bool(KERNEL.match(name.removeprefix("guard variable for ")))


def main(megabytes: str, source: str, *command: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        target = str(pathlib.Path(folder, "unit.o"))
        compile_memory.compile_within(float(megabytes),
                                      [*command, "-DLOCKSTEP_SEPARATE_COMPILATION", "-c", source, "-o", target])
        compiled = symbols(target)
    found = [symbol for symbol in compiled if has_kernel(symbol)]
    if not any(ASKED.search(symbol) for symbol in compiled):
        found.append("the object references no kernel of ls::Cpu; does the program still train on it?")
    sys.exit("\n".join(found) or None)


if __name__ == "__main__":
    main(*sys.argv[1:])
