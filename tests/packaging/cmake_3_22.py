#!/usr/bin/env python3
"""Configures, installs and uses the package with CMake 3.22, the oldest that may be used.
Usage: cmake_3_22.py SOURCE COMPILER"""
import pathlib
import subprocess
import sys
import tempfile
import venv

source, compiler = sys.argv[1:]


def run(*command) -> str:
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode != 0:
        sys.exit(f"exit code {result.returncode}: {' '.join(map(str, command))}\n{result.stdout}")
    return result.stdout


with tempfile.TemporaryDirectory() as folder:
    venv.create(f"{folder}/venv", with_pip=True)
    pip = subprocess.run([f"{folder}/venv/bin/pip", "install", "--quiet", "cmake==3.22.*"], capture_output=True, text=True)
    if pip.returncode != 0:
        print("skipped: PyPI gives no CMake 3.22:", pip.stderr.strip().splitlines()[-1])
        sys.exit(4)
    cmake, tree, prefix = f"{folder}/venv/bin/cmake", f"{folder}/tree", f"{folder}/prefix"
    # The tests, examples and benchmarks are configured, too.
    run(cmake, "-S", source, "-B", tree, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_CXX_COMPILER={compiler}")
    run(cmake, "--install", tree, "--prefix", prefix)
    user = pathlib.Path(source, "tests/consumers/project")
    for name, more in {"installed": [f"-DCMAKE_PREFIX_PATH={prefix}"],
                       "subdirectory": [f"-DLOCKSTEP_SOURCE={source}", "-DLOCKSTEP_COMPONENTS=core"]}.items():
        run(cmake, "-S", user, "-B", f"{folder}/{name}", "-G", "Ninja", "-DCOMPONENTS=core", f"-DCMAKE_CXX_COMPILER={compiler}",
            *more)
        run(cmake, "--build", f"{folder}/{name}")
        if "(28, 28, 1)" not in run(f"{folder}/{name}/core_program"):
            sys.exit(f"{name}: the program does not run")
