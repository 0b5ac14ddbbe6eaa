#!/usr/bin/env python3
"""Runs one command of a check on a GPU and writes what came of it into the phase's JSON.

usage: gpu_record.py --into FILE --begin PHASE COMMAND...        begins the file
       gpu_record.py --into FILE --kind KIND --name NAME --seconds N [--figures FILE] [--as FORM] COMMAND...

The file: {"phase", "command", "begun", "small", "entries"}; an entry:

  kind     version, smoke, case, probe, steps, profile, peers, sanitizer, stop
  name     which of its kind; `program` besides for a case
  how      ok, skipped, failed, crashed, timeout, no time, not there
  seconds  how long it took; `reason` the first line that says what went wrong; `text` the end of the output
  figures  [{"name", "value", "unit"}]; a value that is null has a "reason"

A command runs in a process group of its own. At its deadline, N seconds or $LOCKSTEP_GPU_UNTIL (seconds since 1970), when
the phase ends, the group gets SIGTERM, and is killed two seconds later. Exit code 0: ok or skipped."""

import argparse
import csv
import io
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LEAST = 3  # seconds that are worth a start
GRACE = 2  # from SIGTERM to SIGKILL
KEPT = 4000  # characters of output


def left(seconds):
    """Of a command that may take so many, before the phase ends."""
    until = float(os.environ.get("LOCKSTEP_GPU_UNTIL", "inf"))
    return min(seconds, until - time.time())


def kill(process, how=signal.SIGKILL):
    try:
        os.killpg(process.pid, how)
    except ProcessLookupError:
        pass


def wait(process, seconds):
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        pass


def run(command, seconds, folder=None, environment=None):
    """how, reason, seconds, output. Whatever hangs or stays behind is killed."""
    seconds = left(seconds)
    if seconds < LEAST:
        return "no time", "the phase was over", 0.0, ""
    begun = time.monotonic()
    # A file, not a pipe: a process that survives the kill cannot hold it open.
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                       cwd=folder, env=environment, start_new_session=True)
        except OSError as error:
            return "not there", f"{command[0]}: {error.strerror}", 0.0, ""
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
            # It may have processes in groups of their own, which only it can end.
            kill(process, signal.SIGTERM)
            wait(process, GRACE)
        kill(process)
        if code is None:
            wait(process, 5)  # not for ever: the kernel holds what a GPU that hangs holds
        output.seek(0)
        text = output.read().decode(errors="replace")
    took = time.monotonic() - begun
    if code is None:
        return "timeout", f"killed after {took:.0f} s", took, text
    if code < 0:
        return "crashed", signal.Signals(-code).name, took, text
    if code == 127 or code == 1 and last_line(text).startswith("ModuleNotFoundError"):
        return "not there", last_line(text), took, text
    how = {0: "ok", 4: "skipped"}.get(code, "failed")
    return how, "" if how == "ok" else why(text), took, text


def shown(command):
    """Without the folders of this run."""
    text = " ".join(" ".join(command).split())
    for folder in (os.environ.get("LOCKSTEP_GPU_PACK"), os.getcwd()):
        text = text.replace(f"{folder}/", "")
    return text


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no message"


def why(text):
    """The line of an output that says what went wrong: what Catch2 caught, was told, or compared; else the last one."""
    for found in (r"due to unexpected exception with messages?:\s*\n\s*(.+)", r"due to a fatal error condition:\s*\n\s*(.+)",
                  r"SKIPPED:\s*\n(?:explicitly with messages?:\s*\n)?\s*(.+)", r"FAILED:\s*\n\s*(.+)"):
        match = re.search(found, text)
        if match:
            return match[1].strip()[:300]
    return last_line(text)


# What programs report, as figures.

def figure(name, value, unit, reason=None):
    return {"name": name, "value": value, "unit": unit, **({"reason": reason} if reason else {})}


def of_report(values):
    """An example program's --report: a step by the epochs but the first, which compiles, tunes and records."""
    per_epoch = values["steps"] / len(values["epochs"])
    us = [epoch["seconds"] * 1e6 / per_epoch for epoch in values["epochs"]]
    return [figure("a step, median of the epochs from the second on", statistics.median(us[1:] or us), "us"),
            figure("a step of the first epoch", us[0], "us"), figure("loss of the last step", values["step_loss"][-1], ""),
            figure("planned memory", values["peak_bytes"]["planned"] / 1e6, "MB")]


def of_probe(values):
    return [figure("gpu", values["gpu"], ""), *({**f, "name": f"{f['group']}: {f['name']}"} for f in values["figures"])]


