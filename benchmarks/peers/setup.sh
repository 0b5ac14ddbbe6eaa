#!/bin/sh
# Creates the virtual environment of the peer programs, compiles the C++ ones into its bin, and prints the versions.
# Usage: benchmarks/peers/setup.sh [--venv DIR]   (default: .venv next to this file; needs 7 GB)
set -eu

here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
venv=$here/.venv

while [ $# -gt 0 ]; do
  case $1 in
    --venv)
      [ $# -ge 2 ] && [ -n "$2" ] || { echo "setup.sh: --venv needs a folder" >&2; exit 2; }
      venv=$2
      shift 2
      ;;
    -h | --help) sed -n '2,3s/^# //p' "$0"; exit 0 ;;
    *) echo "setup.sh: unknown option '$1'; see --help" >&2; exit 2 ;;
  esac
done

[ -x "$venv/bin/python" ] || python3 -m venv "$venv" || {
  echo "setup.sh: python3 cannot make a virtual environment; on Debian: apt-get install python3-venv" >&2
  exit 1
}
"$venv/bin/python" -m pip install --quiet torch tensorflow-cpu

# The C++ peers, compiled as their users do: LibTorch comes from the torch package, dlib from Debian, with OpenBLAS.
cxx=${CXX:-g++}
torch=$("$venv/bin/python" -c 'import os, torch; print(os.path.dirname(torch.__file__))')
"$cxx" -std=c++20 -O3 -march=native "-I$torch/include" "-I$torch/include/torch/csrc/api/include" \
  "$here/libtorch_mnist.cpp" -o "$venv/bin/libtorch_mnist" "-L$torch/lib" "-Wl,-rpath,$torch/lib" \
  -Wl,--no-as-needed -ltorch -ltorch_cpu -lc10
if [ -e /usr/include/dlib/dnn.h ]; then
  "$cxx" -std=c++17 -O3 -march=native "$here/dlib_mnist.cpp" -o "$venv/bin/dlib_mnist" -ldlib -lopenblas -lpthread
else
  echo "setup.sh: dlib is left out; on Debian: apt-get install libdlib-dev libopenblas-dev" >&2
fi

TF_CPP_MIN_LOG_LEVEL=2 CUDA_VISIBLE_DEVICES=-1 "$venv/bin/python" - <<'PYTHON'
import platform
import keras
import numpy
import tensorflow
import torch

print("python", platform.python_version())
for module in (torch, tensorflow, keras, numpy):
    print(module.__name__, module.__version__)
PYTHON
