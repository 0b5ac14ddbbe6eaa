#!/usr/bin/env python3
"""Runs `./dev install PREFIX --headers` in a copy of the sources. Usage: install_headers.py SOURCE"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

source = pathlib.Path(sys.argv[1])
with tempfile.TemporaryDirectory() as folder:
    copy, prefix = pathlib.Path(folder, "lockstep"), pathlib.Path(folder, "a prefix")
    shutil.copytree(source, copy, symlinks=True, ignore=shutil.ignore_patterns("build", ".git", "venv"))
    result = subprocess.run([copy / "dev", "install", prefix, "--headers"], env=dict(os.environ, LOCKSTEP_NO_SETUP="1"),
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100)
    if result.returncode != 0:
        sys.exit(f"exit code {result.returncode}:\n{result.stdout}")
    built = [path for kind in ("*.o", "*.a") for path in (copy / "build").rglob(kind)]
    if built:
        sys.exit(f"it compiled {built[0].relative_to(copy)}")
    for name in ("include/lockstep/lockstep.hpp", "include/lockstep/impl", "share/cmake/lockstep/lockstep-config.cmake", "bin/lockstep-plot"):
        if not (prefix / name).exists():
            sys.exit(f"{name} was not installed")
    if (prefix / "bin/lockstep-run").exists():
        sys.exit("lockstep-run was installed, but not built")
    flags = [line for line in (prefix / "share/pkgconfig/lockstep-core.pc").read_text().splitlines() if line.startswith("Cflags:")]
    if "-std=c++20" not in " ".join(flags):
        sys.exit(f"lockstep-core.pc does not give the flag for C++20: {flags}")
