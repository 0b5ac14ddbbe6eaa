#!/usr/bin/env python3
"""Runs Keras' own progress bars on a clock of ours and writes what they wrote as JSON.

    pip download keras==3.15.1 --no-deps && unzip -d keras3 keras-3*.whl
    pip download keras==2.15.0 --no-deps && unzip -d keras2 keras-2*.whl
    python3 record_progress.py keras3/keras/src/utils/progbar.py \
        keras2/keras/src/utils/generic_utils.py > ../../../golden/data/keras_progress.json

Only the class Progbar of each file is run, so no backend is needed; numpy is.
"""

import json
import math
import os
import re
import sys

import numpy


class Fake:
    """Replaces the modules time, sys and io_utils that Progbar uses."""

    def __init__(self):
        self.now = 0.0
        self.text = ""
        self.terminal = True
        self.modules = {}
        self.stdout = self

    def time(self):
        return self.now

    def isatty(self):
        return self.terminal

    def print_msg(self, message, line_break=True):
        self.text += message + ("\n" if line_break else "")


def load(path, fake):
    source = open(path, encoding="utf-8").read()
    body = re.search(r"^class Progbar:.*?(?=^\S|\Z)", source, re.M | re.S).group(0)
    names = {"time": fake, "sys": fake, "io_utils": fake, "np": numpy, "math": math, "os": os}
    exec(compile(body, path, "exec"), names)
    return names["Progbar"]


def steps(times, values=lambda i: {"loss": 2.5 - 0.01 * i, "accuracy": 0.1 + 0.01 * i}):
    return [(t, i + 1, values(i)) for i, t in enumerate(times)]


def one(value):
    return lambda i: {"loss": value}


METRICS = [0.001, 0.0010001, -0.001, -0.5, 0.0, 12345.678, 1e12, math.nan, math.inf, 0.00005]
# name, target (0: unknown), terminal, updates (time since start, step, logs); the last one finishes
SCENARIOS = [
    ("steps of 12 ms are redrawn every 50 ms", 24, True, steps([0.3 + 0.012 * i for i in range(24)])),
    ("five steps on a pipe", 5, False, steps([0.5, 0.6, 0.7, 0.8, 0.9])),
    ("one step", 1, True, steps([0.25])),
    ("unknown target", 0, True, steps([0.2, 1.2, 1.7, 64.2])),
    ("unknown target on a pipe", 0, False, steps([0.2, 1.2, 1.7])),
    ("hours, minutes, seconds to go", 4000, True, steps([2.0, 3.0, 4.5, 4.6, 5.9, 6.0])),
    ("one second more than an hour", 3603, True, steps([9.0, 10.0, 11.0])),
    ("a step in microseconds", 9, True, steps([0.1, 0.1004, 0.1009, 0.2])),
    ("a step without time", 3, True, steps([0.0, 0.0, 0.0])),
    ("a slow step", 3, True, steps([1.0, 3.5, 6.0])),
    ("a line that gets shorter is padded", 900, True, steps([9.0, 9.1, 9.2, 9.3], lambda i: {"loss": 1e9 / 100**i})),
    ("a value that comes at the end", 2, True, [(1.0, 1, {"loss": 1.5, "acc": 0.5}), (2.0, 2, {"loss": 1.25, "acc": 0.75, "Zeta": 1, "val_loss": 1.0})]),
    ("no values", 2, True, steps([1.0, 2.0], lambda i: {})),
    ("a name that is not ASCII", 9, True, steps([1.0, 1.1, 99.0], lambda i: {"größe": 10.0 - 9.9 * (i > 0)})),
] + [(f"metric {value}", 2, False, steps([1.0, 2.0], one(value))) for value in METRICS]


def main(keras3, keras2):
    fake = Fake()
    bars = {"keras": load(keras3, fake), "classic": load(keras2, fake), "plain": load(keras3, fake)}
    scenarios = []
    for style, Progbar in bars.items():
        for name, target, terminal, updates in SCENARIOS:
            if style == "plain" and name == "metric -0.5":
                continue  # there Keras' verbose=2 prints an exponent, and lockstep does not
            fake.now, fake.terminal = 1000.0, terminal
            options = {"stateless_metrics": set()}
            if style == "classic":
                options = {"stateful_metrics": {k for u in updates for k in u[2]}}
            bar = Progbar(target or None, verbose=2 if style == "plain" else 1, **options)
            rows = []
            for i, (time, step, logs) in enumerate(updates):
                fake.now, fake.text = 1000.0 + time, ""
                last = i + 1 == len(updates)
                # Keras 3 sorts logs on their way to callbacks; Keras 2 does not.
                values = sorted(logs.items()) if style != "classic" else list(logs.items())
                if style != "plain" and not (last and target):
                    bar.update(step, values, finalize=False)
                text = fake.text
                if last:
                    if not target:
                        bar.target = step
                    fake.text = ""
                    bar.update(step, values, finalize=True)
                    if not target:
                        rows.append(row(fake.now, step, logs, text))
                    text = fake.text
                rows.append(row(fake.now, step, logs, text))
            head = json.dumps({"style": style, "name": name, "target": target, "terminal": terminal})[:-1]
            scenarios.append(head + ', "updates": [\n  ' + ",\n  ".join(rows) + "]}")
    print("[\n" + ",\n".join(scenarios) + "\n]")


def row(time, step, logs, text):
    pairs = [[name, float(value)] for name, value in logs.items()]
    return json.dumps({"time": time, "step": step, "logs": pairs, "text": text}, ensure_ascii=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
