"""Functions shared by the peers of gpu.py. A peer gets ready, reports this in a line of JSON, and then answers each line of its input, a
number of chunks, by a line of JSON with the times of their steps. So it compiles and tunes once, and the rounds of several
peers can take turns."""

import argparse
import json
import platform
import sys
import time

import support

EXAMPLES = {"cnn": 60_000, "resnet": 10_000}


def parse(description, ways):
    parser = argparse.ArgumentParser(description=description)
    add = parser.add_argument
    add("--model", choices=("cnn", "resnet"), required=True)
    add("--way", choices=ways, required=True)
    add("--precision", choices=("float32", "tf32", "bfloat16"), default="float32")
    add("--device", choices=("cuda", "cpu"), default="cuda")
    add("--batch", type=support.positive, required=True)
    add("--depth", type=int, choices=(20, 56), default=56)
    add("--chunk", type=support.positive, default=50, help="steps between two times (50)")
    return parser.parse_args()


def images_and_labels(numpy, model):
    """Random bytes: the speed of a step does not depend on the pictures."""
    draws = numpy.random.default_rng(1)
    count, shape = EXAMPLES[model], (28, 28) if model == "cnn" else (32, 32, 3)
    return (draws.integers(0, 256, (count, *shape), dtype=numpy.uint8),
            draws.integers(0, 10, count, dtype=numpy.int64))


def serve(options, chunk, peak_bytes, versions):
    """`chunk()` makes options.chunk steps and returns their loss and accuracy; two of them warm up."""
    for _ in range(2):
        chunk()
    print(json.dumps({"ready": True, "versions": {**versions, "python": platform.python_version()}}),
          flush=True)
    for line in sys.stdin:
        milliseconds = []
        for _ in range(int(line)):
            started = time.perf_counter()
            loss, _ = chunk()
            milliseconds.append((time.perf_counter() - started) * 1000 / options.chunk)
        print(json.dumps({"step_ms": support.summary(milliseconds), "loss": loss,
                          "peak_bytes": peak_bytes()}), flush=True)
