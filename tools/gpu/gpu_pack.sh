#!/usr/bin/env bash
# Packs the files that gpu_check.sh needs on a bare machine with a GPU into build/gpu. `./dev gpu-pack` builds the programs first.
#
# usage: gpu_pack.sh ROOT [--host]       ROOT: the repository, with build/test and build/release
#
#   programs.tar.xz  bin/: tests of the CUDA device, programs and benchmarks for GPUs, stripped; lib/: their libraries
#                    except the C library, used where the machine lacks one
#   golden/          Keras' figures for the tests; golden_full/, data/mnist: those of ../shared, or of
#                    LOCKSTEP_GOLDEN_FULL and LOCKSTEP_MNIST
#   peers/           benchmarks/peers/gpu.py and its dependencies
#   gpu_*            the scripts
#   host/            with --host: emulation of the driver and of NVRTC on the host; not counted in the size
set -euo pipefail

root=$(cd "$1" && pwd) host=${2:-}
max_mb=50  # limit of the transfer to such a machine
test=$root/build/test release=$root/build/release to=$root/build/gpu
log() { echo "gpu_pack: $*" >&2; }

rm -rf "$to"
mkdir -p "$to"/{bin,lib,data,golden,peers}

programs=("$release"/bin/{mnist_cuda,mnist_mirrored_cuda,cifar10_cuda,gpu_probe})
while read -r name; do programs+=("$test/bin/$name"); done <"$test/cuda_tests.txt"
for program in "${programs[@]}"; do
  strip -s -o "$to/bin/$(basename "$program")" "$program"
done
ldd "$to"/bin/* | awk '$3 ~ /^\// { print $3 }' | sort -u |
  grep -vE '/(libc|libm|libpthread|libdl|librt|ld-linux[^/]*)\.so' | xargs -r cp -L -t "$to/lib"

cp "$root"/tools/gpu/gpu_{check.sh,record.py,cases.py,table.py} "$to/"
cp "$root"/benchmarks/peers/{gpu,gpu_support,gpu_pytorch,gpu_jax,pytorch_model,pytorch_resnet_model,support,runs}.py "$to/peers/"
git -C "$root" describe --always --dirty --abbrev=12 >"$to/version" 2>/dev/null || echo "not a git repository" >"$to/version"
cp "$root"/tests/golden/data/* "$to/golden/"
full=${LOCKSTEP_GOLDEN_FULL:-$root/../shared/golden}
if compgen -G "$full/mnist_cnn_*.safetensors" >/dev/null; then
  mkdir "$to/golden_full"
  cp "$full"/mnist_cnn_*.safetensors "$to/golden_full/"
fi
mnist=${LOCKSTEP_MNIST:-$root/../shared/data/mnist}
if [[ -d $mnist ]]; then
  mkdir "$to/data/mnist"
  cp "$mnist"/*-ubyte* "$to/data/mnist/"
else
  log "MNIST was not found: the programs use synthetic digits (set LOCKSTEP_MNIST to its folder)"
fi

count=$(find "$to/bin" -type f | wc -l)
# The programs have much code in common, further apart than gzip can refer back.
tar cf - -C "$to" bin lib | xz --lzma2=preset=1,dict=64MiB >"$to/programs.tar.xz"
rm -r "${to:?}"/{bin,lib}
size_of() { du -sk --apparent-size "$1" | cut -f 1; }
# Needed by one slow case, which is skipped without it.
resnet=$full/resnet56.safetensors
if [[ -e $resnet ]] && (($(size_of "$to") + $(size_of "$resnet") <= max_mb * 1000)); then
  mkdir -p "$to/golden_full"
  cp "$resnet" "$to/golden_full/"
fi
size=$(size_of "$to")
if ((size > max_mb * 1000)); then
  log "the pack has $((size / 1000)) MB, more than the limit of $max_mb MB; remove some of:"
  du -k --apparent-size "$to"/* | sort -rn | head -n 5 >&2
  exit 1
fi

if [[ $host == --host ]]; then
  mkdir -p "$to"/host/{lib,store}
  cp "$test"/host_gpu/*.so.* "$to/host/lib/"
  strip -s "$to"/host/lib/*
  [[ ! -d $test/host_gpu/store ]] || cp -r "$test"/host_gpu/store "$to/host/"  # from an earlier run of gpu_check_slow.py
fi
chmod -R u+w "$to"

log "$to: $((size / 1000)) MB, $count programs"
[[ $host == --host ]] || cat <<TEXT
On a machine with a GPU, in a folder that contains build/gpu (needs bash and python3; torch and jax for phase c):

  bash build/gpu/gpu_check.sh a OUT    # versions, three smoke cases, the probe, every test case
  bash build/gpu/gpu_check.sh b OUT    # steps of the programs;   c: compared with PyTorch and JAX;   d: compute-sanitizer

Then, on this machine, with the files of OUT:

  tools/gpu/gpu_table.py OUT/*.json --into docs/gpu-results.md
TEXT
