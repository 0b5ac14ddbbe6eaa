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
    report = run(programs / "lockstep-run", "-n", "1", "--check")  # finds lockstep-doctor next to itself
    if not report.splitlines()[-1].startswith("verdict: ready to train"):
        sys.exit(f"lockstep-doctor found problems:\n{report}")
    if "REPORT" not in run(programs / "lockstep-plot", "--help"):
        sys.exit("lockstep-plot does not explain itself")
    if run(programs / "lockstep-forecast", "--version") != run(programs / "lockstep-run", "--version").splitlines()[0] + "\n":
        sys.exit("lockstep-forecast has another version")
    python = pathlib.Path(prefix, "share/lockstep/python")
    for framework in ("keras", "torch"):  # they need packages, so that they are not run
        command = programs / f"lockstep-{framework}-model"
        if command.resolve() != (python / f"{framework}_model.py").resolve() or not (command.stat().st_mode & 0o100):
            sys.exit(f"{command.name} is not a link to {framework}_model.py, or not executable")
    run(sys.executable, "-c", f"import sys; sys.path.insert(0, '{python}'); import model_files")
