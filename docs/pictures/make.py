#!/usr/bin/env python3
"""Draws the pictures of the documentation: house.svg, the folders and who includes whom; step.svg, a training step; and with
the functions of `./dev plot` strategies.svg, the curves of README.md, and memory.svg, the memory plan of the same model.

The folders and their order are those that tests/house/arrows.py checks, so that the picture cannot be stale. The curves and
the plan are those of the reports in runs/.
Usage: make.py [--check | --record BIN]; with --check nothing is written, and a picture that differs is an error. --record
trains with the programs in the folder BIN, about 3 seconds, and writes the parts of their reports that are drawn into runs/.
"""
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
from xml.sax.saxutils import escape

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
HEADERS = ROOT / "include" / "lockstep"

WHAT = {  # what a folder holds: one or two short lines
    "core": "shapes, errors, random numbers: plain values",
    "concepts": "what a layer, a kernel, a device, a strategy is",
    "functions": "formulas and their derivatives, at compile time",
    "layers": "declarations\nand ops", "losses": "loss of an\nexample", "metrics": "sums that\nmerge",
    "optimizers": "rules and\nschedules", "data": "sources and\npipelines", "cluster": "who is in\nthe job",
    "files": "whole or refused", "devices": "memory, threads, kernels",
    "model": "graph, fusion, plan, engine", "collectives": "sums over replicas",
    "strategies": "one device, mirrored, many workers",
    "training": "fit, evaluate, predict, callbacks",
    "tensorboard": "event files", "onnx": "export to ONNX", "inference": "predictors",
    "testing": "simulated clusters",
}
LIBRARY = {"asio": "Asio", "(oneapi/)?dnnl": "oneDNN", "mpi\\.h": "MPI", "nccl": "NCCL",
           "cuda|cudnn|cublas|nvrtc": "CUDA", "fmt/core\\.h$": "fmt", "protozero/": "protozero",
           "omp\\.h": None, "fmt/(?!core\\.h$)": None}  # OpenMP comes with the compiler
INK, GREY, LINE, CARD = "#1f2933", "#52606d", "#9aa5b1", "#ffffff"
FILLS = ["#e3e8ee", "#d9e8f5", "#dcefdc", "#fbe9d0", "#f3e0ef", "#e2e0f5", "#f7dfdc"]


RUNS = {  # of README.md: name in the picture, command
    "one_device": ("OneDevice", ["{bin}/mnist"]),
    "mirrored": ("Mirrored, 2 replicas", ["{bin}/mnist_mirrored", "--replicas", "2"]),
    "multi_worker": ("MultiWorkerMirrored, 2 processes", ["{bin}/lockstep-run", "-n", "2", "{bin}/mnist_multi_worker"]),
}
OPTIONS = ["--optimizer", "adam", "--epochs", "1", "--steps-per-epoch", "100", "--threads", "1", "--quiet"]
DRAWN = ("epochs", "first_step", "step_loss", "step_accuracy")


def module(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def arrows():
    return module(ROOT / "tests" / "house" / "arrows.py")


def record(programs):
    for name, (_, command) in RUNS.items():
        with tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder) / "report.json"
            subprocess.run([part.format(bin=programs) for part in command] + OPTIONS + ["--report", report], check=True,
                           cwd=folder)
            whole = json.loads(report.read_text("utf-8"))
        keys = (*DRAWN, "memory_plan") if name == "one_device" else DRAWN
        (HERE / "runs").mkdir(exist_ok=True)
        (HERE / "runs" / f"{name}.json").write_text(json.dumps({key: whole[key] for key in keys}) + "\n", "utf-8")


def strategies():
    """The losses and accuracies of three strategies, as `./dev plot --steps --overlay` draws them."""
    plot = module(ROOT / "tools" / "plot.py")
    runs = []
    for (name, (title, _)), stroke in zip(RUNS.items(), plot.overlay_strokes(len(RUNS))):
        runs.append(plot.Run(HERE / "runs" / f"{name}.json", True, stroke))
        runs[-1].path = pathlib.Path(title)
    return plot.picture(runs)


