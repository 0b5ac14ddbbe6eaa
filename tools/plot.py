#!/usr/bin/env python3
"""Draws the loss and the metrics of training runs, from the reports that the example programs write with --report, the plan
of their memory from one of these, or a step's timeline from a trace that they write with --trace.

Writes one picture with a panel per value: training as a solid line, validation dashed, one colour per report. The script
writes SVG itself; PNG is converted from it by rsvg-convert. Exit code 1: error; 2: wrong command line.
"""
import argparse
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
from xml.sax.saxutils import escape

COLORS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5b4b8a", "#7a7a7a"]  # Okabe and Ito
INK, GREY, GRID = "#1f2933", "#52606d", "#dde3ea"
PANEL, SIDE, ABOVE, BELOW, GAP = (430, 270), 62, 44, 44, 24  # size of a panel's plot and its margins


class PlotError(Exception):
    pass


class Run:
    """A report: its name, and the curves (training, validation) of each value as lists of (x, y)."""

    entries = ("training", "validation")  # of the legend: solid and dashed

    def __init__(self, path, by_step, stroke=2.0):
        self.stroke = stroke
        self.path = path
        report = self.read(path)
        epochs, self.curves = report["epochs"], {}
        self.by_step, self.axis = by_step, "step" if by_step else "epoch"
        if by_step:
            for key in report:
                if key.startswith("step_") and key != "step_ms":
                    first = report.get("first_step", 0)
                    self.curves[key.removeprefix("step_")] = (self.points(key, report[key], first), [])
            self.check("no steps; train at least one")
            return
        if not epochs:
            raise PlotError(f"{path}: the report has no finished epoch; train one, or draw steps with --steps")
        names = dict.fromkeys(name for epoch in epochs for name in epoch if name != "seconds")
        for name in names:
            if not name.startswith("val_"):
                self.curves[name] = tuple(
                    self.points(key, [epoch.get(key) for epoch in epochs], 1) for key in (name, f"val_{name}"))
        self.check("no number to draw; train with a loss that is finite")

    def check(self, what):
        self.curves = {name: pair for name, pair in sorted(self.curves.items(), key=lambda c: c[0] != "loss") if any(pair)}
        if not self.curves:
            raise PlotError(f"{self.path}: the report has {what}")

    @staticmethod
    def read(path):
        try:
            report = json.loads(path.read_text("utf-8"))
        except OSError as error:
            raise PlotError(f"{path}: {error.strerror.lower()}; name a file that was written with --report") from None
        except ValueError as error:
            raise PlotError(f"{path}: is not JSON ({error}); name a file that was written with --report") from None
        epochs = report.get("epochs") if isinstance(report, dict) else None
        if not isinstance(epochs, list) or not all(isinstance(epoch, dict) for epoch in epochs):
            why = f": it ends with the error '{report['error']}'" if isinstance(report, dict) and "error" in report else ""
            raise PlotError(f"{path}: is not a report of a training run, as it has no 'epochs'{why}; name a file "
                            "that was written with --report")
        return report

    def points(self, key, values, first):
        """None, NaN and infinity leave a gap."""
        if not isinstance(values, list):
            raise PlotError(f"{self.path}: '{key}' is not a list of numbers; name a file that was written with --report")
        found = []
        for x, value in enumerate(values, first):
            if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
                raise PlotError(f"{self.path}: '{key}' holds {json.dumps(value)}, which is not a number; name a file that "
                                "was written with --report")
            found.append((x, value if value is not None and math.isfinite(value) else None))
        return found if any(y is not None for _, y in found) else []


