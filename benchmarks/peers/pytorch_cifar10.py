#!/usr/bin/env python3
"""Trains the CIFAR-10 tutorial's ResNet in PyTorch, for tests/programs/training_slow.py: the recipe
of `cifar10 --epochs N --validate` with its augmentation. Writes one JSON file a seed: the loss of
each epoch (mean over examples, penalties included, as Keras reports it), and loss and accuracy on
the test set after it. With --merge all seeds go into one file as well, rounded to six digits:
`DIR OUT --merge tests/programs/training_pytorch.json` wrote that file. It needs no PyTorch if all
seeds are there."""

import argparse
import contextlib
import fcntl
import json
import os
import sys
import time
from pathlib import Path

import support

parser = argparse.ArgumentParser(description=__doc__)
add = parser.add_argument
add("data", type=Path, help="folder with the binary version of CIFAR-10")
add("out", type=Path, help="folder for the results; seeds with results are skipped")
add("--seeds", default="1,2,3", help="separated by commas (1,2,3)")
add("--depth", type=int, choices=(20, 56), default=20)
add("--epochs", type=support.positive, default=3)
add("--batch", type=support.positive, default=128)
add("--steps", type=int, default=0, help="end an epoch after this many steps, to try the program")
add("--threads", type=support.positive, default=1)
add("--merge", type=Path, help="write the runs of all seeds into this file, rounded")
add("--lock", type=Path, help="hold a shared lock (flock) of this file during each step, so that "
    "who holds it alone measures on a quiet machine")
options = parser.parse_args()
try:
    paths = {int(seed): options.out / f"pytorch_{options.depth}_{int(seed)}.json"
             for seed in options.seeds.split(",")}
except ValueError:
    parser.error("--seeds: give whole numbers, separated by commas")
missing = {seed: path for seed, path in paths.items() if not path.exists()}
if missing:
    try:
        import numpy
        import torch
        from torch.nn import functional as F

        import pytorch_resnet_model
    except ImportError as error:
        sys.exit(f"pytorch_cifar10: {error}; install the peers with benchmarks/peers/setup.sh")
    torch.set_num_threads(options.threads)
    torch.set_num_interop_threads(1)


def read(names):
    """Images [N, 32, 32, 3] and labels [N] of files of records: label, then planes."""
    records = numpy.concatenate(
        [numpy.fromfile(options.data / name, numpy.uint8).reshape(-1, 3073) for name in names])
    images = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return (torch.from_numpy(numpy.ascontiguousarray(images)),
            torch.from_numpy(records[:, 0].astype(numpy.int64)))


def augmented(padded, index, generator):
    """Random crops of [N, 40, 40, 3], half of them flipped."""
    n = len(index)
    top, left = (torch.randint(0, 9, (n, 1), generator=generator) for _ in range(2))
    flip = torch.randint(0, 2, (n, 1), generator=generator, dtype=torch.bool)
    side = torch.arange(32)
    rows, columns = top + side, left + torch.where(flip, 31 - side, side)  # [n, 32]
    return padded[index[:, None, None], rows[:, :, None], columns[:, None, :]]


@contextlib.contextmanager
def shared():
    if not options.lock:
        yield
        return
    with open(options.lock, "a", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield


def evaluate(model, images, labels):
    model.eval()
    loss = correct = 0.0
    with torch.inference_mode():
        for first in range(0, len(images), options.batch):
            with shared():
                logits = model(pytorch_resnet_model.standardized(
                    images[first : first + options.batch]))
                y = labels[first : first + options.batch]
                loss += float(F.cross_entropy(logits, y, reduction="sum"))
                correct += int((logits.argmax(1) == y).sum())
    return loss / len(images) + pytorch_resnet_model.penalty(model), correct / len(images)


def train(seed, train_set, test_set):
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(1000 + seed)
    model = pytorch_resnet_model.make(options.depth)
    optimizer = pytorch_resnet_model.sgd(model, 0.1)
    padded, labels = F.pad(train_set[0], (0, 0, 4, 4, 4, 4)), train_set[1]
    epochs = []
    for epoch in range(options.epochs):
        model.train()
        started, total, entropy, correct, seen = time.time(), 0.0, 0.0, 0, 0
        order = torch.randperm(len(labels), generator=generator)
        for step, index in enumerate(order.split(options.batch)):
            if options.steps and step == options.steps:
                break
            with shared():
                images, y = augmented(padded, index, generator), labels[index]
                optimizer.zero_grad()
                logits = model(pytorch_resnet_model.standardized(images))
                loss = F.cross_entropy(logits, y)
                penalty = pytorch_resnet_model.penalty(model)
                loss.backward()
                optimizer.step()
                total += (float(loss.detach()) + penalty) * len(index)
                entropy += float(loss.detach()) * len(index)
                correct += int((logits.argmax(1) == y).sum())
                seen += len(index)
        seconds = time.time() - started
        val_loss, val_accuracy = evaluate(model, *test_set)
        epochs.append({"loss": total / seen, "cross_entropy": entropy / seen,
                       "accuracy": correct / seen, "val_loss": val_loss,
                       "val_accuracy": val_accuracy, "seconds": seconds})
        print(f"seed {seed}, epoch {epoch + 1}: {epochs[-1]}", flush=True)
    return {"program": "pytorch", "torch": torch.__version__, "depth": options.depth, "seed": seed,
            "batch": options.batch, "epochs": epochs}


def write(path, content):
    part = path.with_suffix(".part")
    part.write_text(json.dumps(content, indent=1) + "\n", encoding="ascii")
    os.replace(part, path)


def merged(runs):
    """The options common to all runs, and the figures of each, without seconds."""
    common = {key: runs[0][key] for key in ("torch", "depth", "batch")}
    for run in runs:
        if {key: run[key] for key in common} != common:
            sys.exit(f"pytorch_cifar10: the run of seed {run['seed']} has not {common}")
    return {"made_by": "benchmarks/peers/pytorch_cifar10.py DIR OUT --merge FILE", **common,
            "runs": [{"seed": run["seed"],
                      "epochs": [{key: round(value, 6) for key, value in epoch.items()
                                  if key != "seconds"} for epoch in run["epochs"]]}
                     for run in runs]}


def main():
    if missing:
        train_set = read([f"data_batch_{i}.bin" for i in range(1, 6)])
        test_set = read(["test_batch.bin"])
        options.out.mkdir(parents=True, exist_ok=True)
        for seed, path in missing.items():
            write(path, train(seed, train_set, test_set))
    if options.merge:
        write(options.merge, merged([json.loads(path.read_text()) for path in paths.values()]))


main()
