#!/usr/bin/env python3
"""Compares `cifar10` with PyTorch on the CIFAR-10 tutorial's ResNet: step time and memory.

Each round runs every program once for each thread count, in turn (A B C A B C ...), bound to as
many CPUs as it has threads. A program makes --steps steps on images of bytes that it standardizes;
the first half of them warm up. The figure of a round is the median of the others. Memory is the
peak resident size of the process, for PyTorch also without the memory of its import.
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
PROGRAMS = ("ours", "ours-bfloat16", "pytorch", "pytorch-bfloat16")
PEER = {"ours": "pytorch", "ours-bfloat16": "pytorch-bfloat16"}
SPEED = 1.5  # a peer's step over ours, at least
RESIDENT, ADDED = 0.60, 0.75  # our peak over a peer's, and over what it adds to its import, at most


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--only", default=",".join(PROGRAMS), help="programs, separated by commas (all)")
    add("--threads", default="1,2", help="separated by commas (1,2)")
    add("--depth", type=int, choices=(20, 56), default=56)
    add("--batch", type=support.positive, default=128)
    add("--rounds", type=support.positive, default=3)
    add("--steps", type=support.positive, default=12, help="of a run (12)")
    add("--ours", type=Path, default=REPOSITORY / "build/release/bin/cifar10")
    add("--venv", type=Path, default=HERE / ".venv", help="virtual environment of the peers")
    add("--lock", type=Path, help="hold an exclusive lock (flock) of this file during each run")
    add("--json", type=Path, help="write every figure to this file")
    options = parser.parse_args()
    options.only = options.only.split(",")
    for name in options.only:
        if name not in PROGRAMS:
            parser.error(f"--only: no program is called '{name}'; there are {', '.join(PROGRAMS)}")
    try:
        options.threads = [support.positive(text) for text in options.threads.split(",")]
    except (ValueError, argparse.ArgumentTypeError):
        parser.error("--threads: give positive whole numbers, separated by commas")
    return options


def run_ours(options, name, threads):
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        precision = "mixed_bfloat16" if name.endswith("bfloat16") else "float32"
        execute([str(options.ours), "--depth", str(options.depth), "--precision", precision,
                 "--threads", str(threads), "--batch", str(options.batch), "--no-augment",
                 "--epochs", "1", "--steps-per-epoch", str(options.steps), "--quiet",
                 "--report", str(report)], threads)
        values = json.loads(report.read_text())
    return {"step_ms": values["step_ms"], "resident_bytes": values["peak_bytes"]["resident"],
            "planned_bytes": values["peak_bytes"]["planned"],
            "versions": {"lockstep": values["version"]}}


def run_peer(options, name, threads):
    text = execute([str(options.venv / "bin/python"), str(HERE / "pytorch_resnet.py"),
                    "--threads", str(threads), "--depth", str(options.depth),
                    "--batch", str(options.batch), "--steps", str(options.steps),
                    *(["--bfloat16"] if name.endswith("bfloat16") else [])], threads)
    return json.loads(text.splitlines()[-1])


def measure(options):
    """Records in the order of the runs, and why programs were skipped."""
    records, failures = [], {}
    for number in range(options.rounds):
        for threads in options.threads:
            for name in options.only:
                if name in failures:
                    continue
                run = run_ours if name.startswith("ours") else run_peer
                try:
                    with alone(options.lock):
                        record = run(options, name, threads)
                except (Failed, OSError, ValueError, KeyError) as error:
                    failures[name] = str(error)
                    continue
                records.append({**record, "program": name, "threads": threads, "round": number})
                print(f"round {number + 1}, threads {threads}: {name} "
                      f"{record['step_ms']['median']:.1f} ms", file=sys.stderr)
    return records, failures


def by_round(records, name, threads, value):
    """The figure of each round in which the program ran."""
    return {r["round"]: value(r) for r in records
            if r["program"] == name and r["threads"] == threads}


def table(options, records):
    """One row per program and thread count."""
    rows = []
    for threads in options.threads:
        for name in options.only:
            mine = [r for r in records if r["program"] == name and r["threads"] == threads]
            if not mine:
                continue
            peer = PEER.get(name, name)
            times = by_round(records, name, threads, lambda r: r["step_ms"]["median"])
            theirs = by_round(records, peer, threads, lambda r: r["step_ms"]["median"])
            ratios = [theirs[n] / times[n] for n in times if n in theirs]
            sizes = by_round(records, peer, threads, lambda r: r["resident_bytes"])
            added = by_round(records, peer, threads,
                             lambda r: r["resident_bytes"] - r.get("imported_bytes", 0))
            resident = statistics.median(r["resident_bytes"] for r in mine)
            row = {"threads": threads, "program": name,
                   "median_ms": statistics.median(times.values()),
                   "min_ms": min(r["step_ms"]["min"] for r in mine), "resident_mb": resident / 1e6}
            if name != peer and ratios:
                row.update(speed=statistics.median(ratios),
                           resident=resident / statistics.median(sizes.values()),
                           added=resident / statistics.median(added.values()))
            elif "imported_bytes" in mine[0]:
                row["added_mb"] = statistics.median(added.values()) / 1e6
            rows.append(row)
    return rows


def lines(rows):
    yield ("| threads | program | step, median ms | step, min ms | peak resident, MB "
           "| PyTorch's time over ours | our memory over PyTorch's | over what it adds |")
    yield "|--:|---|--:|--:|--:|--:|--:|--:|"
    for row in rows:
        def cell(key, form):
            return format(row[key], form) if key in row else "-"
        memory = f"{row['resident_mb']:.0f}" + (
            f" ({row['added_mb']:.0f} after its import)" if "added_mb" in row else "")
        yield (f"| {row['threads']} | {row['program']} | {row['median_ms']:.1f} "
               f"| {row['min_ms']:.1f} | {memory} | {cell('speed', '.2f')} "
               f"| {cell('resident', '.0%')} | {cell('added', '.0%')} |")
    yield ""
    for row in rows:
        for key, bound, holds in (("speed", SPEED, lambda a, b: a >= b),
                                  ("resident", RESIDENT, lambda a, b: a <= b),
                                  ("added", ADDED, lambda a, b: a <= b)):
            if key in row:
                met = "met" if holds(row[key], bound) else "MISSED"
                yield (f"{row['program']}, threads {row['threads']}, {key}: {row[key]:.2f}, "
                       f"{'at least' if key == 'speed' else 'at most'} {bound}: {met}.")


def main():
    options = parse()
    records, failures = measure(options)
    rows = table(options, records)
    print("\n".join(lines(rows)))
    print(f"ResNet-{options.depth}, batch {options.batch}, {options.rounds} rounds of "
          f"{options.steps} steps; load {os.getloadavg()[0]:.1f} at the end.")
    for name, reason in failures.items():
        print(f"Left out: {name} ({reason}).")
    if options.json:
        options.json.write_text(json.dumps({"rows": rows, "failures": failures,
                                            "records": records}, indent=1) + "\n")
    return 0 if rows else 1


if __name__ == "__main__":
    sys.exit(main())
