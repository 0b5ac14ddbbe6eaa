"""The tutorials' program learns as Keras does: drawn digits always, real MNIST where $LOCKSTEP_MNIST names it.

Keras 3.15 reaches, on real MNIST after 3 epochs with batch 64: SGD(0.001) 0.863, 0.875, 0.872; Adam(0.001) 0.9824,
0.9818, 0.9821. One seed; accuracy_slow.py has the others.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

BIN = pathlib.Path(os.environ["LOCKSTEP_BIN"])


def accuracy(*options):
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        command = [BIN / "mnist", "--validate", "--quiet", "--report", report, *map(str, options)]
        subprocess.run(command, check=True, timeout=600)
        return json.loads(report.read_text())["epochs"][-1]["val_accuracy"]


def main(seeds):
    failures = 0

    def expect(what, value, low, high):
        nonlocal failures
        good = low <= value <= high
        failures += not good
        print(f"{'ok  ' if good else 'FAIL'} {what}: {value:.4f}, expected {low} to {high}", flush=True)

    expect("drawn digits, adam", accuracy("--optimizer", "adam"), 0.95, 1.0)
    data = os.environ.get("LOCKSTEP_MNIST")
    if not data:
        print("real MNIST left out: set LOCKSTEP_MNIST to a folder with its files")
        return failures
    for seed in seeds:
        expect(f"MNIST, sgd 0.001, seed {seed}", accuracy("--data", data, "--seed", seed), 0.84, 0.90)
        expect(f"MNIST, adam 0.001, seed {seed}", accuracy("--data", data, "--seed", seed, "--optimizer", "adam"), 0.979, 1.0)
    return failures


if __name__ == "__main__":
    sys.exit(main([1]) != 0)