def memory():
    """The memory plan, as `./dev plot --plan` draws it."""
    return module(ROOT / "tools" / "plot.py").memory_map(HERE / "runs" / "one_device.json")


class Picture:
    def __init__(self, width, height, title):
        self.size, self.parts = (width, height), [f"<title>{escape(title)}</title>"]

    def box(self, x, y, w, h, fill, stroke=LINE, radius=6):
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="{radius}" '
                          f'fill="{fill}" stroke="{stroke}"/>')

    def text(self, x, y, text, size=13, color=INK, anchor="middle", weight="normal"):
        self.parts.append(f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{color}" text-anchor="{anchor}" '
                          f'font-weight="{weight}">{escape(text)}</text>')

    def line(self, x1, y1, x2, y2, color=GREY, arrow=False, dashed=False):
        self.parts.append(f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{color}" stroke-width="1.5"'
                          f'{" marker-end=" + chr(34) + "url(#arrow)" + chr(34) if arrow else ""}'
                          f'{" stroke-dasharray=" + chr(34) + "4 3" + chr(34) if dashed else ""}/>')

    def svg(self):
        w, h = self.size
        head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w} {h}" width="{w}" height="{h}" '
                'font-family="Helvetica, Arial, \'DejaVu Sans\', sans-serif">')
        marker = ('<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
                  f'orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="{GREY}"/></marker></defs>')
        card = f'<rect x="0.5" y="0.5" width="{w - 1}" height="{h - 1}" rx="10" fill="{CARD}" stroke="{LINE}"/>'
        return "\n".join([head, marker, card, *self.parts, "</svg>"]) + "\n"


def house():
    """The last level on top; each level includes what lies below it."""
    module = arrows()
    levels = [row.split() for row in module.LEVELS]
    rooms = {}  # a folder's libraries
    for pattern, places in module.ROOMS.items():
        for place in places:
            if LIBRARY[pattern] and ((HEADERS / place).is_dir() or list(HEADERS.glob(place + "*"))):
                rooms.setdefault(place.split("/")[0], []).append(LIBRARY[pattern])
    width, left, right, gap, tall = 920, 30, 760, 10, 62
    pitch = tall + 34
    picture = Picture(width, 66 + pitch * len(levels), "The folders of include/lockstep and who includes whom")
    picture.text(left, 34, "The house: include/lockstep", 17, anchor="start", weight="bold")
    picture.text(left, 54, "A folder includes those on the levels below it; folders on one level do not know each other.",
                 12.5, GREY, "start")
    for level, folders in enumerate(levels):
        y = 72 + pitch * (len(levels) - 1 - level)
        if level:
            middle = (left + right) / 2
            picture.line(middle, y + tall + 3, middle, y + pitch - 3, arrow=True)
            picture.text(middle + 10, y + tall + 22, "includes", 11, GREY, "start")
        w = (right - left - gap * (len(folders) - 1)) / len(folders)
        for i, folder in enumerate(folders):
            x = left + i * (w + gap)
            picture.box(x, y, w, tall, FILLS[level % len(FILLS)])
            lines = WHAT[folder].split("\n")
            if folder == "devices":
                inner = sorted(p.name for p in (HEADERS / folder).iterdir() if p.is_dir())
                picture.text(x + 16, y + 26, folder, 15, anchor="start", weight="bold")
                picture.text(x + 16, y + 46, lines[0], 12, GREY, "start")
                room = (w - 240) / len(inner)
                for k, name in enumerate(inner):
                    picture.box(x + 230 + k * room, y + 12, room - 10, tall - 24, CARD)
                    picture.text(x + 230 + k * room + (room - 10) / 2, y + 36, name, 13)
                continue
            top = y + (26 if len(lines) == 1 else 21)
            picture.text(x + w / 2, top, folder, 15, weight="bold")
            for k, line in enumerate(lines):
                picture.text(x + w / 2, top + 18 + 14 * k, line, 12 if len(lines) == 1 else 11, GREY)
        labels = [f"{folder}: {', '.join(dict.fromkeys(rooms[folder]))}" for folder in folders if folder in rooms]
        for k, line in enumerate(labels):
            picture.text(right + 16, y + tall / 2 + 4 + 16 * (k - (len(labels) - 1) / 2), line, 12, GREY, "start")
    return picture.svg()


