#!/usr/bin/env python3
"""Compares lockstep's steps with those of its peers: one table, all programs in turn.

By default the seed step: the tutorials' CNN inside `fit`. --model mlp is another network, --work
evaluate or predict another work, several sizes of --batch are checked for cliffs.

With --workers N each program trains in N processes of this machine, which share the batch: ours
started by lockstep-run, PyTorch's DistributedDataParallel over Gloo, and TensorFlow's
MultiWorkerMirroredStrategy with RING.

Each round runs the machine's peak, every program once (A B C A B C ...), and the peak again, so
that a change of the machine's load meets all of them. A round in which a peak is below 0.9 of the
best one does not count: another program used a part of the machine. Every program is bound to as
many CPUs as it has threads in all and is timed by the rule of support.py: chunks of 50 steps inside
the training loop. The figure of a round is the median of its chunks. tables.py describes how FLOPs
and cliffs are counted.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
from pathlib import Path

import support
import tables
from runs import Failed, alone, execute

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent

PEERS = {
    "pytorch": ["pytorch_mnist.py"],
    "pytorch-channels-last": ["pytorch_mnist.py", "--channels-last"],
    "pytorch-compile": ["pytorch_mnist.py", "--compile"],
    "keras": ["keras_mnist.py"],
    "keras-jit": ["keras_mnist.py", "--jit"],
    "libtorch": ["libtorch_mnist"],  # of the virtual environment's bin, as setup.sh makes it
    "dlib": ["dlib_mnist"],
}
DEFAULT = ["ours", "pytorch", "pytorch-channels-last", "keras", "libtorch", "dlib"]
PEERS_OF_WORKERS = {
    "pytorch-ddp": ["pytorch_ddp_mnist.py"],
    "tensorflow-ring": ["keras_multi_worker_mnist.py"],
}


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--workers", type=support.positive, default=1,
        help="processes that share the batch; from 2 on the peers are others (default: 1)")
    add("--only", help=f"programs, separated by commas, of: ours, {', '.join(PEERS)} (default: "
        f"{','.join(DEFAULT)}); with --workers of: ours, {', '.join(PEERS_OF_WORKERS)} "
        "(default: all)")
    add("--threads", help="thread counts of a process, separated by commas (default: 1,2; with "
        "--workers 1)")
    add("--rounds", type=support.positive, default=5)
    add("--steps", type=support.positive, default=500, help="timed steps of a run")
    add("--warmup", type=support.positive, default=100, help="steps before the timed ones")
    add("--batch", default="64", help="batch sizes, separated by commas (default: 64)")
    support.add_work(parser)
    add("--ours", type=Path, help="lockstep's program (default, in build/release/bin: mnist; with "
        "--model, --work peer_workloads; with --workers mnist_multi_worker, next to lockstep-run)")
    add("--data", type=Path, help="folder of real MNIST for lockstep's program; the peers always "
        "train on random bytes of the same size (default: drawn digits)")
    add("--venv", type=Path, default=HERE / ".venv", help="virtual environment of the peers")
    add("--cxx", default="g++", help="compiler of the peak program")
    add("--lock", type=Path, help="hold an exclusive lock (flock) of this file during each round")
    add("--json", type=Path, help="write every figure to this file")
    options = parser.parse_args()
    many = options.workers > 1
    options.other = options.model != "cnn" or options.work != "fit"
    if many and options.other:
        parser.error("--workers: only the CNN is trained in several processes")
    options.peers = PEERS_OF_WORKERS if many else PEERS
    programs = ["ours", *options.peers]
    options.ours = options.ours or (
        REPOSITORY / "build/release/bin" / (
            "mnist_multi_worker" if many else "peer_workloads" if options.other else "mnist"))
    options.only = options.only.split(",") if options.only else programs if many else DEFAULT
    for name in options.only:
        if name not in programs:
            parser.error(f"--only: no program is called '{name}'; there are {', '.join(programs)}")
    try:
        options.threads = [support.positive(text)
                           for text in (options.threads or ("1" if many else "1,2")).split(",")]
        options.batches = [support.positive(text) for text in options.batch.split(",")]
    except (ValueError, argparse.ArgumentTypeError):
        parser.error("--threads, --batch: give positive whole numbers, separated by commas")
    options.asked_batch = 64 if options.model == "cnn" else 128
    if max(options.threads) * options.workers > len(os.sched_getaffinity(0)):
        parser.error("--threads, --workers: this process may use "
                     f"{len(os.sched_getaffinity(0))} CPUs")
    if any(batch % options.workers for batch in options.batches):
        parser.error("--batch must be a multiple of --workers")
    if max(options.batches) * support.CHUNK > support.EXAMPLES:
        parser.error(f"--batch: at most {support.EXAMPLES // support.CHUNK}")
    for name in ("steps", "warmup"):
        if getattr(options, name) % support.CHUNK:
            parser.error(f"--{name} must be a multiple of {support.CHUNK}")
    return options


def work_arguments(options, threads, batch):
    """The options of every program that prints the peers' line."""
    work = ["--model", options.model, "--work", options.work] if options.other else []
    return [*work, "--threads", str(threads), "--batch", str(batch),
            "--steps", str(options.steps), "--warmup", str(options.warmup)]


