#!/usr/bin/env python3
"""Compares `gpt` with PyTorch on GPT-2: time of a step (forward, loss, backward, AdamW) and memory.

Each round runs every program once for each thread count, in turn (A B C A B C ...), bound to as
many CPUs as it has threads. The first half of the --steps steps warm up; the figure of a round is
the median of the others. Ours is compared with the better of PyTorch's two modes, eager and
torch.compile, and with mixed_bfloat16 with the better of them under autocast.
"""

import argparse
import sys

import side_by_side
import support

PYTORCH = {"pytorch": [], "pytorch-compile": ["--compile"], "pytorch-bfloat16": ["--bfloat16"],
           "pytorch-compile-bfloat16": ["--compile", "--bfloat16"]}
PROGRAMS = ("ours", "ours-bfloat16", *PYTORCH)
PEERS = {"ours": ["pytorch", "pytorch-compile"],
         "ours-bfloat16": ["pytorch-bfloat16", "pytorch-compile-bfloat16"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    side_by_side.add_options(parser, PROGRAMS, rounds=2, ours="gpt")
    parser.add_argument("--size", choices=("tiny", "124m"), default="124m")
    parser.add_argument("--batch", type=support.positive, default=4)
    parser.add_argument("--context", type=support.positive, default=64, help="tokens of an example (64)")
    options = side_by_side.parse(parser, PROGRAMS)
    model = ["--size", options.size, "--context", str(options.context)]

    def run(name, threads):
        if name.startswith("ours"):
            return side_by_side.run_ours(options, name, threads, model)
        return side_by_side.run_peer(options, "pytorch_gpt.py", threads, [*model, *PYTORCH[name]])

    what = f"GPT-2 {options.size}, batch {options.batch}, {options.context} tokens"
    return side_by_side.compare(options, what, run, PEERS, speed=1.3 if options.context <= 64 else 1.2,
                                resident=0.80)


if __name__ == "__main__":
    sys.exit(main())
