#!/usr/bin/env python3
"""Installs the build tree into a temporary prefix and runs what lies in its bin folder.
Usage: installed_tools.py CMAKE BUILD_TREE"""
import pathlib
import subprocess
import sys
import tempfile

cmake, build = sys.argv[1:]


def run(*command) -> str:
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    if result.returncode != 0:
        sys.exit(f"exit code {result.returncode}: {' '.join(map(str, command))}\n{result.stdout}")
    return result.stdout


with tempfile.TemporaryDirectory() as prefix:
    run(cmake, "--install", build, "--prefix", prefix)
    programs = pathlib.Path(prefix, "bin")
    output = run(programs / "lockstep-run", "-n", "2", "sh", "-c", 'echo "rank $LOCKSTEP_RANK"')
    if sorted(output.splitlines()) != ["[0] rank 0", "[1] rank 1"]:
        sys.exit(f"lockstep-run did not start two workers:\n{output}")
    if "REPORT" not in run(programs / "lockstep-plot", "--help"):
        sys.exit("lockstep-plot does not explain itself")