def ours_command(options, threads, batch, report):
    """Command of lockstep's program, with one epoch per chunk."""
    if options.other:
        return [str(options.ours), *work_arguments(options, threads, batch)]
    epochs = (options.warmup + options.steps) // support.CHUNK
    command = [str(options.ours), "--threads", str(threads), "--batch", str(batch),
               "--epochs", str(epochs), "--steps-per-epoch", str(support.CHUNK),
               "--report", str(report), "--quiet"]
    if options.data:
        command += ["--data", str(options.data)]
    if options.workers > 1:
        launcher = options.ours.parent / "lockstep-run"
        command = [str(launcher), "-n", str(options.workers), *command]
    return command


def run_ours(options, threads, batch):
    if options.other:
        return run_printing(ours_command(options, threads, batch, None), threads)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        execute(ours_command(options, threads, batch, report), threads * options.workers)
        try:
            values = json.loads(report.read_text())
            chunks = [epoch["seconds"] * 1000 / support.CHUNK for epoch in values["epochs"]]
            timed = chunks[options.warmup // support.CHUNK :]
            if len(timed) != options.steps // support.CHUNK:
                raise Failed(f"the report has {len(chunks)} epochs, "
                             f"{(options.warmup + options.steps) // support.CHUNK} were asked for")
            return {
                "step_ms": support.summary(timed),
                "report_step_ms": values["step_ms"],
                "versions": {"lockstep": values["version"]},
            }
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Failed(f"the report cannot be used: {error!r}") from error


def peer_command(options, name, threads, batch):
    script, *variant = options.peers[name]
    if options.workers > 1:
        variant += ["--workers", str(options.workers)]
    program = ([str(options.venv / "bin/python"), str(HERE / script)] if script.endswith(".py")
               else [str(options.venv / "bin" / script)])
    return [*program, *variant, *work_arguments(options, threads, batch)]


def run_printing(command, cpus):
    """Runs a program that prints the peers' line."""
    environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="2")
    lines = execute(command, cpus, environment).splitlines()
    try:
        values = json.loads(lines[-1])
        return {"step_ms": values["step_ms"], "versions": values["versions"]}
    except (IndexError, ValueError, KeyError) as error:
        raise Failed(f"no result line: {error!r}") from error


def run_peer(options, name, threads, batch):
    command = peer_command(options, name, threads, batch)
    if not Path(command[0]).exists():
        raise Failed(f"{command[0]} does not exist; create it with benchmarks/peers/setup.sh, or name "
                     "a virtual environment with --venv")
    return run_printing(command, threads * options.workers)


def build_peak(options, folder):
    program = str(Path(folder) / "fma_peak")
    source = str(HERE.parent / "fma_peak.cpp")
    execute([options.cxx, "-std=c++20", "-O2", "-pthread", source, "-o", program], 1)
    return program


def run_once(options, name, threads, batch, peak_program):
    """The figures of one run."""
    if name == "peak":
        count = threads * options.workers
        return json.loads(execute([peak_program, "--threads", str(count)], count))
    if name == "ours":
        return run_ours(options, threads, batch)
    return run_peer(options, name, threads, batch)


