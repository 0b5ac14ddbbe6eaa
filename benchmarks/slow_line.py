"""Two workers in network namespaces, joined by a line of limited bandwidth (network/slow_switch.cpp): what update policies and
formats on the wire cost there. Needs root.

    benchmarks/slow_line.py --bin build/release/bin --data DIR      # the folder of mnist/ and cifar10/

In each round the runs follow each other; median and minimum are those of the rounds.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from forecast_error import ROOT, Switch

MNIST = ["mnist_multi_worker", "--data", "mnist", "--optimizer", "adam", "--batch", 64]
HUNDRED = ["--steps-per-epoch", 100]
RESNET = ["cifar10_multi_worker", "--data", "cifar10", "--depth", 20, "--batch", 128]
DILOCO = ["--steps-per-epoch", 200, "--update", "diloco", "--sync-every", 100]
LAN, GIGABIT, CITIES = (0, 10_000), (0.2, 1_000), (40, 20)  # round trip in ms, Mbit/s
RUNS = {
    "MNIST CNN": [(GIGABIT, MNIST, HUNDRED), (GIGABIT, MNIST, [*HUNDRED, "--wire", "bfloat16"])],
    "ResNet-20, two cities": [(LAN, RESNET, DILOCO), (CITIES, RESNET, DILOCO), (CITIES, RESNET, ["--steps-per-epoch", 30])],
}


def measure(options, folder, line, program, more):
    """Milliseconds a step, and bytes that a worker sends in one."""
    trip, rate = line
    name, folder_option, data, *rest = program
    report = folder / "report.json"
    switch = Switch(folder / "slow_switch", 2, 1, trip / 1000, rate * 125_000)
    try:
        command = [options.bin / name, folder_option, (options.data / data).resolve(), *rest, "--epochs", 1, "--threads", 1, "--quiet", *more]
        switch.run(2, lambda rank: [*command, *(["--report", report] if rank == 0 else [])])
    finally:
        switch.close()
    found = json.loads(report.read_text())
    return 1000 * found["epochs"][0]["seconds"] / found["steps"], found.get("wire_bytes", 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    os.environ["LOCKSTEP_BIN"] = str(options.bin)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        subprocess.run(["g++", "-std=c++20", "-O2", ROOT / "benchmarks/network/slow_switch.cpp", "-o", folder / "slow_switch"], check=True)
        print("| program | line | options | median, ms a step | min | / first | bytes sent a step |")
        print("|---|---|---|--:|--:|--:|--:|")
        for title, runs in RUNS.items():
            found = [[] for _ in runs]
            for _ in range(options.rounds):
                for one, run in zip(found, runs):
                    one.append(measure(options, folder, *run))
            first = statistics.median(time for time, _ in found[0])
            for ((trip, rate), _, more), times in zip(runs, found):
                median = statistics.median(time for time, _ in times)
                print(f"| {title} | {rate} Mbit/s, {trip} ms | {' '.join(map(str, more))} | {median:.2f} | {min(times)[0]:.2f} | "
                      f"{median / first:.2f} | {times[-1][1]} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
