#!/usr/bin/env python3
"""A user's program for GPUs, by the compilers that cuda.py leaves out."""
import sys

import cuda

if __name__ == "__main__":
    if not (cuda.BIN / "mnist_cuda").exists():
        print("the programs for GPUs were not built: this machine has no CUDA toolkit")
        sys.exit(4)
    cuda.compile_and_run({"clang++": cuda.STRICT, "nvcc": ["-x", "cu"]})
