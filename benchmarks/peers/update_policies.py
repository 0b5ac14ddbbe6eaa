"""Steps of two workers on this machine, under lockstep's update policies and under PyTorch's: DistributedDataParallel over Gloo
with Adam, with Adam in ZeroRedundancyOptimizer, and with the hook that sends bfloat16; the tutorials' CNN, 64 images a step.

    benchmarks/peers/setup.sh                                          # PyTorch, in benchmarks/peers/.venv
    benchmarks/peers/.venv/bin/python benchmarks/peers/update_policies.py --data DIR      # --bin build/release/bin

In each round the programs run one after the other, each worker with one thread. Both sides count data, forward, backward,
exchange, update and metrics; see support.py.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
STEPS = 600


def ours(options, *more):
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        subprocess.run([options.bin / "lockstep-run", "-n", "2", options.bin / "mnist_multi_worker", "--data", options.data,
                        "--epochs", "1", "--steps-per-epoch", str(STEPS), "--threads", "1", "--optimizer", "adam", "--quiet",
                        "--report", report, *more],
                       check=True, capture_output=True, env={**os.environ, "LOCKSTEP_TRANSPORT": options.transport})
        return json.loads(report.read_text())["step_ms"]["median"]


def pytorch(*more):
    done = subprocess.run([sys.executable, HERE / "pytorch_ddp_mnist.py", "--steps", str(STEPS), *more],
                          check=True, capture_output=True, text=True)
    return json.loads(done.stdout)["step_ms"]["median"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=HERE.parents[1] / "build/release/bin")
    parser.add_argument("--data", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--transport", default="shared_memory", choices=("shared_memory", "tcp"), help="of lockstep")
    options = parser.parse_args()
    programs = {
        "lockstep, replicated": lambda: ours(options),
        "lockstep, sharded": lambda: ours(options, "--update", "sharded"),
        "lockstep, local steps, a synchronisation each 16": lambda: ours(options, "--update", "local", "--sync-every", "16"),
        "lockstep, bfloat16 on the wire": lambda: ours(options, "--wire", "bfloat16"),
        "lockstep, PowerSGD of rank 1": lambda: ours(options, "--wire", "power_sgd"),
        "PyTorch, DDP": lambda: pytorch("--optimizer", "adam"),
        "PyTorch, ZeroRedundancyOptimizer": lambda: pytorch("--optimizer", "zero"),
        "PyTorch, bf16 hook": lambda: pytorch("--optimizer", "adam", "--hook", "bf16"),
    }
    times = {name: [] for name in programs}
    for _ in range(options.rounds):
        for name, measure in programs.items():
            times[name].append(measure())
    first = statistics.median(times["lockstep, replicated"])
    print("| program | median, ms a step | min | / lockstep, replicated |\n|---|--:|--:|--:|")
    for name, values in times.items():
        middle = statistics.median(values)
        print(f"| {name} | {middle:.3f} | {min(values):.3f} | {middle / first:.2f} |")


if __name__ == "__main__":
    sys.exit(main())