def step():
    """One step of two replicas whose buckets overlap with backward."""
    picture = Picture(920, 420, "One training step of two replicas")
    picture.text(30, 34, "One step of two replicas", 17, anchor="start", weight="bold")
    picture.text(30, 54, "Gradients are exchanged bucket by bucket, while backward computes the next ones, where a core is free for that.",
                 12.5, GREY, "start")
    blue, green, orange, violet, red, grey = "#d9e8f5", "#dcefdc", "#fbe9d0", "#e2e0f5", "#f7dfdc", "#eef1f4"
    spans = [  # name, from, to, fill
        ("data", 0, 58, grey), ("forward", 58, 210, blue), ("loss", 210, 262, green),
        ("backward", 262, 565, orange), ("wait", 565, 630, CARD), ("update", 630, 712, violet)]
    left, tall = 170, 40
    lanes = {"replica 0": 92, "replica 1": 304}
    for name, y in lanes.items():
        picture.text(30, y + 17, name, 14, anchor="start", weight="bold")
        picture.text(30, y + 33, "computes", 12, GREY, "start")
        for what, begin, end, fill in spans:
            picture.box(left + begin, y, end - begin, tall, fill, radius=3)
            if what == "backward":
                for k, part in enumerate(("last layers", "middle", "first layers")):
                    x = left + begin + 101 * k
                    if k:
                        picture.line(x, y, x, y + tall, LINE, dashed=True)
                    picture.text(x + 50, y + 17, "backward", 12.5)
                    picture.text(x + 50, y + 32, part, 11, GREY)
            else:
                picture.text(left + (begin + end) / 2, y + 25, what, 12.5, GREY if what == "wait" else INK)
    top, middle = lanes["replica 0"] + tall, 192
    picture.text(30, middle + 27, "exchange", 14, anchor="start", weight="bold")
    picture.text(30, middle + 43, "sums over both", 12, GREY, "start")
    buckets = [("bucket 1", "", 363, 448), ("bucket 2", "", 464, 549), ("bucket 3", "and sums", 565, 630)]
    for k, (what, more, begin, end) in enumerate(buckets):
        picture.box(left + begin, middle + 6, end - begin, 50, red, radius=3)
        picture.text(left + (begin + end) / 2, middle + (36 if not more else 28), what, 12.5)
        if more:
            picture.text(left + (begin + end) / 2, middle + 44, more, 11, GREY)
        at = left + begin
        picture.line(at + 4, top + 2, at + 4, middle + 4, arrow=True)
        picture.line(at + 4, lanes["replica 1"] - 2, at + 4, middle + 58, arrow=True)
    end = left + 630
    picture.line(end - 4, middle + 4, end - 4, top + 4, arrow=True)
    picture.line(end - 4, middle + 58, end - 4, lanes["replica 1"] - 4, arrow=True)
    for k, text in enumerate((
            "Each replica computes its slice of the global batch; the loss is divided by the number of all examples.",
            "The sums of loss and metrics travel with the last bucket. All replicas get the same bits and make the same update.")):
        picture.text(30, 378 + 20 * k, text, 12.5, GREY, "start")
    return picture.svg()


def main():
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:2] == ["--record"] and len(sys.argv) == 3:
        record(pathlib.Path(sys.argv[2]).resolve())
    elif sys.argv[1:] and not check:
        sys.exit("usage: make.py [--check | --record BIN]")
    stale = []
    for name, draw in (("house.svg", house), ("step.svg", step), ("strategies.svg", strategies), ("memory.svg", memory)):
        path, text = HERE / name, draw()
        if check:
            if not path.exists() or path.read_text("utf-8") != text:
                stale.append(name)
        else:
            path.write_text(text, "utf-8")
    if stale:
        sys.exit(f"{' and '.join(stale)} differ from what docs/pictures/make.py draws; run it and commit")


if __name__ == "__main__":
    main()
