#!/usr/bin/env python3
"""One step of the CIFAR-10 tutorial's ResNet in PyTorch, as its user writes it: channels-last, in
float32 or with bfloat16 autocast, SGD(0.1) with momentum 0.9. Prints one line of JSON.

The program `cifar10` counts a step in the same way: from one step's end to the next, with the
batch's images taken from bytes and standardized, the loss and the accuracy as numbers on the host.
"""

import argparse
import json
import platform
import sys
import time

import support

EXAMPLES = 10_000  # the number that `cifar10` generates

parser = argparse.ArgumentParser(description=__doc__,
                                 formatter_class=argparse.RawDescriptionHelpFormatter)
add = parser.add_argument
add("--threads", type=support.positive, default=1, help="threads and CPUs to use")
add("--depth", type=int, choices=(20, 56), default=56)
add("--batch", type=support.positive, default=128)
add("--steps", type=support.positive, default=12, help="steps; the first half are not timed")
add("--bfloat16", action="store_true", help="autocast")
options = parser.parse_args()
support.limit_cpus(options.threads, parser.error)
try:
    import numpy
    import torch
    from torch.nn import functional as F

    import pytorch_resnet_model
except ImportError as error:
    sys.exit(f"pytorch_resnet: {error}; install the peers with benchmarks/peers/setup.sh")


def main():
    imported = support.resident_bytes()
    torch.set_num_threads(options.threads)
    torch.set_num_interop_threads(1)
    torch.manual_seed(1)
    draws = numpy.random.default_rng(1)
    images = torch.from_numpy(draws.integers(0, 256, (EXAMPLES, 32, 32, 3), dtype=numpy.uint8))
    labels = torch.from_numpy(draws.integers(0, 10, EXAMPLES, dtype=numpy.int64))
    model = pytorch_resnet_model.make(options.depth)
    optimizer = pytorch_resnet_model.sgd(model, 0.1)
    model.train()
    milliseconds = []
    for _ in range(options.steps):
        started = time.perf_counter()
        index = torch.randint(0, EXAMPLES, (options.batch,))
        x, y = pytorch_resnet_model.standardized(images[index]), labels[index]
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=options.bfloat16):
            logits = model(x)
        loss = F.cross_entropy(logits.float(), y)
        loss.backward()
        optimizer.step()
        loss.item(), (logits.argmax(1) == y).sum().item()
        milliseconds.append((time.perf_counter() - started) * 1000)
    result = {
        "program": "pytorch-bfloat16" if options.bfloat16 else "pytorch",
        "step_ms": support.summary(milliseconds[options.steps // 2 :]),
        "resident_bytes": support.resident_bytes(),
        "imported_bytes": imported,
        "versions": {"torch": torch.__version__, "python": platform.python_version()},
    }
    print(json.dumps(result), flush=True)


main()