class Scaling:
    """The throughput of reports with different numbers of replicas, and that of as many times the smallest job."""

    entries, axis, by_step, stroke = ("measured", "proportional"), "replicas", False, 2.0

    def __init__(self, paths):
        self.path, found = paths[0], {}
        for path in paths:
            report = Run.read(path)
            try:
                replicas, speed = report["replicas"], 1000 * report["batch"] / report["step_ms"]["median"]
            except (KeyError, TypeError, ZeroDivisionError):
                raise PlotError(f"{path}: the report has no 'replicas', 'batch' and 'step_ms'; train a few steps") from None
            if replicas in found:
                raise PlotError(f"{path}: another report also has {replicas} replicas; name one for each number")
            found[replicas] = speed
        points = sorted(found.items())
        least, speed = points[0]
        self.curves = {"examples per second": (points, [(n, speed * n / least) for n, _ in points]),
                       "share of proportional": ([(n, s * least / (speed * n)) for n, s in points], [])}


def ticks(low, high, most):
    """At most `most` round numbers from low to high."""
    step = 10.0 ** math.floor(math.log10((high - low) / most))
    step *= next(m for m in (1, 2, 5, 10, 20) if (high - low) / (m * step) <= most)
    return [k * step for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def number(value):
    return f"{value:.6g}" if value else "0"


def text(x, y, what, size=12, color=GREY, anchor="middle", weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{color}" text-anchor="{anchor}" '
            f'font-weight="{weight}">{escape(what)}</text>')


def panel(left, top, name, runs):
    """The panel of a value, with the curves of all runs that have it."""
    (width, height), parts = PANEL, []
    curves = [(run, curve) for run in runs for curve in [run.curves.get(name)] if curve]
    points = [p for _, pair in curves for curve in pair for p in curve if p[1] is not None]
    x_low, x_high = min(x for x, _ in points), max(x for x, _ in points)
    y_low, y_high = min(y for _, y in points), max(y for _, y in points)
    room = (y_high - y_low) * 0.06 or max(abs(y_high) * 0.05, 1e-6)
    y_low, y_high = y_low - room, y_high + room
    sides = 0.02 * (x_high - x_low) or 0.5
    x_low, x_high = x_low - sides, x_high + sides

    def place(x, y):
        return (left + (x - x_low) / (x_high - x_low) * width, top + height - (y - y_low) / (y_high - y_low) * height)

    parts.append(text(left, top - 12, name, 15, INK, "start", "bold"))
    for y in ticks(y_low, y_high, 6):
        at = place(x_low, y)[1]
        parts.append(f'<line x1="{left}" y1="{at:.1f}" x2="{left + width}" y2="{at:.1f}" stroke="{GRID}"/>')
        parts.append(text(left - 8, at + 4, number(y), anchor="end"))
    for x in ticks(x_low, x_high, 8):
        if x == round(x):
            parts.append(text(place(x, y_low)[0], top + height + 18, number(x)))
    parts.append(text(left + width / 2, top + height + 36, runs[0].axis))
    parts.append(f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="none" stroke="#9aa5b1"/>')
    for run, pair in curves:
        color = COLORS[runs.index(run) % len(COLORS)]
        for curve, dashes in zip(pair, ("", ' stroke-dasharray="6 4"')):
            pieces = [[]]
            for x, y in curve:
                if y is None:
                    pieces.append([])
                else:
                    pieces[-1].append(place(x, y))
            for piece in filter(None, pieces):
                if len(piece) > 1:
                    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in piece)
                    parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="{run.stroke:g}" '
                                 f'stroke-linejoin="round"{dashes}/>')
                if len(piece) <= 60 and not run.by_step or len(piece) == 1:
                    parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{1.6 + run.stroke / 2:g}" fill="{color}"/>' for x, y in piece]
    return parts


def legend(runs, left, top):
    """The legend: a stroke and a name per entry."""
    parts, x = [], left
    has_validation = any(curve[1] for run in runs for curve in run.curves.values())
    stems = [run.path.stem for run in runs]
    names = stems if len(set(stems)) == len(stems) else [str(run.path) for run in runs]
    entries = [(COLORS[i % len(COLORS)], "", runs[i].stroke, name) for i, name in enumerate(names)] if len(runs) > 1 else []
    if has_validation or len(runs) == 1:
        color = INK if len(runs) > 1 else COLORS[0]
        entries.append((color, "", 2, runs[0].entries[0]))
        if has_validation:
            entries.append((color, ' stroke-dasharray="6 4"', 2, runs[0].entries[1]))
    for color, dashes, stroke, what in entries:
        parts.append(f'<line x1="{x}" y1="{top - 4}" x2="{x + 26}" y2="{top - 4}" stroke="{color}" '
                     f'stroke-width="{stroke:g}"{dashes}/>')
        parts.append(text(x + 32, top, what, 12.5, INK, "start"))
        x += 32 + 7.5 * len(what) + 24
    return parts, x


