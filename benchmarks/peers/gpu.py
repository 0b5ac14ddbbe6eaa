#!/usr/bin/env python3
"""Steps on a GPU: `mnist_cuda` and `cifar10_cuda` compared with PyTorch and JAX, time and memory. Needs no network.

Models: `cnn`, the tutorials' CNN with SGD, batch 64; `resnet`, ResNet-56 on CIFAR-10's shapes with SGD and momentum, batch
128. Programs: `ours`; `ours-executions`, which reads the loss once per chunk; `pytorch-eager`; `pytorch-graphs`, the whole
step captured as a CUDA graph; `jax-jit`; `pytorch-compile`, model and loss in torch.compile(mode="max-autotune"), the update in
torch.compile; `pytorch-compile-graphs`, the same captured whole. Programs that cannot run are left out, with the reason.

Peers get ready once: they compile, tune and warm up. Then each round runs every program in turn (A B C A B C ...) for
--steps steps; its figure is the median. A step time is that of a chunk of --chunk steps over their number: of an epoch, for
ours. Peers read the loss once per chunk, `ours` after each step; all data lie on the device. Memory of a peer is its
allocator's peak; of ours, the decrease of free GPU memory while it runs, if nvidia-smi reports it, the share of an empty context,
and the plan's own figure. A peer that is not ready within --patience, or within half of what is left of --budget, is
left out; all ends within --budget, and the table is made of what there is by then. The file of --json is rewritten
after each run of a program. SIGTERM ends the peers, too.

`--device cpu --dry-run` tries the script on a machine without a GPU: a few steps, small batches, and our programs for CPUs.
"""

import argparse
import contextlib
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import support
from runs import Failed, alone, execute

try:
    import ctypes
    PRCTL = ctypes.CDLL(None).prctl
except (ImportError, OSError, AttributeError):  # a Python without libffi, a system that is not Linux
    PRCTL = None

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
# The ways that compile longest come last: they cannot take the others' time.
PROGRAMS = ("ours", "ours-executions", "pytorch-eager", "pytorch-graphs", "jax-jit", "pytorch-compile",
            "pytorch-compile-graphs")
BATCH = {"cnn": 64, "resnet": 128}
OURS = {"cnn": "mnist", "resnet": "cifar10"}
WORK = (("cnn", "float32"), ("resnet", "float32"), ("resnet", "bfloat16"))
# The goals: maximum ms of a step of ours, and minimum ratio of a peer's time to ours.
MOST_MS = {("cnn", "float32"): 0.015, ("resnet", "bfloat16"): 1.2}
LEAST_RATIO = {("resnet", "bfloat16", "pytorch-compile"): 1.5}
WARM = 2  # chunks that are not timed
PLAN = 0.05  # our memory beyond the plan and an empty context, at most
LEAST = 5  # seconds that are worth a start
PR_SET_PDEATHSIG = 1


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--work", default=",".join(map("-".join, WORK)),
        help="MODEL-PRECISION, separated by commas; precisions: float32, tf32, bfloat16 "
             "(%(default)s)")
    add("--only", default=",".join(PROGRAMS), help="programs, separated by commas (all)")
    add("--rounds", type=support.positive, default=5)
    add("--steps", type=support.positive, default=500, help="of a program and round (500)")
    add("--chunk", type=support.positive, default=50)
    add("--depth", type=int, choices=(20, 56), default=56, help="of the ResNet (56)")
    add("--batch", type=support.positive, help="instead of 64 and 128")
    add("--device", choices=("cuda", "cpu"), default="cuda")
    add("--dry-run", action="store_true", help="one round of a few steps: the figures mean nothing")
    add("--bin", type=Path, default=REPOSITORY / "build/release/bin", help="folder of our programs")
    add("--python", default=sys.executable, help="with the peers' packages (this one)")
    add("--patience", type=support.positive, default=300,
        help="seconds for a peer to get ready or to answer (300)")
    add("--budget", type=support.positive, help="seconds for all; none: as long as it takes")
    add("--lock", type=Path, help="hold an exclusive lock (flock) of this file during each run")
    add("--json", type=Path, help="write every figure to this file")
    options = parser.parse_args(arguments)
    options.only = options.only.split(",")
    for name in options.only:
        if name not in PROGRAMS:
            parser.error(f"--only: no program is called '{name}'; there are {', '.join(PROGRAMS)}")
    options.work = [tuple(text.split("-")) for text in options.work.split(",")]
    for work in options.work:
        if len(work) != 2 or work[0] not in BATCH or work[1] not in ("float32", "tf32", "bfloat16"):
            parser.error(f"--work: '{'-'.join(work)}' is not MODEL-PRECISION, as cnn-float32")
    if options.dry_run:
        options.rounds, options.steps, options.chunk = 1, 4, 2
        options.batch, options.depth = options.batch or 8, 20
    if options.steps < options.chunk:
        parser.error("--steps: at least one chunk")
    options.until = time.monotonic() + options.budget if options.budget else math.inf
    return options


