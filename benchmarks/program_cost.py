#!/usr/bin/env python3
"""Measures the cost of an example program apart from its steps: time to its first step, and memory.

Starts build/release/bin/mnist with one step (and --data, if given), several times:

- start: seconds from before the process is created until it has ended, after reading its data, one
  step and its report: an upper bound of the time to the first step.
- memory: the largest resident size of a run of --steps steps, in MB (10^6 bytes).

Both bounds are printed: 0.3 s, 150 MB. Exit code 1 if one is missed.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "peers"))

from runs import Failed, alone  # noqa: E402
from support import positive  # noqa: E402

SECONDS, MEGABYTES = 0.3, 150


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--program", type=Path, default=HERE.parent / "build/release/bin/mnist")
    add("--data", type=Path, help="folder of real MNIST (default: drawn digits)")
    add("--threads", type=positive, default=1)
    add("--steps", type=positive, default=938, help="of the run whose memory counts (938)")
    add("--repeat", type=positive, default=10, help="starts; the median counts (10)")
    add("--lock", type=Path, help="hold an exclusive lock (flock) of this file")
    return parser.parse_args()


def run(options, steps):
    """Seconds and peak bytes of one run."""
    command = [str(options.program), "--threads", str(options.threads), "--epochs", "1",
               "--steps-per-epoch", str(steps), "--quiet"]
    if options.data:
        command += ["--data", str(options.data)]
    started = time.perf_counter()
    try:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    except OSError as error:
        raise Failed(f"{options.program}: {error.strerror}; build it with ./dev build") from error
    # wait4, since RUSAGE_CHILDREN's peak is that of all programs so far.
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise Failed(f"{options.program} ended with exit code {process.returncode}")
    return seconds, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def main():
    options = parse()
    try:
        with alone(options.lock):
            starts = [run(options, 1)[0] for _ in range(options.repeat)]
            peak = run(options, options.steps)[1] / 1e6
    except Failed as error:
        print(f"program_cost.py: {error}", file=sys.stderr)
        return 2
    start = statistics.median(starts)
    verdicts = [(f"start to the end of one step: median {start:.3f} s, {min(starts):.3f} to "
             f"{max(starts):.3f}; at most {SECONDS} s", start <= SECONDS),
            (f"peak resident size of {options.steps} steps: {peak:.0f} MB; at most {MEGABYTES} MB",
             peak <= MEGABYTES)]
    for what, met in verdicts:
        print(f"{what}: {'met' if met else 'MISSED'}")
    return 0 if all(met for _, met in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
