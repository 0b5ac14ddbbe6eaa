#!/usr/bin/env python3
"""Compares each kernel of the seed step with oneDNN's primitive, PyTorch's op, and the roofline.

Each round runs the machine's peak, benchmarks/layers (ours and oneDNN's) and pytorch_layers.py in
turn; a figure is the median of the rounds. The roofline is the longer of two times: the kernel's
floating-point operations at the peak of the run, and the bytes of all that it must read and write
once at the speed of copying as many bytes as the first features have. On a machine with a large L3
cache the copy runs there, so a kernel whose data fit into L2 may be faster than the roofline.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

import support
from runs import Failed, alone, execute

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--threads", type=support.positive, default=1)
    add("--rounds", type=support.positive, default=5)
    add("--seconds", type=float, default=0.05, help="for each figure of a round (0.05)")
    add("--ours", type=Path, default=REPOSITORY / "build/release/bin/layers")
    add("--venv", type=Path, default=HERE / ".venv", help="virtual environment of the peers")
    add("--cxx", default="g++", help="compiler of the peak program")
    add("--lock", type=Path, help="hold an exclusive lock (flock) of this file during each round")
    return parser.parse_args()


def roofline(flop, size, gflops, gigabytes):
    """Microseconds of these operations or these bytes, whichever is longer."""
    return max(flop / gflops, size / gigabytes) * 1e-3


def read_layers(text, threads):
    """Entries of Google Benchmark's JSON by name, for this number of threads."""
    end = f"/{threads}/real_time"
    return {entry["name"].removesuffix(end): entry for entry in json.loads(text)["benchmarks"]
            if entry["name"].endswith(end)}


def one_round(options, peak, found):
    """Appends the figures of a round to the lists of `found`."""
    def keep(kind, name, value):
        found.setdefault((kind, name), []).append(value)

    threads = options.threads
    keep("peak", "", json.loads(execute([peak, "--threads", str(threads)], threads))["gflops"])
    text = execute([str(options.ours), "--benchmark_format=json",
                    f"--benchmark_min_time={options.seconds}",
                    f"--benchmark_filter=/{threads}/real_time"], threads)
    for name, entry in read_layers(text, threads).items():
        theirs = name.startswith("oneDNN ")
        keep("onednn" if theirs else "ours", name.removeprefix("oneDNN "), entry["real_time"])
        if not theirs:
            found[("work", name)] = entry["flop"], entry["bytes"]
    python = options.venv / "bin/python"
    if python.exists():
        text = execute([str(python), str(HERE / "pytorch_layers.py"), "--threads", str(threads),
                        "--seconds", str(options.seconds)], threads)
        for name, value in json.loads(text.splitlines()[-1])["microseconds"].items():
            keep("pytorch", name, value)


def lines(found):
    medians = {key: statistics.median(values) for key, values in found.items()
               if key[0] != "work"}
    gflops = max(found[("peak", "")])
    copied = found[("work", "copy")][1]
    gigabytes = copied / min(found[("ours", "copy")]) * 1e-3
    yield "| kernel | ours, us | oneDNN, us | PyTorch, us | roofline, us | of the roofline |"
    yield "|---|--:|--:|--:|--:|--:|"
    for (kind, name), ours in medians.items():
        if kind != "ours" or name == "copy":
            continue
        bound = roofline(*found[("work", name)], gflops, gigabytes)
        peers = [f"{medians[(peer, name)]:.1f}" if (peer, name) in medians else "-"
                 for peer in ("onednn", "pytorch")]
        yield (f"| {name} | {ours:.1f} | {' | '.join(peers)} | {bound:.1f} "
               f"| {bound / ours:.0%} |")
    yield ""
    yield f"Peak {gflops:.1f} GFLOP/s, copy {gigabytes:.1f} GB/s (read and written bytes)."


def main():
    options = parse()
    found = {}
    try:
        with tempfile.TemporaryDirectory() as folder:
            peak = str(Path(folder) / "fma_peak")
            execute([options.cxx, "-std=c++20", "-O2", "-pthread", str(HERE.parent / "fma_peak.cpp"),
                     "-o", peak], 1)
            for number in range(options.rounds):
                with alone(options.lock):
                    one_round(options, peak, found)
                print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
    except (Failed, KeyError, ValueError) as error:
        print(f"layers.py: {error!r}", file=sys.stderr)
        return 1
    print("\n".join(lines(found)))
    print(f"{options.rounds} rounds, threads {options.threads}, load {os.getloadavg()[0]:.1f} at "
          "the end.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