def measure(options, peak_program, failures):
    """All rounds of all thread counts and sizes: records in the order in which they ran, and
    failures. A program that failed once is not run again.
    """
    records = []
    turns = [(threads, batch, number) for threads in options.threads
             for number in range(options.rounds) for batch in options.batches]
    for threads, batch, number in turns:
        with alone(options.lock):
            for name in ["peak", *options.only, "peak"]:
                if name in failures:
                    continue
                load = os.getloadavg()[0]
                try:
                    record = run_once(options, name, threads, batch, peak_program)
                except Failed as error:
                    failures[name] = str(error)
                    print(f"run.py: {name} is skipped: {error}", file=sys.stderr)
                    continue
                records.append({**record, "program": name, "threads": threads, "batch": batch,
                                "round": number, "load": load})
                figure = (f"{record['gflops']} GFLOP/s" if name == "peak"
                          else f"{record['step_ms']['median']:.3f} ms")
                print(f"threads {threads}, batch {batch}, round {number + 1}: {name} {figure}",
                      file=sys.stderr)
    return records, failures


def cpu_name():
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def shown(command):
    """A command as a user would type it in the repository."""
    return " ".join(command).replace(f"{REPOSITORY}{os.sep}", "")


def markdown(options, records, failures, rows, peaks):
    sizes = ", ".join(str(batch) for batch in options.batches)
    flops = ", ".join(f"{tables.step_flops(options.model, options.work, batch) / 1e6:.1f}"
                      for batch in options.batches)
    lines = tables.table_lines(rows)
    lines += ["", f"{cpu_name()}, {os.cpu_count()} CPUs. {options.model}, {options.work}. Batch "
              f"{sizes}: {flops} MFLOP a step. {options.rounds} rounds of {options.steps} steps "
              f"after {options.warmup}, in turn; median of the rounds' medians, smallest chunk of "
              "all."]
    if options.workers > 1:
        lines.append(f"Each program in {options.workers} processes, each with its part of the "
                     "batch and its threads.")
    for threads, best in peaks.items():
        if best:
            found = [r for r in records if r["program"] == "peak" and r["threads"] == threads]
            least = min(r["gflops"] for r in found)
            lines.append(f"Peak with {threads * options.workers} threads: {best:.1f} GFLOP/s "
                         f"({found[0]['isa']}), {least:.1f} at worst.")
    for threads in options.threads:
        for batch in options.batches:
            lost = len(tables.disturbed(records, threads, batch))
            if lost:
                lines.append(f"Threads {threads}, batch {batch}: in {lost} of {options.rounds} "
                             f"rounds the peak was below {tables.WHOLE} of the best; "
                             + ("they are left out." if lost < options.rounds
                                else "all count nevertheless, and are unreliable."))
    lines += tables.verdict_lines(options, rows)
    loads = [r["load"] for r in records]
    if loads:
        lines.append(f"Load average (1 minute) before the runs: {min(loads):.1f} to "
                     f"{max(loads):.1f}; the benchmark itself is part of it.")
    reported = [r["report_step_ms"]["median"] for r in records if "report_step_ms" in r]
    if reported:
        lines.append(f"ours by its own report, a clock in each step: median "
                     f"{min(reported):.3f} to {max(reported):.3f} ms.")
    versions = {}
    for record in records:
        versions.update(record.get("versions", {}))
    if versions:
        shown_versions = ", ".join(f"{k} {v}" for k, v in sorted(versions.items()))
        lines.append(f"Versions: {shown_versions}.")
    lines += [f"Left out: {name} ({reason})." for name, reason in failures.items()]
    lines += ["", "```", shown(["python3", str(Path(__file__).resolve()), *sys.argv[1:]])]
    first = options.threads[0], options.batches[0]
    for name in options.only:
        if name not in failures:
            lines.append(shown(ours_command(options, *first, "FILE") if name == "ours"
                               else peer_command(options, name, *first)))
    lines.append("```")
    return "\n".join(lines)


def main():
    options = parse()
    with tempfile.TemporaryDirectory() as folder:
        peak_program, failures = None, {}
        try:
            peak_program = build_peak(options, folder)
        except Failed as error:
            failures["peak"] = f"{options.cxx} cannot build it: {error}"
            print(f"run.py: peak is skipped: {failures['peak']}", file=sys.stderr)
        records, failures = measure(options, peak_program, failures)
    rows, peaks = tables.table(options, records)
    print(markdown(options, records, failures, rows, peaks))
    if options.json:
        result = {"cpu": cpu_name(), "workers": options.workers, "model": options.model,
                  "work": options.work, "steps": options.steps, "warmup": options.warmup, "table": rows, "peak_gflops": peaks, "failures": failures, "records": records}
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0 if rows else 1


if __name__ == "__main__":
    sys.exit(main())
