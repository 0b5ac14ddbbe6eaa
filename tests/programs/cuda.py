#!/usr/bin/env python3
"""The programs for GPUs: a compiler accepts what a user writes (cuda_slow.py: the others, too), nothing of NVIDIA's is linked,
and a machine without a driver gets one sentence and exit code 1. With a GPU they train."""
import ctypes
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

BIN = pathlib.Path(os.environ["LOCKSTEP_BIN"])
HERE = pathlib.Path(__file__).resolve().parent
MISSING = "cuda: libcuda.so.1 cannot be loaded ("


def has_driver() -> bool:
    """Whether there is a driver, and it has a GPU."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    if driver.cuInit(0) != 0:
        print("left out: this machine has a driver, and no GPU that it can use")
        sys.exit(4)
    return True


def run(*command, expect: int = 0) -> subprocess.CompletedProcess:
    result = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if result.returncode != expect:
        sys.exit(f"{' '.join(map(str, command))} ended with {result.returncode}, not {expect}:\n"
                 f"{result.stdout[-2000:]}{result.stderr[-4000:]}")
    return result


def include_folders() -> list[str]:
    """Those of NVIDIA's headers, as the build found them."""
    cache = (BIN.parent / "CMakeCache.txt").read_text("utf-8")
    return sorted(set(re.findall(r"^Nvidia_\w+_INCLUDE_DIR:PATH=(.+)$", cache, re.MULTILINE)))


STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]


def compile_and_run(compilers: dict[str, list[str]]) -> None:
    """A user's program, with the flags of each compiler."""
    folders = [f for folder in include_folders() for f in ("-isystem", folder)]
    with tempfile.TemporaryDirectory() as folder:
        for compiler, flags in compilers.items():
            found = shutil.which(compiler) or shutil.which(compiler, path="/usr/local/cuda/bin")
            if not found:
                print(f"left out: {compiler} is not here")
                continue
            program = pathlib.Path(folder, compiler.strip("+"))
            run(found, "-std=c++20", *flags, f"-I{HERE.parents[1] / 'include'}", *folders, HERE / "cuda_program.cpp",
                "-o", program, "-lfmt", "-lz", "-lcrypto", "-ldl", "-lpthread")
            reported = run(program).stdout
            if not reported.startswith("it learns" if has_driver() else MISSING):
                sys.exit(f"the program compiled by {compiler} prints: {reported}")


def main() -> None:
    if not (BIN / "mnist_cuda").exists():
        print("the programs for GPUs were not built: this machine has no CUDA toolkit")
        sys.exit(4)
    for path in sorted(BIN.glob("*_cuda")):  # the build of the tests has one of each strategy
        name = path.name
        if name.startswith(("unit_", "golden_")):
            continue
        linked = run("ldd", BIN / name).stdout
        if re.search(r"libcu|libnv|libnccl|dnnl", linked):
            sys.exit(f"{name} links more than it should:\n{linked}")
        if "--threads" in run(BIN / name, "--help").stdout:
            sys.exit(f"{name} offers --threads")

    one_step = ("--steps-per-epoch", "2", "--epochs", "1", "--progress", "none")
    if has_driver():
        run(BIN / "mnist_cuda", *one_step)
        run(BIN / "mnist_mirrored_cuda", *one_step)
    else:
        for name in ("mnist_cuda", "mnist_mirrored_cuda"):
            reported = run(BIN / name, *one_step, expect=1)
            if not reported.stderr.startswith(f"{name}: {MISSING}") or reported.stderr.count("\n") != 1 or reported.stdout:
                sys.exit(f"{name} does not report what is missing in one sentence: {reported.stderr}{reported.stdout}")

    compile_and_run({"g++": STRICT})


if __name__ == "__main__":
    main()
