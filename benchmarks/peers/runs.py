"""Runs programs for the scripts of benchmarks/: bound to CPUs, alone, with the cause of a failure."""

import contextlib
import fcntl
import os
import subprocess


class Failed(Exception):
    """A program is missing or failed; the text names it and the cause."""


def execute(command, count, environment=None, seconds=None):
    """Runs a program on the first `count` CPUs, with a time limit in seconds; returns its standard output."""
    cpus = sorted(os.sched_getaffinity(0))[:count]
    try:
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            env=environment,
            timeout=seconds,
            preexec_fn=lambda: os.sched_setaffinity(0, cpus),
        )
    except OSError as error:
        raise Failed(f"{command[0]}: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise Failed(f"killed after {error.timeout:.0f} s") from error
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise Failed(f"exit code {done.returncode}: {lines[-1]}")
    return done.stdout


@contextlib.contextmanager
def alone(lock):
    """Holds an exclusive lock of the file `lock`, if one is given."""
    if not lock:
        yield
        return
    with open(lock, "a", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
