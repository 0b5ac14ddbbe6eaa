#!/usr/bin/env python3
"""Runs one command of a check on a GPU and adds its result to the phase's JSON.

usage: gpu_record.py --into FILE --begin PHASE COMMAND...        creates the file
       gpu_record.py --into FILE --kind KIND --name NAME --seconds N [--figures FILE] [--as FORM] COMMAND...

The file: {"phase", "command", "begun", "small", "entries"}; an entry:

  kind     version, smoke, case, probe, steps, profile, peers, sanitizer, stop
  name     name within the kind; a case also has `program`
  how      ok, skipped, failed, crashed, timeout, no time, not there
  seconds  duration; `reason`: first line of the output with an error; `text`: end of the output
  figures  [{"name", "value", "unit"}]; a value that is null has a "reason"

A command runs in a separate process group. At its deadline, after N seconds or at the end of the phase, $LOCKSTEP_GPU_UNTIL
(seconds since 1970), the group gets SIGTERM, and SIGKILL two seconds later. Exit code 0: ok or skipped."""

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

LEAST = 3  # a command is not started with fewer seconds left
GRACE = 2  # from SIGTERM to SIGKILL
KEPT = 4000  # characters of output to keep


def left(seconds):
    """Seconds left for a command with this limit before the phase ends."""
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
    """Returns how, reason, seconds, output. Kills the command if it hangs, and processes that it leaves running."""
    seconds = left(seconds)
    if seconds < LEAST:
        return "no time", "the phase ended before", 0.0, ""
    begun = time.monotonic()
    # A file instead of a pipe: a process that survives SIGKILL would keep a pipe open.
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
            # Only the command can stop processes that it started in other groups.
            kill(process, signal.SIGTERM)
            wait(process, GRACE)
        kill(process)
        if code is None:
            wait(process, 5)  # bounded: a process blocked on a hung GPU cannot be killed
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
    """The command without the folders of this run."""
    text = " ".join(" ".join(command).split())
    for folder in (os.environ.get("LOCKSTEP_GPU_PACK"), os.getcwd()):
        text = text.replace(f"{folder}/", "")
    return text


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no message"


def why(text):
    """The line of an output with the error: an exception, message or failed check of Catch2, or else the last line."""
    for found in (r"due to unexpected exception with messages?:\s*\n\s*(.+)", r"due to a fatal error condition:\s*\n\s*(.+)",
                  r"SKIPPED:\s*\n(?:explicitly with messages?:\s*\n)?\s*(.+)", r"FAILED:\s*\n\s*(.+)"):
        match = re.search(found, text)
        if match:
            return match[1].strip()[:300]
    return last_line(text)


# Conversion of the programs' reports to figures.

def figure(name, value, unit, reason=None):
    return {"name": name, "value": value, "unit": unit, **({"reason": reason} if reason else {})}


def of_report(values):
    """An example program's --report. The first epoch is separate, since it compiles, tunes and captures."""
    per_epoch = values["steps"] / len(values["epochs"])
    us = [epoch["seconds"] * 1e6 / per_epoch for epoch in values["epochs"]]
    return [figure("a step, median of the epochs from the second on", statistics.median(us[1:] or us), "us"),
            figure("a step of the first epoch", us[0], "us"), figure("loss of the last step", values["step_loss"][-1], ""),
            figure("planned memory", values["peak_bytes"]["planned"] / 1e6, "MB")]


def of_probe(values):
    return [figure("gpu", values["gpu"], ""), *({**f, "name": f"{f['group']}: {f['name']}"} for f in values["figures"])]


def of_profile(values):
    """model.profile as JSON: one row per pass of a layer, in order, with its throughput where bytes or FLOPs are known."""
    all_figures = [figure("a step without instrumentation", values["step_microseconds"], "us"),
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
    """ncu --csv with a time per kernel; lines that are not part of the table are skipped."""
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
    """Figures from the file that a command wrote, or else from its output; None if there are none."""
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
    parser.add_argument("--figures", help="a file that the command writes; default: its output")
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