def picture(runs):
    names = list(dict.fromkeys(name for run in runs for name in run.curves))
    columns = min(2, len(names))
    rows = (len(names) + columns - 1) // columns
    (width, height), head = PANEL, 36
    legend_parts, end = legend(runs, SIDE, 26)
    whole = (max(columns * (SIDE + width) + GAP, end), head + rows * (ABOVE + height + BELOW) + 8)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {whole[0]:g} {whole[1]:g}" width="{whole[0]:g}" '
             f'height="{whole[1]:g}" font-family="Helvetica, Arial, \'DejaVu Sans\', sans-serif">',
             f"<title>{escape(', '.join(names))}</title>",
             f'<rect width="{whole[0]:g}" height="{whole[1]:g}" rx="8" fill="#ffffff"/>', *legend_parts]
    for i, name in enumerate(names):
        parts += panel(SIDE + (i % columns) * (SIDE + width), head + ABOVE + (i // columns) * (ABOVE + height + BELOW),
                       name, runs)
    return "\n".join([*parts, "</svg>"]) + "\n"


def read_trace(path):
    """The events of a trace, {name, cat, ts, dur, pid, tid, args}, and the names of its threads by (pid, tid)."""
    try:
        events = json.loads(path.read_text("utf-8"))["traceEvents"]
        threads = {(int(e["pid"]), int(e["tid"])): f"rank {e['pid']}, {e['args']['name']}" for e in events
                   if e["ph"] == "M" and e["name"] == "thread_name"}
        events = [e for e in events if e["ph"] == "X"]
        for e in events:
            if not ((e["pid"], e["tid"]) in threads and math.isfinite(e["ts"]) and 0 <= e["dur"] < math.inf and e["name"]
                    and isinstance(e["cat"], str) and isinstance(e["args"], dict)):
                raise ValueError("an event without a named thread, times and arguments")
            if (e["name"], e["cat"]) == ("step", "loop") and not (isinstance(e["args"]["step"], int) and e["dur"] > 0):
                raise ValueError("a step without number or duration")
        return events, threads
    except OSError as error:
        raise PlotError(f"{path}: {error.strerror.lower()}; name a file that was written with --trace") from None
    except (ValueError, KeyError, TypeError):
        raise PlotError(f"{path}: is not a trace; name a file that was written with --trace") from None


def timeline(path):
    """One step of a trace: a row per thread, a box per event. The step is the chief's of median duration."""
    events, threads = read_trace(path)
    steps = sorted((e for e in events if (e["pid"], e["name"], e["cat"]) == (0, "step", "loop")), key=lambda e: e["dur"])
    if not steps:
        raise PlotError(f"{path}: the trace has no step; trace at least one")
    number_of_step = steps[len(steps) // 2]["args"]["step"]
    whole = [e for e in events if (e["name"], e["cat"]) == ("step", "loop") and e["args"]["step"] == number_of_step]
    begin, end = min(e["ts"] for e in whole), max(e["ts"] + e["dur"] for e in whole)
    names = {"forward": "forward", "loss": "loss", "backward": "backward", "recompute": "recompute", "exchange": "exchange",
             "update": "update", "data": "data", "loop": "data, callbacks"}
    colors = dict(zip(names, COLORS))
    left, width, row, top = 190, 900, 30, 60
    rows = sorted(threads)
    height = top + len(rows) * row + 40
    title = f"step {number_of_step}, {end - begin:.0f} us"
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 24} {height}" width="{left + width + 24}" '
             f'height="{height}" font-family="Helvetica, Arial, \'DejaVu Sans\', sans-serif">', f"<title>{title}</title>",
             f'<rect width="{left + width + 24}" height="{height}" rx="8" fill="#ffffff"/>',
             text(left, 22, title, 15, INK, "start", "bold")]
    x = left
    shown = [e for e in events if e["ts"] < end and e["ts"] + e["dur"] > begin and e["name"] != "step"]
    for category in dict.fromkeys(c for c in names if any(e["cat"] == c for e in shown)):
        parts.append(f'<circle cx="{x + 5}" cy="40" r="5" fill="{colors[category]}"/>')
        parts.append(text(x + 14, 44, names[category], 12, INK, "start"))
        x += 30 + 7 * len(names[category])
    for i, thread in enumerate(rows):
        parts.append(text(left - 10, top + i * row + 18, threads[thread], anchor="end"))
    for e in sorted(shown, key=lambda e: (e["ts"], -e["dur"])):
        at = left + (max(e["ts"], begin) - begin) / (end - begin) * width
        size = (min(e["ts"] + e["dur"], end) - max(e["ts"], begin)) / (end - begin) * width
        y, is_inner = top + rows.index((e["pid"], e["tid"])) * row, e["name"] in ("bucket", "wait", "sums", "push", "pull")
        shade = ' fill-opacity="0.35"' if e["name"] == "wait" else ""
        parts.append(f'<rect x="{at:.2f}" y="{y + 12 if is_inner else y + 2}" width="{size:.2f}" '
                     f'height="{12 if is_inner else 24}" fill="{colors.get(e["cat"], COLORS[-1])}"{shade} stroke="#ffffff" '
                     f'stroke-width="0.4"><title>{escape(e["name"])}, {escape(e["cat"])}: {e["dur"]:.1f} us</title></rect>')
    for x in ticks(0, end - begin, 8):
        parts.append(text(left + x / (end - begin) * width, height - 18, number(x) + (" us" if x == 0 else "")))
    return "\n".join([*parts, "</svg>"]) + "\n"


