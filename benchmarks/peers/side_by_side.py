"""Programs side by side: each runs once a round for each thread count, in turn, bound to as many CPUs as it has
threads. The figure of a round is the median of the second half of a run's steps.

A record of a run has "step_ms", "resident_bytes" and, for peers, "imported_bytes", what the import alone takes.
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


def add_options(parser, programs, rounds, ours):
    add = parser.add_argument
    add("--only", default=",".join(programs), help="programs, separated by commas (all)")
    add("--threads", default="1,2", help="separated by commas (1,2)")
    add("--rounds", type=support.positive, default=rounds)
    add("--steps", type=support.positive, default=12, help="of a run (12)")
    add("--ours", type=Path, default=REPOSITORY / "build/release/bin" / ours)
    add("--venv", type=Path, default=HERE / ".venv", help="virtual environment of the peers")
    add("--lock", type=Path, help="hold an exclusive lock (flock) of this file during each run")
    add("--json", type=Path, help="write every figure to this file")


def parse(parser, programs):
    options = parser.parse_args()
    options.only = options.only.split(",")
    for name in options.only:
        if name not in programs:
            parser.error(f"--only: no program is called '{name}'; there are {', '.join(programs)}")
    try:
        options.threads = [support.positive(text) for text in options.threads.split(",")]
    except (ValueError, argparse.ArgumentTypeError):
        parser.error("--threads: give positive whole numbers, separated by commas")
    return options


def run_ours(options, name, threads, arguments):
    """One epoch of --steps steps of a program of ours."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        precision = "mixed_bfloat16" if name.endswith("bfloat16") else "float32"
        execute([str(options.ours), *arguments, "--precision", precision, "--threads", str(threads),
                 "--batch", str(options.batch), "--epochs", "1",
                 "--steps-per-epoch", str(options.steps), "--quiet", "--report", str(report)], threads)
        values = json.loads(report.read_text())
    return {"step_ms": values["step_ms"], "resident_bytes": values["peak_bytes"]["resident"],
            "planned_bytes": values["peak_bytes"]["planned"],
            "versions": {"lockstep": values["version"]}}


def run_peer(options, script, threads, arguments):
    """A program of this folder, which prints a record as its last line."""
    text = execute([str(options.venv / "bin/python"), str(HERE / script), *arguments,
                    "--threads", str(threads), "--batch", str(options.batch),
                    "--steps", str(options.steps)], threads)
    return json.loads(text.splitlines()[-1])


def measure(options, run):
    """Records of run(name, threads) in the order of the runs, and why programs were skipped."""
    records, failures = [], {}
    for number in range(options.rounds):
        for threads in options.threads:
            for name in options.only:
                if name in failures:
                    continue
                try:
                    with alone(options.lock):
                        record = run(name, threads)
                except (Failed, OSError, ValueError, KeyError) as error:
                    failures[name] = str(error)
                    continue
                records.append({**record, "program": name, "threads": threads, "round": number})
                print(f"round {number + 1}, threads {threads}: {name} "
                      f"{record['step_ms']['median']:.1f} ms", file=sys.stderr)
    return records, failures


def best_by_round(records, names, threads, value):
    """The least figure of these programs in each round."""
    figures = {}
    for r in records:
        if r["program"] in names and r["threads"] == threads:
            figures[r["round"]] = min(value(r), figures.get(r["round"], value(r)))
    return figures


def table(options, records, peers):
    """One row per program and thread count. peers: the names that each program of ours is compared with."""
    rows = []
    for threads in options.threads:
        for name in options.only:
            mine = [r for r in records if r["program"] == name and r["threads"] == threads]
            if not mine:
                continue
            others = peers.get(name, [name])

            def least(names, value):
                return best_by_round(records, names, threads, value)

            times = least([name], lambda r: r["step_ms"]["median"])
            theirs = least(others, lambda r: r["step_ms"]["median"])
            ratios = [theirs[n] / times[n] for n in times if n in theirs]
            sizes = least(others, lambda r: r["resident_bytes"])
            added = least(others, lambda r: r["resident_bytes"] - r.get("imported_bytes", 0))
            resident = statistics.median(r["resident_bytes"] for r in mine)
            row = {"threads": threads, "program": name,
                   "median_ms": statistics.median(times.values()),
                   "min_ms": min(r["step_ms"]["min"] for r in mine), "resident_mb": resident / 1e6}
            if name in peers and ratios:
                row.update(speed=statistics.median(ratios),
                           resident=resident / statistics.median(sizes.values()),
                           added=resident / statistics.median(added.values()))
            elif "imported_bytes" in mine[0]:
                row["added_mb"] = statistics.median(added.values()) / 1e6
            rows.append(row)
    return rows


def lines(rows, speed, resident, added=None):
    """The table, and whether a peer's step over ours is at least `speed` and the memory over the peer's at most
    `resident`, over what the peer adds to its import at most `added`."""
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
        for key, bound, holds in (("speed", speed, lambda a, b: a >= b),
                                  ("resident", resident, lambda a, b: a <= b),
                                  ("added", added, lambda a, b: a <= b)):
            if key in row and bound is not None:
                met = "met" if holds(row[key], bound) else "MISSED"
                yield (f"{row['program']}, threads {row['threads']}, {key}: {row[key]:.2f}, "
                       f"{'at least' if key == 'speed' else 'at most'} {bound}: {met}.")


def compare(options, what, run, peers, **bounds):
    """Measures, prints the table and the verdicts. Returns the exit code."""
    records, failures = measure(options, run)
    rows = table(options, records, peers)
    print("\n".join(lines(rows, **bounds)))
    print(f"{what}, {options.rounds} rounds of {options.steps} steps; "
          f"load {os.getloadavg()[0]:.1f} at the end.")
    for name, reason in failures.items():
        print(f"Left out: {name} ({reason}).")
    if options.json:
        options.json.write_text(json.dumps({"rows": rows, "failures": failures,
                                            "records": records}, indent=1) + "\n")
    return 0 if rows else 1
