#!/usr/bin/env python3
"""Compares the seed step of lockstep with the peers: one table, all programs in turn.

With --workers N each program trains in N processes of this machine, which share the batch: ours
started by lockstep-run, PyTorch's DistributedDataParallel over Gloo, and TensorFlow's
MultiWorkerMirroredStrategy with RING.

Each round runs the machine's peak and then every program once (A B C A B C ...), so that a change
of the machine's load meets all of them. Every program is bound to as many CPUs as it has threads
in all and is timed by the rule of support.py: chunks of 50 steps inside the training loop. The
figure of a round is the median of its chunks.

FLOPs of a step: 2 for each multiply-add. Forward 2*MACs; backward as much again for the gradient
of each weight, and once more for the gradient of each layer's input, but the first layer has none.
So 4*MACs for the convolution and 6*MACs for each dense layer, times the batch. Pointwise work,
pooling and the update are not counted.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import support

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent

PEERS = {
    "pytorch": ["pytorch_mnist.py"],
    "pytorch-channels-last": ["pytorch_mnist.py", "--channels-last"],
    "pytorch-compile": ["pytorch_mnist.py", "--compile"],
    "keras": ["keras_mnist.py"],
    "keras-jit": ["keras_mnist.py", "--jit"],
}
DEFAULT = ["ours", "pytorch", "pytorch-channels-last", "keras"]
PEERS_OF_WORKERS = {
    "pytorch-ddp": ["pytorch_ddp_mnist.py"],
    "tensorflow-ring": ["keras_multi_worker_mnist.py"],
}
ASKED = {"pytorch-ddp": 4, "tensorflow-ring": 5}  # time over ours


class Failed(Exception):
    """A program is missing or did not end well; the text says which and why."""


def step_flops(batch):
    conv = 26 * 26 * 32 * 3 * 3 * 1  # MACs an example: outputs times the size of a filter
    dense = 13 * 13 * 32 * 64 + 64 * 10
    return batch * (4 * conv + 6 * dense)


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
    add("--batch", type=support.positive, default=64)
    add("--ours", type=Path, help="lockstep's program (default: build/release/bin/mnist; with "
        "--workers mnist_multi_worker there, with lockstep-run beside it)")
    add("--data", type=Path, help="folder of real MNIST for lockstep's program; the peers always "
        "train on random bytes of the same size (default: drawn digits)")
    add("--venv", type=Path, default=HERE / ".venv", help="virtual environment of the peers")
    add("--cxx", default="g++", help="compiler of the peak program")
    add("--json", type=Path, help="write every figure to this file")
    options = parser.parse_args()
    many = options.workers > 1
    options.peers = PEERS_OF_WORKERS if many else PEERS
    programs = ["ours", *options.peers]
    options.ours = options.ours or (
        REPOSITORY / "build/release/bin" / ("mnist_multi_worker" if many else "mnist"))
    options.only = options.only.split(",") if options.only else programs if many else DEFAULT
    for name in options.only:
        if name not in programs:
            parser.error(f"--only: no program is called '{name}'; there are {', '.join(programs)}")
    try:
        options.threads = [support.positive(text)
                           for text in (options.threads or ("1" if many else "1,2")).split(",")]
    except (ValueError, argparse.ArgumentTypeError):
        parser.error("--threads: give positive whole numbers, separated by commas")
    if max(options.threads) * options.workers > len(os.sched_getaffinity(0)):
        parser.error("--threads, --workers: this process may use "
                     f"{len(os.sched_getaffinity(0))} CPUs")
    if options.batch % options.workers:
        parser.error("--batch must be a multiple of --workers")
    for name in ("steps", "warmup"):
        if getattr(options, name) % support.CHUNK:
            parser.error(f"--{name} must be a multiple of {support.CHUNK}")
    return options


def execute(command, count, environment=None):
    """Runs a program on the first `count` CPUs; returns its standard output."""
    cpus = sorted(os.sched_getaffinity(0))[:count]
    try:
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            env=environment,
            preexec_fn=lambda: os.sched_setaffinity(0, cpus),
        )
    except OSError as error:
        raise Failed(f"{command[0]}: {error.strerror}") from error
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise Failed(f"exit code {done.returncode}: {lines[-1]}")
    return done.stdout


def ours_command(options, threads, report):
    """lockstep's program with an epoch for each chunk."""
    epochs = (options.warmup + options.steps) // support.CHUNK
    command = [str(options.ours), "--threads", str(threads), "--batch", str(options.batch),
               "--epochs", str(epochs), "--steps-per-epoch", str(support.CHUNK),
               "--report", str(report), "--quiet"]
    if options.data:
        command += ["--data", str(options.data)]
    if options.workers > 1:
        launcher = options.ours.parent / "lockstep-run"
        command = [str(launcher), "-n", str(options.workers), *command]
    return command


def run_ours(options, threads):
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        execute(ours_command(options, threads, report), threads * options.workers)
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


def peer_command(options, name, threads):
    script, *variant = options.peers[name]
    if options.workers > 1:
        variant += ["--workers", str(options.workers)]
    return [str(options.venv / "bin/python"), str(HERE / script), *variant,
            "--threads", str(threads), "--batch", str(options.batch),
            "--steps", str(options.steps), "--warmup", str(options.warmup)]


def run_peer(options, name, threads):
    if not (options.venv / "bin/python").exists():
        raise Failed(f"{options.venv} is no virtual environment; make it with "
                     "benchmarks/peers/setup.sh or name one with --venv")
    environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="2")
    command = peer_command(options, name, threads)
    lines = execute(command, threads * options.workers, environment).splitlines()
    try:
        values = json.loads(lines[-1])
        return {"step_ms": values["step_ms"], "versions": values["versions"]}
    except (IndexError, ValueError, KeyError) as error:
        raise Failed(f"no result line: {error!r}") from error


