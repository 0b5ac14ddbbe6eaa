"""The shared part of the peer programs: command line, CPU limit, data, and the result line.

The rule of time is the same for every program, lockstep's included: training runs in chunks (an
epoch with --steps-per-epoch 50 in Keras' and lockstep's words), a chunk is timed from before its
first step until its loss and accuracy are numbers on the host, and a step time is the chunk's time
divided by its steps. So data, forward, backward, update and metrics count, no code reads the clock
inside a chunk, and no program is slowed by a callback for each step.
"""

import argparse
import json
import os
import platform
import resource
import socket
import statistics
import subprocess
import sys
import time

CHUNK = 50  # steps per chunk
EXAMPLES = 60_000  # as MNIST
RATE = 0.001


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive whole number")
    return value


def add_work(parser):
    """Adds the options of programs that train, evaluate and predict, with either model."""
    parser.add_argument("--model", choices=("cnn", "mlp"), default="cnn",
                        help="the tutorials' CNN with SGD, or 784-512-512-10 with Adam")
    parser.add_argument("--work", choices=("fit", "evaluate", "predict"), default="fit")


def parse(description, add_options=lambda parser: None, workers=1):
    """Reads the options of a peer and limits this process to --threads CPUs for each worker.

    Call it before the framework is imported: libraries count the CPUs when they are loaded.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--threads", type=positive, default=1, help="threads and CPUs to use")
    if workers > 1:
        parser.add_argument("--workers", type=positive, default=workers,
                            help="processes, each with --threads, which share --batch")
    parser.add_argument("--steps", type=positive, default=500, help="timed steps")
    parser.add_argument("--warmup", type=positive, default=100, help="steps before the timed ones")
    parser.add_argument("--batch", type=positive, default=64)
    add_options(parser)
    options = parser.parse_args()
    for name in ("steps", "warmup"):
        if getattr(options, name) % CHUNK:
            parser.error(f"--{name} must be a multiple of {CHUNK}, the steps of one timed chunk")
    if options.batch % getattr(options, "workers", 1):
        parser.error("--batch must be a multiple of --workers")
    limit_cpus(options.threads * getattr(options, "workers", 1), parser.error)
    return options


def set_tensorflow_up():
    """Configures Keras before its import: TensorFlow on the CPU, without log messages."""
    os.environ["KERAS_BACKEND"] = "tensorflow"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"


def free_addresses(count):
    """Addresses of this machine with different ports, which are free now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = ["{}:{}".format(*s.getsockname()) for s in sockets]
    for s in sockets:
        s.close()
    return addresses


def become_worker(options, environment_of):
    """The rank of this process among options.workers.

    In a process that has none it starts all ranks of this program instead, waits for them, and
    ends. `environment_of(rank, addresses)` are the variables by which a rank's framework finds the
    others; the addresses, one a rank, are of free ports of this machine.
    """
    variable = "LOCKSTEP_PEER_RANK"
    if variable in os.environ:
        return int(os.environ[variable])
    addresses = free_addresses(options.workers)
    running = [
        subprocess.Popen(
            [sys.executable, *sys.argv],
            env={**os.environ, variable: str(rank), **environment_of(rank, addresses)},
        )
        for rank in range(options.workers)
    ]
    code = 0
    while running:
        time.sleep(0.1)
        for process in running:
            code = code or process.poll() or 0
        running = [process for process in running if process.poll() is None]
        for process in running if code else []:
            process.kill()
    sys.exit(code)


def limit_cpus(threads, fail):
    """Binds this process to the first `threads` CPUs that it may use."""
    allowed = sorted(os.sched_getaffinity(0))
    if threads > len(allowed):
        fail(f"--threads {threads} asks for more than the {len(allowed)} CPUs of this process")
    os.sched_setaffinity(0, allowed[:threads])


def images_and_labels(numpy):
    """Random bytes in MNIST's shape: the speed of a step does not depend on the images."""
    generator = numpy.random.default_rng(1)
    images = generator.integers(0, 256, (EXAMPLES, 28, 28), dtype=numpy.uint8)
    labels = generator.integers(0, 10, EXAMPLES, dtype=numpy.int64)
    return images, labels


def resident_bytes():
    """Peak resident size of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Chunks:
    """Times chunks: call begin() before the first step, end() when the results are on the host."""

    def __init__(self):
        self.milliseconds = []

    def begin(self):
        self.started = time.perf_counter()

    def end(self):
        self.milliseconds.append((time.perf_counter() - self.started) * 1000 / CHUNK)


def summary(values):
    """Median, minimum and 90th percentile (nearest rank) of step times in milliseconds."""
    ordered = sorted(values)
    rank = -(-9 * len(ordered) // 10) - 1
    return {
        "median": round(statistics.median(ordered), 4),
        "min": round(ordered[0], 4),
        "p90": round(ordered[rank], 4),
    }


def report(program, options, chunks, versions):
    """Prints the JSON line, without the warm-up chunks."""
    timed = chunks.milliseconds[options.warmup // CHUNK :]
    result = {
        "program": program,
        "threads": options.threads,
        "workers": getattr(options, "workers", 1),
        "batch": options.batch,
        "step_ms": summary(timed),
        "chunk_ms": [round(value, 4) for value in timed],
        "steps": options.steps,
        "warmup": options.warmup,
        "versions": {**versions, "python": platform.python_version()},
    }
    print(json.dumps(result), flush=True)
