#!/usr/bin/env python3
"""Runs `conan create` with the libraries of this Debian, for all components and for core alone."""
import os
import pathlib
import subprocess
import sys
import tempfile
import venv

source = pathlib.Path(sys.argv[1])
with tempfile.TemporaryDirectory() as folder:
    venv.create(f"{folder}/venv", with_pip=True)
    pip = subprocess.run([f"{folder}/venv/bin/pip", "install", "--quiet", "conan>=2.4"],
                         capture_output=True, text=True)
    if pip.returncode != 0:
        print("skipped: PyPI gives no Conan:", pip.stderr.strip().splitlines()[-1])
        sys.exit(4)

    def conan(*arguments: str) -> str:
        run = subprocess.run([f"{folder}/venv/bin/conan", *arguments], stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True,
                             env=os.environ | {"CONAN_HOME": f"{folder}/home"})
        if run.returncode != 0:
            sys.exit(f"{run.stdout}\nconan {' '.join(arguments)}: exit code {run.returncode}")
        return run.stdout

    conan("profile", "detect")
    profile = ("-pr:a", str(source / "packaging/conan/debian.profile"),
               "-tbf", f"{folder}/test_package")
    for options in ((), ("-o", "&:cpu=False", "-o", "&:cluster=False")):
        output = conan("create", str(source), *profile, *options)
        if "slope 2.000" not in output:
            sys.exit(f"the test program did not run:\n{output}")
        installs_cpu = "lockstep-cpu-targets.cmake" in output
        if installs_cpu == bool(options):
            sys.exit(f"wrong components with {options}:\n{output}")
