"""ResNet-20 learns real CIFAR-10 as PyTorch does, with the tutorial's recipe: three epochs, three seeds each.

Skipped unless $LOCKSTEP_CIFAR10 names a folder with the binary version. Takes a quarter of an hour on two free cores.
PyTorch's runs are recorded in training_pytorch.json, made by
`benchmarks/peers/pytorch_cifar10.py DIR OUT --merge FILE` (TensorFlow's padding, weight decay 4e-4 on kernels and biases of
convolutions and of the dense layer, since Keras' L2 has the gradient 2 l2 w). A single seed is not meaningful: seeds differ by
more than our bounds. After the first epochs the moving statistics lag behind (momentum 0.997), so that the accuracy on
test images means something after the third one only.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

BIN = pathlib.Path(os.environ["LOCKSTEP_BIN"])
RECORDED = pathlib.Path(__file__).with_name("training_pytorch.json")
SEEDS = (1, 2, 3)
LOSS_MARGIN = 0.03  # of the loss, beyond the spread
ACCURACY_MARGIN = 0.02  # two points, likewise


def train(data, seed):
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        command = [BIN / "cifar10", "--depth", "20", "--epochs", "3", "--validate", "--data", data, "--seed", str(seed),
                   "--quiet", "--report", report, *sys.argv[1:]]
        subprocess.run(command, check=True)
        return json.loads(report.read_text())["epochs"]


def verdict(what, ours, theirs, margin, relative):
    """Whether the mean of ours lies in the spread of theirs, widened by the margin, and a report of both spreads."""
    low, high = min(theirs), max(theirs)
    low, high = (low * (1 - margin), high * (1 + margin)) if relative else (low - margin, high + margin)
    good = low <= statistics.mean(ours) <= high

    def spread(values):
        return f"{min(values):.4f} to {max(values):.4f} (mean {statistics.mean(values):.4f})"

    print(f"{'ok  ' if good else 'FAIL'} {what}: ours {spread(ours)}, PyTorch {spread(theirs)}; the mean of ours must lie "
          f"in {low:.4f} to {high:.4f}", flush=True)
    return good


def main():
    data = os.environ.get("LOCKSTEP_CIFAR10")
    if not data:
        print("skipped: set LOCKSTEP_CIFAR10 to a folder with the binary version of CIFAR-10")
        return 4
    theirs = [run["epochs"] for run in json.loads(RECORDED.read_text())["runs"]]
    ours = []
    for seed in SEEDS:
        ours.append(train(data, seed))
        print(f"seed {seed}: {ours[-1]}", flush=True)
    good = [verdict(f"training loss of epoch {e + 1}", [run[e]["loss"] for run in ours],
                    [run[e]["loss"] for run in theirs], LOSS_MARGIN, relative=True) for e in range(3)]
    good.append(verdict("test accuracy after epoch 3", [run[2]["val_accuracy"] for run in ours],
                        [run[2]["val_accuracy"] for run in theirs], ACCURACY_MARGIN, relative=False))
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
