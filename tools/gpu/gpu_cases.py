#!/usr/bin/env python3
"""Runs each Catch2 case of some programs in a separate process, since an illegal address on a GPU ends the process.

usage: gpu_cases.py FILE [--kind KIND] [--jobs N] [--seconds N] [--only NAME]... PROGRAM...

FILE is the phase's JSON (gpu_record.py). The limit of a case is --seconds, that of all of them $LOCKSTEP_GPU_UNTIL; cases
that were not reached are listed as "no time". --only runs the cases with these names, in this order. --slow also runs cases
tagged [.slow], after all others. Exit code 0: all cases are ok or skipped; 3: all failed for the same reason; 1: otherwise."""

import argparse
import concurrent.futures
import os
import re
import shutil
import sys
import time
from pathlib import Path

import gpu_record

SAVED = 2  # minimum seconds between two writes of the file


def cases(program, seconds, spec):
    """Names of the cases, or none and an entry with the reason. Catch2 lists hidden cases only by their tag."""
    how, reason, took, text = gpu_record.run([program, "--list-tests", "--verbosity", "quiet", *spec], seconds)
    if how == "ok":
        return [line.strip() for line in text.splitlines() if line.strip()], None
    return [], {"kind": "case", "program": Path(program).name, "name": "the list of its cases", "how": how,
                "seconds": round(took, 2), "reason": reason, "text": text[-gpu_record.KEPT:]}


def run(program, name, kind, seconds):
    spec = re.sub(r'([\\,\[\]*"])', r"\\\1", name)
    how, reason, took, text = gpu_record.run([program, spec], seconds)
    if how == "failed" and "g++: not found" in text and not shutil.which("g++"):
        how, reason = "skipped", "it compiles kernels for the host, and g++ was not found"
    return {"kind": kind, "program": Path(program).name, "name": name, "how": how, "seconds": round(took, 2),
            "reason": reason, "text": "" if how in ("ok", "no time") else text[-gpu_record.KEPT:]}


def are_alike(entries):
    """Whether all cases failed for the same reason, ignoring numbers in it."""
    reasons = {(e["how"], re.sub(r"0x[0-9a-f]+|\d+", "#", e["reason"])) for e in entries}
    return len(entries) > 1 and len(reasons) == 1 and not is_good(entries[0])


def is_good(entry):
    return entry["how"] in ("ok", "skipped")


def summary(entries):
    counts = {}
    for entry in entries:
        counts[entry["how"]] = counts.get(entry["how"], 0) + 1
    slowest = sorted(entries, key=lambda e: -e["seconds"])[:5]
    return (f"{len(entries)} cases: " + ", ".join(f"{n} {how}" for how, n in sorted(counts.items())) + "; slowest: "
            + ", ".join(f"{e['name'][:50]} {e['seconds']} s" for e in slowest))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("programs", nargs="+")
    parser.add_argument("--kind", default="case")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--slow", action="store_true")
    options = parser.parse_args()

    entries, todo = [], []
    for spec in ([], ["[.slow]"]) if options.slow else ([],):
        for program in options.programs:
            names, entry = cases(os.path.abspath(program), options.seconds, spec)
            entries += [entry] if entry else []
            todo += [(os.path.abspath(program), name) for name in names]
    if options.only:
        found = {name: (program, name) for program, name in todo}
        entries += [{"kind": options.kind, "program": "", "name": name, "how": "not there", "seconds": 0.0,
                     "reason": "no program has a case of this name", "text": ""}
                    for name in options.only if name not in found]
        todo = [found[name] for name in options.only if name in found]
    unsaved, saved = list(entries), 0.0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        running = [pool.submit(run, program, name, options.kind, options.seconds) for program, name in todo]
        for done in concurrent.futures.as_completed(running):
            entries.append(done.result())
            unsaved.append(done.result())
            if time.monotonic() - saved > SAVED:
                gpu_record.add(options.file, unsaved)
                unsaved, saved = [], time.monotonic()
    gpu_record.add(options.file, unsaved)
    for e in sorted(entries, key=lambda e: (e["program"], e["name"])):
        if not is_good(e) and e["how"] != "no time":
            print(f"{e['how']:>9} {e['seconds']:6.1f} s  {e['program']}: {e['name']}\n           {e['reason']}")
    print(summary(entries))
    if all(map(is_good, entries)):
        return 0
    return 3 if are_alike(entries) else 1


if __name__ == "__main__":
    sys.exit(main())
