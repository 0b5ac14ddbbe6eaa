#!/usr/bin/env python3
"""Runs `conan create` with the libraries of this Debian, for what is the default, core alone in both forms, testing, and cuda."""
import os
import pathlib
import re
import shutil
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
    recipe = pathlib.Path(folder, "lockstep")  # the test package is built in its source folder
    for part in ("cmake", "include", "packaging", "src"):
        shutil.copytree(source / part, recipe / part, ignore=shutil.ignore_patterns("build"))
    for part in ("conanfile.py", "CMakeLists.txt", "LICENSE"):
        shutil.copy(source / part, recipe)
    profile = ("-pr:a", str(recipe / "packaging/conan/debian.profile"))
    blocks = dict(re.findall(r"^```(cmake|ini)\n(.*?)^```", (source / "docs/index.md").read_text("utf-8"), re.MULTILINE | re.DOTALL))
    smallest = ("-o", "&:cpu=False", "-o", "&:cluster=False", "-o", "&:tensorboard=False", "-o", "&:onnx=False")
    has_nvidia = pathlib.Path("/usr/local/cuda/include/cuda.h").exists()
    compiled = (*smallest, "-o", "&:header_only=False")
    testing = ("-o", "&:cpu=False", "-o", "&:testing=True")
    for options in ((), smallest, compiled, testing, *([("-o", "&:cuda=True")] if has_nvidia else [])):
        output = conan("create", str(recipe), *profile, *options)
        if "slope 2.000" not in output:
            sys.exit(f"the test program did not run:\n{output}")
        if not options:  # the consumer of docs/index.md
            consumer = pathlib.Path(folder, "consumer")
            consumer.mkdir()
            (consumer / "conanfile.txt").write_text(blocks["ini"])
            (consumer / "CMakeLists.txt").write_text(blocks["cmake"])
            (consumer / "app.cpp").write_text("#include <lockstep/core/version.hpp>\nint main() {}\n")
            conan("install", str(consumer), *profile)
            subprocess.run(["cmake", "--preset", "conan-release"], cwd=consumer, check=True)
            subprocess.run(["cmake", "--build", "--preset", "conan-release"], cwd=consumer, check=True)
        installs_cpu = "lockstep-cpu-targets.cmake" in output
        installs_cuda = "lockstep-cuda-targets.cmake" in output
        if ("lockstep-testing-targets.cmake" in output) != (options == testing):
            sys.exit(f"wrong components with {options}:\n{output}")
        if ("liblockstep_compiled.a" in output) != (options == compiled):
            sys.exit(f"wrong form with {options}:\n{output}")
        if installs_cpu == ("&:cpu=False" in options) or installs_cuda != ("&:cuda=True" in options):
            sys.exit(f"wrong components with {options}:\n{output}")
