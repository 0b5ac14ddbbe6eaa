#!/usr/bin/env python3
"""Checks that a program that includes lockstep/predictor.hpp and a device alone compiles in both forms, links header-only and
runs, and that its object files have nothing of training: no backward pass, optimizer, loss, metric, replica or callback.

Usage: predicting.py MEGABYTES SOURCE TRAINING_OBJECT COMPILER FLAGS... -- LINKER_FLAGS...; MEGABYTES limits what the compiler
needs for the compiled form, and TRAINING_OBJECT, a file of the build, must have what SOURCE lacks"""
import pathlib
import re
import subprocess
import sys
import tempfile

import compile_memory
import kernels_apart

TRAINING = re.compile(r"(?i)backward|optimi[sz]er|gradient|replica|callback|LossIo|MetricIo|UpdateIo|KernelRun<|Strategy|FitLoop")
COMPILED = "-DLOCKSTEP_SEPARATE_COMPILATION"


def of_training(symbols: list[str]) -> list[str]:
    return [symbol for symbol in symbols if TRAINING.search(symbol)]


def main(megabytes: str, source: str, training: str, *rest: str) -> None:
    at = rest.index("--")
    command, linker = rest[:at], rest[at + 1:]
    found = []
    with tempfile.TemporaryDirectory() as folder:
        unit, program = str(pathlib.Path(folder, "unit.o")), str(pathlib.Path(folder, "program"))
        compile_memory.compile_within(float(megabytes), [*command, COMPILED, "-c", source, "-o", unit])
        found += of_training(kernels_apart.symbols(unit))
        subprocess.run([*command, "-O1", "-c", source, "-o", unit], check=True)
        found += of_training(kernels_apart.symbols(unit))
        subprocess.run([command[0], unit, "-o", program, *linker], check=True)
        subprocess.run([program], check=True)
        if len(of_training(kernels_apart.symbols(training))) < 10:
            found.append(f"{training} trains, but its symbols of training were not recognized")
    sys.exit("\n".join(found) or None)


if __name__ == "__main__":
    main(*sys.argv[1:])