def build_peak(options, folder):
    program = str(Path(folder) / "fma_peak")
    source = str(HERE.parent / "fma_peak.cpp")
    execute([options.cxx, "-std=c++20", "-O2", "-pthread", source, "-o", program], 1)
    return program


def measure(options, peak_program, failures):
    """All rounds of all thread counts: records in the order in which they ran, and failures.

    A program that failed once is not run again.
    """
    records = []
    for threads in options.threads:
        for number in range(options.rounds):
            for name in ["peak", *options.only]:
                if name in failures:
                    continue
                record = {"program": name, "threads": threads, "round": number,
                          "load": os.getloadavg()[0]}
                try:
                    if name == "peak":
                        count = threads * options.workers
                        command = [peak_program, "--threads", str(count)]
                        record = {**json.loads(execute(command, count)), **record}
                    elif name == "ours":
                        record.update(run_ours(options, threads))
                    else:
                        record.update(run_peer(options, name, threads))
                except Failed as error:
                    failures[name] = str(error)
                    print(f"run.py: {name} is left out: {error}", file=sys.stderr)
                    continue
                records.append(record)
                figure = (f"{record['gflops']} GFLOP/s" if name == "peak"
                          else f"{record['step_ms']['median']:.3f} ms")
                print(f"threads {threads}, round {number + 1}: {name} {figure}", file=sys.stderr)
    return records, failures


def medians(records, name, threads):
    """Median step time by round."""
    return {r["round"]: r["step_ms"]["median"] for r in records
            if r["program"] == name and r["threads"] == threads}


def table(options, records):
    """Rows of the table, and the best peak by thread count."""
    rows, peaks = [], {}
    for threads in options.threads:
        measured = [r["gflops"] for r in records
                    if r["program"] == "peak" and r["threads"] == threads]
        peaks[threads] = max(measured, default=None)
        ours = medians(records, "ours", threads)
        for name in options.only:
            by_round = medians(records, name, threads)
            if not by_round:
                continue
            best = min(r["step_ms"]["min"] for r in records
                       if r["program"] == name and r["threads"] == threads)
            row = {"threads": threads, "program": name,
                   "median_ms": statistics.median(by_round.values()), "min_ms": best}
            ratios = [by_round[number] / ours[number] for number in by_round if number in ours]
            if ratios:
                row["ratio"] = {"median": statistics.median(ratios),
                                "min": min(ratios), "max": max(ratios)}
            if peaks[threads]:
                row["peak_share"] = step_flops(options.batch) / (best * 1e6) / peaks[threads]
            rows.append(row)
    return rows, peaks


def cpu_name():
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def shown(command):
    """A command as a user of the repository would type it."""
    return " ".join(command).replace(f"{REPOSITORY}{os.sep}", "")


def markdown(options, records, failures, rows, peaks):
    lines = ["| threads | program | step, median ms | step, min ms | time over ours (rounds) "
             "| share of peak at min |", "|--:|---|--:|--:|--:|--:|"]
    for row in rows:
        ratio = row.get("ratio")
        ratio = f"{ratio['median']:.2f} ({ratio['min']:.2f}..{ratio['max']:.2f})" if ratio else "-"
        share = f"{row['peak_share']:.0%}" if "peak_share" in row else "-"
        lines.append(f"| {row['threads']} | {row['program']} | {row['median_ms']:.3f} "
                     f"| {row['min_ms']:.3f} | {ratio} | {share} |")
    lines += ["", f"{cpu_name()}, {os.cpu_count()} CPUs. Batch {options.batch}, "
              f"{step_flops(options.batch) / 1e6:.1f} MFLOP a step. {options.rounds} rounds of "
              f"{options.steps} steps after {options.warmup}, in turn; median of the rounds' "
              "medians, smallest chunk of all."]
    if options.workers > 1:
        lines.append(f"Each program in {options.workers} processes, each with its part of the "
                     "batch and its threads.")
    for threads, best in peaks.items():
        if best:
            isa = next(r["isa"] for r in records if r["program"] == "peak")
            lines.append(f"Peak with {threads * options.workers} threads: {best:.1f} GFLOP/s "
                         f"({isa}).")
    for row in rows:
        if row["program"] in ASKED and "ratio" in row:
            ratio, asked = row["ratio"]["median"], ASKED[row["program"]]
            lines.append(f"{row['program']} over ours, threads of a process {row['threads']}: "
                         f"{ratio:.2f}, at least {asked}: {'met' if ratio >= asked else 'MISSED'}.")
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
    for name in options.only:
        if name not in failures:
            lines.append(shown(ours_command(options, options.threads[0], "FILE") if name == "ours"
                               else peer_command(options, name, options.threads[0])))
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
            print(f"run.py: peak is left out: {failures['peak']}", file=sys.stderr)
        records, failures = measure(options, peak_program, failures)
    rows, peaks = table(options, records)
    print(markdown(options, records, failures, rows, peaks))
    if options.json:
        result = {"cpu": cpu_name(), "workers": options.workers, "batch": options.batch, "steps": options.steps,
                  "warmup": options.warmup, "step_flops": step_flops(options.batch),
                  "table": rows, "peak_gflops": peaks, "failures": failures, "records": records}
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0 if rows else 1


if __name__ == "__main__":
    sys.exit(main())
