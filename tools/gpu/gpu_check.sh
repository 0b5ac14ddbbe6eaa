#!/usr/bin/env bash
# Checks lockstep on a machine with a GPU but without compilers and packages, with the output of `./dev gpu-pack`.
#
# usage: gpu_check.sh PHASE [FOLDER]     FOLDER: for the results; default $OUT, else /tmp/out
#
#   a  versions, three smoke cases, the probe, every test case in a separate process
#   b  steps of mnist_cuda at 1, 8, 50 steps per execution and of ResNet-56 in four precisions; their profiles; ncu
#   c  the same steps, compared with PyTorch and JAX
#   d  compute-sanitizer over a short suite
#
# The commands of a phase end within 550 seconds (LOCKSTEP_GPU_SECONDS), even if one hangs; commands that were not reached are
# listed as "no time". Output: PHASE.json, PHASE.log and, in phases a and b, cache.tgz with the compiled kernels and, in b, the
# autotuner's results; the next run unpacks it if it is in the pack's folder. Exit code 0: success; 1: something failed; 3: all
# smoke cases failed for the same reason, and the rest was skipped.
set -uo pipefail
begun=$(date +%s)

phase=${1:-}
[[ $phase == [abcd] && $# -le 2 ]] || { echo "usage: gpu_check.sh a|b|c|d [FOLDER]" >&2; exit 2; }
here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
pack=$here
[[ -e $pack/programs.tar.xz || -d $pack/bin ]] || pack=$here/../../build/gpu
[[ -e $pack/programs.tar.xz || -d $pack/bin ]] || { echo "gpu_check.sh: no pack in $here; create one with ./dev gpu-pack" >&2; exit 2; }
pack=$(cd "$pack" && pwd) bin=$pack/bin
[[ -d $bin ]] || python3 -m tarfile -e "$pack/programs.tar.xz" "$pack" || exit 2
out=${2:-${OUT:-/tmp/out}}
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
json=$out/$phase.json
export LOCKSTEP_GPU_UNTIL=$((begun + ${LOCKSTEP_GPU_SECONDS:-550})) PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
export LOCKSTEP_GOLDEN_DIR=$pack/golden LOCKSTEP_GPU_PACK=$pack

# Libraries of NVIDIA's Python packages and of the toolkit, or the emulation on the host if the pack contains it.
folders=$(timeout 20 python3 -c 'import nvidia; print(list(nvidia.__path__)[0])' 2>/dev/null)
folders=${folders:+$folders/cu13/lib:$folders/cudnn/lib:$folders/nccl/lib:}/usr/local/cuda/lib64:/usr/local/nvidia/lib64:/usr/local/nvidia/lib
if [[ -d $pack/host ]]; then
  folders=$pack/host/lib
  export LOCKSTEP_GPU_CHECK=small LOCKSTEP_HOST_GPU_STORE=$pack/host/store
fi
export LD_LIBRARY_PATH=$folders${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
small=${LOCKSTEP_GPU_CHECK:-}
if [[ $small != small ]]; then
  for folder in /usr/local/nvidia/bin /usr/local/cuda/bin /opt/nvidia/nsight-compute/*/; do PATH=$PATH:$folder; done
fi

[[ -d $pack/cache || ! -e $pack/cache.tgz ]] || tar xzf "$pack/cache.tgz" -C "$pack"
export LOCKSTEP_KERNEL_CACHE=${LOCKSTEP_KERNEL_CACHE:-$pack/cache}
mkdir -p "$LOCKSTEP_KERNEL_CACHE" 2>/dev/null && [[ -w $LOCKSTEP_KERNEL_CACHE ]] || export LOCKSTEP_KERNEL_CACHE=$work/cache
[[ ! -e $pack/data/mnist ]] || export LOCKSTEP_MNIST=$pack/data/mnist
[[ ! -e $pack/golden_full ]] || export LOCKSTEP_GOLDEN_FULL=$pack/golden_full
[[ $small != small ]] || unset LOCKSTEP_GOLDEN_FULL  # takes minutes in the emulation on the host

failed=0
log() { echo "== $(date +%T) $*"; }
# step KIND NAME SECONDS [--figures FILE] [--as FORM] COMMAND...
step() {
  local more=()
  while [[ $4 == --* ]]; do more+=("$4" "$5"); set -- "$1" "$2" "$3" "${@:6}"; done
  (cd "$work" && python3 "$here/gpu_record.py" --into "$json" --kind "$1" --name "$2" --seconds "$3" "${more[@]}" "${@:4}") || failed=1
}
# try TOOL and the arguments of step: runs the step if TOOL is installed.
try() {
  if type -P "$1" >/dev/null; then step "${@:2}"; else log "$3: $1 was not found"; fi
}
cases() { (cd "$work" && python3 "$here/gpu_cases.py" "$json" "$@"); }

# Adds the libraries of the pack that this machine lacks, and only those: the pack may have older versions than other
# programs here need.
missing_libraries() {
  local name found=1
  mkdir -p "$work/lib"
  export LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$work/lib
  while ((found)); do  # a library of the pack may need others
    found=0
    for name in $(ldd "$bin"/* "$pack"/host/lib/* 2>/dev/null | awk '/not found/ { print $1 }' | sort -u); do
      [[ -e $pack/lib/$name && ! -e $work/lib/$name ]] || continue
      ln -s "$pack/lib/$name" "$work/lib/" && echo "$name: using the version in the pack" && found=1
    done
  done
}

versions() {
  local failed  # a missing peer or tool does not fail the phase
  step version pack 5 cat "$pack/version"
  local query=name,driver_version,memory.total,clocks.sm,clocks.max.sm,clocks.mem,ecc.mode.current,compute_mode
  try nvidia-smi version nvidia-smi 30 --as smi nvidia-smi --id=0 --query-gpu=$query --format=csv
  step version machine 20 bash -c 'nproc; uname -srm; head -n 2 /etc/os-release 2>/dev/null; for tool in nvcc ncu compute-sanitizer; do
    type -P $tool || echo "$tool was not found"; done'
  step version libraries 20 bash -c 'IFS=:; for folder in $LD_LIBRARY_PATH; do
    ls -L -d "$folder"/lib{cuda.so.1,nvrtc.so.13,cublasLt.so.13,cudnn.so.9,nccl.so.2} 2>/dev/null; done; true'
  step version PyTorch 60 python3 -c 'import torch
print(torch.__version__, torch.version.cuda, torch.backends.cudnn.version(), torch.cuda.nccl.version())'
  step version JAX 60 python3 -c 'import jax; print(jax.__version__)'
}

smoke=('from the second epoch on each step of fit is one graph with the same results, bit by bit'
       'optimizers on the GPU agree with the reference'
       "convolutions of the models' kinds agree with the reference")
phase_a() {
  local code name only=() jobs
  versions
  for name in "${smoke[@]}"; do only+=(--only "$name"); done
  log "three smoke cases"
  cases --kind smoke --seconds 120 "${only[@]}" "$bin"/unit_devices_cuda{,_ops,_ops_convolution}
  code=$?
  if ((code)); then
    failed=1
    log "again, with LOCKSTEP_CUDA_CHECK=1: errors name the kernel"
    LOCKSTEP_CUDA_CHECK=1 cases --kind smoke --seconds 60 "${only[@]}" "$bin"/unit_devices_cuda{,_ops,_ops_convolution}
  fi
  if ((code == 3)); then
    step stop "all smoke cases failed for the same reason: the probe and the other cases were skipped" 10 true
    return 3
  fi
  step probe gpu_probe 90 --figures "$work/probe.json" --as probe "$bin/gpu_probe" ${small:+--small} --json "$work/probe.json"
  log "every case"
  jobs=$(nproc)
  # One after the other, since these cases have time limits.
  cases --seconds "${LOCKSTEP_GPU_CASE_SECONDS:-90}" "$bin"/distributed_* || failed=1
  local slow=(--slow)
  [[ $small != small ]] || slow=()  # takes hours in the emulation on the host
  cases "${slow[@]}" --jobs $((jobs < 10 ? jobs : 10)) --seconds "${LOCKSTEP_GPU_CASE_SECONDS:-90}" "$bin"/{unit,golden}_* || failed=1
  # Discards the autotuner's results: they were measured while nine other processes ran.
  rm -f "$LOCKSTEP_KERNEL_CACHE"/*.winner
  # cuDNN's description of this GPU, for planning on machines without one.
  cp "$work"/*.deviceprop.json "$out/" 2>/dev/null
}

phase_b() {
  local n mnist=(--steps-per-epoch 400) resnet=(--depth 56 --batch 128 --steps-per-epoch 50) epochs=(12 6)
  local report=(--progress none --report "$work/report.json") executions=(1 8 50) together=50
  if [[ $small == small ]]; then
    mnist=(--steps-per-epoch 4 --batch 4) executions=(1 2 4) epochs=(2 2)
    resnet=(--depth 20 --batch 2 --steps-per-epoch 1) together=1
  fi
  [[ ! -e $pack/data/mnist ]] || mnist+=(--data "$pack/data/mnist")
  for n in "${executions[@]}"; do
    step steps "mnist_cuda, $n steps per execution" 80 --figures "$work/report.json" --as report \
      "$bin/mnist_cuda" "${mnist[@]}" --epochs "${epochs[0]}" --steps-per-execution "$n" "${report[@]}"
  done
  for n in float32 tf32 mixed_bfloat16 mixed_float16; do
    step steps "ResNet, $n" 110 --figures "$work/report.json" --as report \
      "$bin/cifar10_cuda" "${resnet[@]}" --epochs "${epochs[1]}" --no-augment --steps-per-execution $together --precision $n "${report[@]}"
  done
  step steps "mnist_mirrored_cuda, two replicas on one GPU" 60 --figures "$work/report.json" --as report \
    "$bin/mnist_mirrored_cuda" "${mnist[@]}" --epochs "${epochs[0]}" --replicas 2 "${report[@]}"
  local profile=(--as profile --figures "$work/profile.json") one=(--epochs 1 --progress none --profile "$work/profile.json")
  step profile "mnist_cuda, float32" 60 "${profile[@]}" "$bin/mnist_cuda" "${mnist[@]}" "${one[@]}"
  local halves=(mixed_bfloat16 mixed_float16)
  [[ $small != small ]] || halves=()  # takes minutes in the emulation on the host
  for n in "${halves[@]}"; do
    step profile "ResNet, $n" 100 "${profile[@]}" "$bin/cifar10_cuda" "${resnet[@]}" --no-augment --precision $n "${one[@]}"
  done
  local metrics=gpu__time_duration.sum,launch__registers_per_thread,sm__warps_active.avg.pct_of_peak_sustained_active
  metrics+=,dram__bytes.sum,lts__t_bytes.sum
  try ncu profile "kernels of mnist_cuda by ncu" 120 --as csv ncu --clock-control none --graph-profiling node --launch-skip 60 \
    --launch-count 30 --metrics $metrics --csv "$bin/mnist_cuda" --epochs 1 --steps-per-epoch 12 --progress none
}

phase_c() {
  local peers=("$pack/peers/gpu.py") long=(--rounds 3 --steps 500)
  [[ -e ${peers[0]} ]] || peers=("$here/../../benchmarks/peers/gpu.py")
  [[ $small != small ]] || long=(--dry-run --batch 2)
  peers=(python3 "${peers[@]}" --bin "$bin" --python "$(type -P python3)" --json "$work/peers.json" "${long[@]}")
  step peers "the tutorials' CNN" 280 --figures "$work/peers.json" --as peers "${peers[@]}" --work cnn-float32 --budget 265
  step peers ResNet-56 290 --figures "$work/peers.json" --as peers "${peers[@]}" --work resnet-bfloat16 --budget 275
}

phase_d() {
  local tool suite
  for tool in memcheck racecheck initcheck; do
    for suite in layers activations losses metrics optimizers; do
      try compute-sanitizer sanitizer "$tool, Cuda's $suite" 45 compute-sanitizer --tool $tool --error-exitcode 9 \
        "$bin/golden_cuda" "Cuda's $suite *"
    done
  done
}

check() {
  python3 "$here/gpu_record.py" --into "$json" --begin "$phase" tools/gpu/gpu_check.sh "$phase"
  missing_libraries
  "phase_$phase"
  local code=$?
  python3 "$here/gpu_table.py" "$json" >"$work/table.md" && cp "$work/table.md" "$out/$phase.md"
  if [[ $phase == [ab] ]]; then
    timeout 20 tar czf "$out/cache.tgz" -C "$(dirname "$LOCKSTEP_KERNEL_CACHE")" "$(basename "$LOCKSTEP_KERNEL_CACHE")"
    [[ $(stat -c %s "$out/cache.tgz") -lt $((16 << 20)) ]] || rm "$out/cache.tgz"  # limit of a single returned file
  fi
  log "phase $phase ends after $((SECONDS)) s"
  ((code == 3)) && return 3
  return $failed
}
check 2>&1 | tee "$out/$phase.log"
exit "${PIPESTATUS[0]}"