def read_plan(path):
    """The memory plan of a report, or a file that has only a plan (to_json of ls::memory_plan)."""
    try:
        plan = json.loads(path.read_text("utf-8"))
        plan = plan.get("memory_plan", plan)
        times, buffers = plan["times"], plan["buffers"]
        if not times or not all(isinstance(t, str) for t in times):
            raise ValueError("no times")
        for b in buffers:
            if not (isinstance(b["layer"], str) and isinstance(b["what"], str) and 0 <= b["from"] <= b["to"] < len(times)
                    and 0 <= b["offset"] and 0 < b["bytes"] and b["offset"] + b["bytes"] <= plan["arena_bytes"]):
                raise ValueError("a buffer outside of the arena")
        if any(plan[key] < 0 for key in ("examples", "weight_bytes", "gradient_bytes", "state_bytes", "unshared_bytes")):
            raise ValueError("a negative size")
        return plan
    except OSError as error:
        raise PlotError(f"{path}: {error.strerror.lower()}; name a file that was written with --report") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise PlotError(f"{path}: has no memory plan; name a file that was written with --report") from None


def size(count):
    """Bytes as in model.summary()."""
    power = 0 if count < 1024 else 1 if count < 1024**2 else 2 if count < 1024**3 else 3
    return f"{count / 1024**power:.{2 if power else 0}f} {'B KB MB GB'.split()[power]}"