def left(options):
    """Seconds that a program may take now. Fails if they are not worth a start."""
    seconds = options.until - time.monotonic()
    if seconds < LEAST:
        raise Failed("no time left")
    return min(seconds, options.patience)


def left_to_get_ready(options):
    """Seconds that a peer may take for it, and whether that is its share of the budget."""
    seconds = left(options)
    share = max((options.until - time.monotonic()) / 2, LEAST)
    return min(share, seconds), share < seconds


def end_with_parent():
    """For a child before it runs: a parent that is killed cannot end it."""
    if PRCTL:
        PRCTL(PR_SET_PDEATHSIG, signal.SIGKILL)


def batch_of(options, model):
    return options.batch or BATCH[model]


class Peer:
    """A peer's process, ready."""

    def __init__(self, options, name, model, precision):
        library, _, way = name.partition("-")
        self.options = options
        seconds, is_share = left_to_get_ready(options)
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [options.python, "-B", str(HERE / f"gpu_{library}.py"), "--model", model, "--way", way,
             "--precision", precision, "--device", options.device, "--depth", str(options.depth),
             "--batch", str(batch_of(options, model)), "--chunk", str(options.chunk)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True, start_new_session=True,
            preexec_fn=end_with_parent)
        try:
            late = f"not ready within {seconds:.0f} s" + (", half of what was left" if is_share else "")
            self.versions = self.answer(seconds, late)["versions"]
        except BaseException:
            self.kill()
            close([self])
            raise

    def answer(self, seconds, too_late):
        """Its next line of JSON; what else it prints is passed over."""
        late = threading.Timer(seconds, self.kill)
        late.start()
        try:
            for line in self.process.stdout:
                with contextlib.suppress(ValueError):
                    found = json.loads(line)
                    if isinstance(found, dict):
                        return found
        finally:
            late.cancel()
        code = self.process.wait()
        if code == -signal.SIGKILL:
            raise Failed(too_late)
        self.errors.seek(0)
        lines = self.errors.read().strip().splitlines() or ["no message"]
        raise Failed(f"exit code {code}: {lines[-1]}")

    def run(self, chunks):
        try:
            self.process.stdin.write(f"{chunks}\n")
            self.process.stdin.flush()
        except OSError:
            pass  # it has ended: answer() reports why
        seconds = left(self.options)
        return {**self.answer(seconds, f"no answer within {seconds:.0f} s"), "versions": self.versions}

    def kill(self):
        """Also the processes that compile for it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


def close(peers):
    """Five seconds for all of them; then they are killed."""
    for peer in peers:
        with contextlib.suppress(OSError):
            peer.process.stdin.close()
    until = time.monotonic() + 5
    for peer in peers:
        with contextlib.suppress(subprocess.TimeoutExpired):
            peer.process.wait(max(until - time.monotonic(), 0))
        peer.kill()
        peer.process.wait()
        peer.process.stdout.close()
        peer.errors.close()


def used_bytes():
    """Memory in use on the first GPU; none if nvidia-smi does not report it."""
    try:
        done = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits",
                               "--id=0"], check=True, capture_output=True, text=True)
        return int(done.stdout) * 2**20
    except (OSError, subprocess.CalledProcessError, ValueError):
        return None


EMPTY_CONTEXT = """import ctypes, sys
driver, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
if driver.cuInit(0) or driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0): sys.exit(1)
print("ready", flush=True)
sys.stdin.read()"""


def context_bytes(command):
    """GPU memory of `command`, a process with an empty context; none if nvidia-smi does not report it."""
    before = used_bytes()
    if before is None:
        return None
    try:
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            is_ready = process.stdout.readline() == "ready\n"
            after = used_bytes()
            process.stdin.close()
    except OSError:
        return None
    return after - before if is_ready and after is not None else None


@contextlib.contextmanager
def watch_memory(found):
    """found["gpu"]: the most that is used meanwhile, beyond what is used before."""
    before, over = used_bytes(), threading.Event()
    if before is None:
        yield
        return

    def sample():
        while not over.wait(0.1):
            now = used_bytes()
            if now is not None:
                found["gpu"] = max(found.get("gpu", 0), now - before)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def run_ours(options, model, precision, executions):
    name = OURS[model] + ("_cuda" if options.device == "cuda" else "")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        more = ["--depth", str(options.depth), "--no-augment"] if model == "resnet" else []
        found = {}
        with watch_memory(found):
            execute([str(options.bin / name), *more,
                     "--precision", "mixed_bfloat16" if precision == "bfloat16" else precision,
                     "--batch", str(batch_of(options, model)),
                     "--epochs", str(WARM + options.steps // options.chunk),
                     "--steps-per-epoch", str(options.chunk),
                     "--steps-per-execution", str(options.chunk if executions else 1),
                     "--progress", "none",
                     "--report", str(report)], len(os.sched_getaffinity(0)), seconds=left(options))
        values = json.loads(report.read_text())
    chunks = [epoch["seconds"] * 1000 / options.chunk for epoch in values["epochs"]]
    return {"step_ms": support.summary(chunks[WARM:]), "report_step_ms": values["step_ms"],
            "loss": values["step_loss"][-1],
            "peak_bytes": {**found, **({"context": options.context} if options.context else {}),
                           "planned": values["peak_bytes"]["planned"]},
            "versions": {"lockstep": values["version"]}}


def measure(options):
    """Records in the order in which they ran, and why a program is left out."""
    records, failures = [], {}
    options.context = None
    if options.device == "cuda":
        options.context = context_bytes([options.python, "-c", EMPTY_CONTEXT])
    for model, precision in options.work:
        peers = {}
        work = f"{model}-{precision}"
        try:
            for number in range(options.rounds):
                for name in options.only:
                    if (work, name) in failures:
                        continue
                    try:
                        with alone(options.lock):
                            if name.startswith("ours"):
                                record = run_ours(options, model, precision, name != "ours")
                            else:
                                if name not in peers:
                                    peers[name] = Peer(options, name, model, precision)
                                record = peers[name].run(options.steps // options.chunk)
                        milliseconds = record["step_ms"]["median"]
                    except (Failed, OSError, ValueError, KeyError, TypeError) as error:
                        failures[work, name] = f"{error}" if number == 0 else f"round {number + 1}: {error}"
                    else:
                        records.append({**record, "program": name, "work": work, "round": number})
                        print(f"{work}, round {number + 1}: {name} {milliseconds:.4f} ms",
                              file=sys.stderr, flush=True)
                    save(options, records, failures)
        except BaseException:  # ended from outside: the peers, which may compile, are not waited for
            for peer in peers.values():
                peer.kill()
            raise
        finally:
            close(peers.values())
    return records, failures


def by_round(records, work, name):
    return {r["round"]: r["step_ms"]["median"] for r in records
            if r["work"] == work and r["program"] == name}


def table(options, records):
    """One row a work and program; ratios are of the same round."""
    rows = []
    for work in map("-".join, options.work):
        ours = by_round(records, work, "ours")
        for name in options.only:
            mine = [r for r in records if r["work"] == work and r["program"] == name]
            if not mine:
                continue
            times = by_round(records, work, name)
            row = {"work": work, "program": name, "median_ms": statistics.median(times.values()),
                   "min_ms": min(r["step_ms"]["min"] for r in mine), "memory": {}}
            for r in mine:
                for what, size in r["peak_bytes"].items():
                    row["memory"][what] = max(row["memory"].get(what, 0), size)
            ratios = [times[n] / ours[n] for n in times if n in ours]
            if ratios:
                row["ratio"] = {"median": statistics.median(ratios), "min": min(ratios),
                                "max": max(ratios)}
            rows.append(row)
    return rows


def save(options, records, failures):
    """Writes the results so far; the file is complete at any time."""
    if not options.json:
        return
    failed = [{"work": work, "program": name, "reason": reason} for (work, name), reason in failures.items()]
    part = options.json.with_name(options.json.name + ".part")
    part.write_text(json.dumps({"rows": table(options, records), "failures": failed, "records": records}, indent=1) + "\n")
    part.replace(options.json)


def lines(rows):
    yield ("| work | program | step, median us | step, min us | time over ours (rounds) "
           "| peak memory, MB |")
    yield "|---|---|--:|--:|--:|---|"
    for row in rows:
        ratio = row.get("ratio")
        ratio = f"{ratio['median']:.2f} ({ratio['min']:.2f}..{ratio['max']:.2f})" if ratio else "-"
        memory = ", ".join(f"{what} {size / 1e6:.0f}" for what, size in row["memory"].items())
        yield (f"| {row['work']} | {row['program']} | {1000 * row['median_ms']:.1f} "
               f"| {1000 * row['min_ms']:.1f} | {ratio} | {memory or '-'} |")


def verdicts(rows):
    for row in rows:
        model, precision = row["work"].split("-")
        most = MOST_MS.get((model, precision))
        if row["program"] == "ours" and most:
            yield (f"{row['work']}: {1000 * row['median_ms']:.1f} us, at most {1000 * most:.0f}: "
                   f"{'met' if row['median_ms'] <= most else 'MISSED'}.")
        least = LEAST_RATIO.get((model, precision, row["program"]))
        if least and "ratio" in row:
            ratio = row["ratio"]["median"]
            yield (f"{row['work']}, {row['program']} over ours: {ratio:.2f}, at least {least}: "
                   f"{'met' if ratio >= least else 'MISSED'}.")
        memory = row["memory"]
        if "gpu" in memory and "context" in memory and memory.get("planned"):
            beyond = (memory["gpu"] - memory["context"]) / memory["planned"] - 1
            yield (f"{row['work']}, memory beyond the plan and an empty context: {beyond:.0%}, at most "
                   f"{PLAN:.0%}: {'met' if beyond <= PLAN else 'MISSED'}.")


def main():
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("gpu.py: ended by SIGTERM"))
    records, failures = measure(options)
    rows = table(options, records)
    print("\n".join(lines(rows)))
    print()
    if options.dry_run:
        print("A dry run: the figures mean nothing.")
    else:
        print("\n".join(verdicts(rows)))
    versions = {}
    for record in records:
        versions.update(record["versions"])
    print(f"{options.device}, {options.rounds} rounds of {options.steps} steps; "
          + ", ".join(f"{name} {version}" for name, version in versions.items()) + ".")
    for (work, name), reason in failures.items():
        print(f"Left out: {work}, {name} ({reason}).")
    return 0 if rows else 1


if __name__ == "__main__":
    sys.exit(main())