def of_profile(values):
    """model.profile as JSON: a row a pass of a layer, in the order of the step, with what it reaches where that was reckoned."""
    all_figures = [figure("a step that is not taken apart", values["step_microseconds"], "us"),
                   figure("the sum of its calls", values["microseconds"], "us"),
                   figure("an event, part of each call", values["event_microseconds"], "us")]
    for number, row in enumerate(values["rows"]):
        name, us = f"{number} {row['layer']}, {row['pass']}", row["microseconds"]
        all_figures.append(figure(name, us, "us"))
        all_figures += [figure(name, row[what] / us / 1e3, unit) for what, unit in (("bytes", "GB/s"), ("flops", "GFLOP/s"))
                        if us > 0 and row[what] > 0]
    return all_figures


def of_peers(values):
    all_figures = []
    for row in values["rows"]:
        name = f"{row['work']}, {row['program']}"
        all_figures.append(figure(f"{name}: a step", 1000 * row["median_ms"], "us"))
        all_figures += [figure(f"{name}: memory, {what}", size / 1e6, "MB") for what, size in row["memory"].items()]
    return all_figures + [figure(f"{f['work']}, {f['program']}: a step", None, "us", f["reason"]) for f in values["failures"]]


def of_csv(text):
    """ncu --csv with a time a kernel; lines that are not its table are passed over."""
    rows = [row for row in csv.reader(io.StringIO(text)) if len(row) > 10]
    columns = [rows[0].index(name) for name in ("Kernel Name", "Metric Name", "Metric Unit", "Metric Value")]
    found = [[row[i] for i in columns] for row in rows[1:]]
    return [figure(f"{n}: {kernel}: {metric}", float(value.replace(",", "")), unit)
            for n, (kernel, metric, unit, value) in enumerate(found) if re.fullmatch(r"[\d.,]+", value)]


def of_smi(text):
    """nvidia-smi --query-gpu=... --format=csv of the first GPU."""
    names, values = list(csv.reader(io.StringIO(text), skipinitialspace=True))[:2]
    return [figure(name, value, "") for name, value in zip(names, values)]


FORMS = {"report": of_report, "probe": of_probe, "profile": of_profile, "peers": of_peers, "csv": of_csv, "smi": of_smi}


def figures_of(form, path, text):
    """Of the file that a command wrote, else of what it said. None: it has none."""
    try:
        content = Path(path).read_text("utf-8", "replace") if path else text
        return FORMS[form](content if form in ("csv", "smi") else json.loads(content))
    except (OSError, ValueError, LookupError, TypeError, statistics.StatisticsError):
        return None


# The phase's file.

def save(path, phase):
    part = Path(f"{path}.part")
    part.write_text(json.dumps(phase, indent=1) + "\n", "utf-8")
    part.replace(path)


def begin(path, name, command):
    save(path, {"phase": name, "command": command, "begun": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                "small": os.environ.get("LOCKSTEP_GPU_CHECK") == "small", "entries": []})


def add(path, entries):
    phase = json.loads(Path(path).read_text("utf-8"))
    phase["entries"] += entries
    save(path, phase)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, required=True)
    parser.add_argument("--begin")
    parser.add_argument("--kind")
    parser.add_argument("--name")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--figures", help="a file that the command writes; without it, what the command says")
    parser.add_argument("--as", dest="form", choices=FORMS)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if options.begin:
        begin(options.into, options.begin, " ".join(options.command))
        return 0
    if options.figures:
        Path(options.figures).unlink(missing_ok=True)
    how, reason, seconds, text = run(options.command, options.seconds)
    entry = {"kind": options.kind, "name": options.name, "how": how, "seconds": round(seconds, 2),
             "command": shown(options.command), "reason": reason, "text": text[-KEPT:]}
    if options.form:
        figures = figures_of(options.form, options.figures, text)
        if figures is not None:
            entry["figures"] = figures
        elif how == "ok":
            entry.update(how="failed", reason=f"it ended well and wrote no figures: {last_line(text)}")
    add(options.into, [entry])
    print(text[-KEPT:].rstrip())
    print(f"-- {options.kind}, {options.name}: {entry['how']}, {seconds:.1f} s {entry['reason']}".rstrip())
    for f in entry.get("figures", []) if options.form not in ("probe", "profile") else []:
        print(f"   {f['name']}: " + (f"- ({f['reason']})" if f["value"] is None else f"{f['value']} {f['unit']}".rstrip()))
    return 0 if entry["how"] in ("ok", "skipped") else 1


if __name__ == "__main__":
    sys.exit(main())
