#!/usr/bin/env python3
"""Compares `cifar10` with PyTorch on the CIFAR-10 tutorial's ResNet: step time and memory.

Each round runs every program once for each thread count, in turn (A B C A B C ...), bound to as
many CPUs as it has threads. A program makes --steps steps on images of bytes that it standardizes;
the first half of them warm up. The figure of a round is the median of the others. Memory is the
peak resident size of the process, for PyTorch also without the memory of its import.
"""

import argparse
import sys

import side_by_side
import support

PROGRAMS = ("ours", "ours-bfloat16", "pytorch", "pytorch-bfloat16")
PEERS = {"ours": ["pytorch"], "ours-bfloat16": ["pytorch-bfloat16"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    side_by_side.add_options(parser, PROGRAMS, rounds=3, ours="cifar10")
    parser.add_argument("--depth", type=int, choices=(20, 56), default=56)
    parser.add_argument("--batch", type=support.positive, default=128)
    options = side_by_side.parse(parser, PROGRAMS)
    depth = ["--depth", str(options.depth)]

    def run(name, threads):
        if name.startswith("ours"):
            return side_by_side.run_ours(options, name, threads, [*depth, "--no-augment"])
        bfloat16 = ["--bfloat16"] if name.endswith("bfloat16") else []
        return side_by_side.run_peer(options, "pytorch_resnet.py", threads, [*depth, *bfloat16])

    return side_by_side.compare(options, f"ResNet-{options.depth}, batch {options.batch}", run, PEERS,
                                speed=1.5, resident=0.60, added=0.75)


if __name__ == "__main__":
    sys.exit(main())
