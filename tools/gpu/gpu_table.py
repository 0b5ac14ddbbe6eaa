#!/usr/bin/env python3
"""Writes the tables of docs/gpu-results.md from the JSON of the phases of gpu_check.sh.

usage: gpu_table.py FILE.json... [--into docs/gpu-results.md]

Prints Markdown. --into replaces the part of the page between the lines <!-- gpu_check --> and <!-- /gpu_check -->; figures
of the emulation on the host are rejected."""

import argparse
import json
import sys
from pathlib import Path

BEGIN, END = "<!-- gpu_check -->", "<!-- /gpu_check -->"
HOWS = ("ok", "skipped", "failed", "crashed", "timeout", "no time", "not there")


def cell(text):
    return " ".join(str(text).split()).replace("|", "\\|") or " "


def rows(head, body):
    yield "| " + " | ".join(head) + " |"
    yield "|" + "|".join("--:" if name in ("seconds", "figure") + HOWS else "---" for name in head) + "|"
    for row in body:
        yield "| " + " | ".join(map(cell, row)) + " |"
    yield ""


def shown(value):
    if not isinstance(value, (int, float)):
        return value
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def machine(phases):
    """GPU and driver as reported by nvidia-smi, or else by the probe."""
    known = {f["name"]: f["value"] for phase in phases for e in phase["entries"] if e["kind"] in ("version", "probe")
             for f in e.get("figures", [])}
    return known.get("name") or known.get("gpu"), known.get("driver_version")


def cases(entries):
    """Number of cases per program and result, then each case that is neither ok nor skipped."""
    programs = sorted({e["program"] for e in entries})
    count = {(p, how): sum(e["program"] == p and e["how"] == how for e in entries) for p in programs for how in HOWS}
    used = [how for how in HOWS if any(count[p, how] for p in programs)]
    body = [[p, *(count[p, how] for how in used)] for p in programs]
    body.append(["all", *(sum(count[p, how] for p in programs) for how in used)])
    yield from rows(["program", *used], body)
    bad = [e for e in entries if e["how"] not in ("ok", "skipped", "no time")]
    if bad:
        yield from rows(["case", "how", "seconds", "message"],
                        [[f"{e['program']}: {e['name']}", e["how"], e["seconds"], e["reason"]] for e in bad])


def versions(entries):
    yield from rows(["of", "version"], [[e["name"], "; ".join(e["text"].splitlines()) if e["how"] == "ok"
                                              else f"{e['how']}: {e['reason']}"] for e in entries])


def commands(entries):
    """Result of each command, then its figures; a missing figure has a reason."""
    yield from rows(["what", "how", "seconds", "command"],
                    [[e["name"], e["how"] + (f": {e['reason']}" if e["reason"] else ""), e["seconds"],
                      f"`{e['command']}`" if e.get("command") else ""] for e in entries])
    body = [[e["name"] if len(entries) > 1 else "", f["name"],
             f"- ({f['reason']})" if f["value"] is None else shown(f["value"]), f["unit"]]
            for e in entries for f in e.get("figures", [])]
    if body:
        yield from rows(["of", "what", "figure", "unit"], body)


TITLES = {"version": "Versions", "smoke": "Three smoke cases", "case": "Tests, each case in a separate process",
          "probe": "Launches, barriers, graphs, copies", "steps": "Steps of the programs", "profile": "Profiles",
          "peers": "PyTorch and JAX", "sanitizer": "compute-sanitizer", "stop": "Stopped early"}


def lines(phases):
    gpu, driver = machine(phases)
    if any(phase["small"] for phase in phases):
        yield "**Emulation on the host with small sizes: the figures are meaningless.**"
        yield ""
    yield f"{gpu or 'GPU not known'}, driver {driver or 'not known'}."
    yield ""
    yield from rows(["phase", "begun (UTC)", "command"],
                    [[p["phase"], p["begun"], f"`{p['command']}`"] for p in phases])
    for kind, title in TITLES.items():
        entries = [e for phase in phases for e in phase["entries"] if e["kind"] == kind]
        if not entries:
            continue
        yield f"### {title}"
        yield ""
        yield from {"version": versions, "case": cases, "smoke": cases}.get(kind, commands)(entries)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--into", type=Path)
    options = parser.parse_args()
    phases = sorted((json.loads(path.read_text("utf-8")) for path in options.files), key=lambda p: p["phase"])
    text = "\n".join(lines(phases))
    print(text)
    if not options.into:
        return 0
    if any(phase["small"] for phase in phases):
        print("gpu_table.py: these figures are from the emulation on the host; run gpu_check.sh on a GPU", file=sys.stderr)
        return 1
    page = options.into.read_text("utf-8")
    if page.count(BEGIN) != 1 or page.count(END) != 1:
        print(f"gpu_table.py: {options.into} has no line {BEGIN} or {END}", file=sys.stderr)
        return 1
    head, rest = page.split(BEGIN)
    options.into.write_text(f"{head}{BEGIN}\n\n{text}\n{END}{rest.split(END)[1]}", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