def memory_map(path):
    """The arena of a replica: a rectangle per buffer, from its first to its last use and over its addresses."""
    plan = read_plan(path)
    times, buffers, arena = plan["times"], plan["buffers"], plan["arena_bytes"]
    if not buffers:
        raise PlotError(f"{path}: the plan has no buffer; the model computes nothing")
    live = [sum(b["bytes"] for b in buffers if b["from"] <= t <= b["to"]) for t in range(len(times))]
    peak = max(range(len(times)), key=lambda t: live[t])
    colors = {"output": COLORS[5], "output and gradient": COLORS[3], "gradient": COLORS[4], "second gradient": COLORS[1],
              "saved": COLORS[2]}

    def kind(b):
        return b["what"] if b["what"] in colors else b["what"].split(" ")[0].rstrip(",")

    left = max(84, round(3.5 * len(times[0])))  # the first label of the times ends right of it
    top, width, height = 78, max(640, min(18 * len(times), 1800)), 420
    every = max(1, math.ceil(13 * len(times) / width))  # labels of times need 13 pixels each
    shown = range(0, len(times), every)
    below = 30 + 0.8 * 6.2 * max(len(times[t]) for t in shown)
    whole = (left + width + 24 + max(130, 6.6 * len(f"at {times[peak]}")), top + height + below)
    title = f"Memory of a step: {size(arena)} for {plan['examples']} examples"

    def place(time, offset):
        return left + time / len(times) * width, top + height - offset / arena * height

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {whole[0]:.0f} {whole[1]:.0f}" width="{whole[0]:.0f}" '
             f'height="{whole[1]:.0f}" font-family="Helvetica, Arial, \'DejaVu Sans\', sans-serif">',
             f"<title>{escape(title)}</title>", f'<rect width="{whole[0]:.0f}" height="{whole[1]:.0f}" rx="8" fill="#ffffff"/>',
             text(left, 26, title, 15, INK, "start", "bold"),
             text(left, 44, f"in use at all times: weights {size(plan['weight_bytes'])}, gradients "
                            f"{size(plan['gradient_bytes'])}, state {size(plan['state_bytes'])}; without reuse of memory "
                            f"the arena has {size(plan['unshared_bytes'])}", 11.5, GREY, "start")]
    x = left
    for what in dict.fromkeys(k for k in [*colors, *map(kind, buffers)] if any(kind(b) == k for b in buffers)):
        parts.append(f'<circle cx="{x + 5}" cy="60" r="5" fill="{colors.get(what, COLORS[-1])}"/>')
        parts.append(text(x + 14, 64, what, 12, INK, "start"))
        x += 30 + 7 * len(what)
    unit = next(1024**p for p in (3, 2, 1, 0) if arena >= 1024**p)
    for y in ticks(0, arena / unit, 6):
        at = place(0, y * unit)[1]
        parts.append(f'<line x1="{left}" y1="{at:.1f}" x2="{left + width}" y2="{at:.1f}" stroke="{GRID}"/>')
        parts.append(text(left - 8, at + 4, f"{number(y)} {size(unit).split(' ')[1]}", anchor="end"))
    for b in buffers:
        (x0, y0), (x1, y1) = place(b["from"], b["offset"] + b["bytes"]), place(b["to"] + 1, b["offset"])
        name = f"{b['layer']} {b['what']}"
        parts.append(f'<rect x="{x0:.2f}" y="{y0:.3f}" width="{x1 - x0:.2f}" height="{y1 - y0:.3f}" '
                     f'fill="{colors.get(kind(b), COLORS[-1])}" stroke="#ffffff" stroke-width="0.6"><title>{escape(name)}: '
                     f"{size(b['bytes'])} at {size(b['offset'])}, from {escape(times[b['from']])} to {escape(times[b['to']])}"
                     f"</title></rect>")
        if y1 - y0 >= 12 and x1 - x0 > 24:
            room = int((x1 - x0) / 6.6)
            parts.append(text(x0 + 4, (y0 + y1) / 2 + 4, name if len(name) <= room else name[:room - 1] + "…", 10.5, INK, "start"))
    for t in shown:
        x, y = place(t + 0.5, 0)
        parts.append(f'<g transform="translate({x + 4:.1f} {y + 12:.1f}) rotate(-55)">{text(0, 0, times[t], 10.5, GREY, "end")}</g>')
    parts.append(f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="none" stroke="#9aa5b1"/>')
    # The peak of the addresses, and the time at which most bytes are in use.
    parts.append(f'<line class="peak" x1="{left}" y1="{top}" x2="{left + width + 6}" y2="{top}" stroke="{INK}" stroke-width="1.6"/>')
    parts.append(text(left + width + 10, top + 4, f"peak {size(arena)}", 12, INK, "start", "bold"))
    x, y = place(peak + 0.5, live[peak])
    parts.append(f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{top + height}" stroke="{INK}" stroke-dasharray="3 3"/>')
    parts.append(text(left + width + 10, top + 22, f"in use {size(live[peak])}", 11.5, GREY, "start"))
    parts.append(text(left + width + 10, top + 38, f"at {times[peak]}", 11.5, GREY, "start"))
    return "\n".join([*parts, "</svg>"]) + "\n"


def write(path, svg):
    """Writes the picture atomically, so that an error does not destroy an existing one."""
    if path.suffix.lower() not in (".svg", ".png"):
        raise PlotError(f"{path}: the name of a picture must end in .svg or .png")
    temporary = path.with_name(path.name + f".{os.getpid()}")
    try:
        if path.suffix.lower() == ".svg":
            temporary.write_text(svg, "utf-8")
        elif shutil.which("rsvg-convert"):
            done = subprocess.run(["rsvg-convert", "--zoom", "2", "--output", temporary], input=svg, text=True,
                                  encoding="utf-8", capture_output=True)
            if done.returncode:
                raise PlotError(f"{path}: rsvg-convert could not write it: {done.stderr.strip()}")
        else:
            raise PlotError(f"{path}: PNG needs the program rsvg-convert, which is not here; install it "
                            "(Debian: librsvg2-bin), or write an .svg")
        temporary.replace(path)
    except OSError as error:
        raise PlotError(f"{path}: {error.strerror.lower()}; name a file in a folder that can be written") from None
    finally:
        temporary.unlink(missing_ok=True)


def overlay_strokes(count):
    """Widths of curves that are drawn one over the other, each narrower than those before."""
    return [1.5 + 2.5 * later for later in range(count - 1, -1, -1)]


def main():
    parser = argparse.ArgumentParser(prog="lockstep-plot", description="Draws the loss and the metrics of training runs.",
                                     allow_abbrev=False)
    parser.add_argument("reports", nargs="+", type=pathlib.Path, metavar="REPORT.json",
                        help="a report of an example program (--report); several are drawn into one picture")
    parser.add_argument("-o", "--output", type=pathlib.Path, metavar="FILE",
                        help="the picture, .svg or .png; default: the first report's name with .svg")
    parser.add_argument("--steps", action="store_true", help="a point for each step of training instead of each epoch")
    parser.add_argument("--overlay", action="store_true",
                        help="draw each report's curves narrower than those before, so that equal curves stay visible")
    parser.add_argument("--timeline", action="store_true",
                        help="draw a step from a trace (--trace) instead: what each replica does at which time")
    parser.add_argument("--scaling", action="store_true",
                        help="draw the throughput by the number of replicas, from a report for each number")
    parser.add_argument("--plan", action="store_true",
                        help="draw the memory plan of a report: which buffer of a step is where in memory, and when")
    options = parser.parse_args()
    if options.scaling and (options.timeline or options.steps or options.overlay):
        parser.error("--scaling draws one curve, without --timeline, --steps and --overlay")
    if options.plan and (len(options.reports) > 1 or options.timeline or options.scaling or options.steps or options.overlay):
        parser.error("--plan draws one report, without --timeline, --scaling, --steps and --overlay")
    if options.timeline and (len(options.reports) > 1 or options.steps or options.overlay):
        parser.error("--timeline draws one trace, without --steps and --overlay")
    try:
        output = options.output or options.reports[0].with_suffix(".svg")
        if options.timeline or options.plan:
            write(output, (timeline if options.timeline else memory_map)(options.reports[0]))
            print(output)
            return
        if options.scaling:
            write(output, picture([Scaling(options.reports)]))
            print(output)
            return
        strokes = overlay_strokes(len(options.reports)) if options.overlay else [2.0] * len(options.reports)
        write(output, picture([Run(path, options.steps, stroke) for path, stroke in zip(options.reports, strokes)]))
    except PlotError as error:
        sys.exit(f"lockstep-plot: {error}")
    print(output)


if __name__ == "__main__":
    main()
