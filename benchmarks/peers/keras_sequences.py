#!/usr/bin/env python3
"""Trains the networks of the programs `sentiment` and `forecast` in Keras, for
tests/programs/sequences_slow.py. The data are drawn into FOLDER: sentences.npz, with the grammar of
the program's drawn sentences, and series.csv. --record writes the loss and the metrics of each
epoch of three seeds: `FOLDER --record tests/programs/sequences_keras.json` wrote that file. Without
it the data are drawn only, which needs no Keras."""

import argparse
import json
import math
import random
import sys
from pathlib import Path

import numpy

STEPS, WORDS = 40, 1_000  # as in programs/sentiment.cpp
WINDOW = 24  # as in programs/forecast.cpp
SEEDS = (1, 2, 3)

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("folder", type=Path, help="folder for the data")
parser.add_argument("--record", type=Path, help="train, and write the results into this file")
options = parser.parse_args()


def draw_words(draw, length):
    """Words of a sentence, and the sum of their opinions. 4 negations, 50 positive and 50 negative
    words and 196 others have the numbers from 1."""
    words, total, negated = [], 0, False
    for i in range(length):
        kind = 0 if negated else draw.random()
        if kind < 0.2:
            positive = draw.random() < 0.5
            words.append(5 + (0 if positive else 50) + draw.randrange(50))
            total += 1 if positive != negated else -1
            negated = False
        elif kind < 0.3 and i + 1 < length:
            words.append(1 + draw.randrange(4))
            negated = True
        else:
            words.append(105 + draw.randrange(196))
    return words, total


def sentences(draw, count):
    x = numpy.zeros((count, STEPS), numpy.int32)
    y = numpy.zeros(count, numpy.int32)
    for row in range(count):
        length, total = draw.randint(3, STEPS), 0
        while total == 0:
            words, total = draw_words(draw, length)
        x[row, :length] = words
        y[row] = total > 0
    return x, y


def draw_data(folder):
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(1)
    (x, y), (x_test, y_test) = sentences(draw, 8_000), sentences(draw, 2_000)
    numpy.savez(folder / "sentences.npz", x_train=x, y_train=y, x_test=x_test, y_test=y_test)
    lines = ["hour,value"]
    for hour in range(3_000):
        value = (20 + 0.001 * hour + 5 * math.sin(2 * math.pi * (hour / 24 + 0.3)) +
                 2 * math.sin(2 * math.pi * (hour / 168 + 0.7)) + draw.gauss(0, 0.3))
        lines.append(f"{hour},{value:.6f}")
    (folder / "series.csv").write_text("\n".join(lines) + "\n", encoding="ascii")


def windows(folder):
    """The windows of `forecast`: scaled by the first four fifths, which train."""
    series = numpy.loadtxt(folder / "series.csv", delimiter=",", skiprows=1)[:, 1]
    split = len(series) * 4 // 5
    series = (series - series[:split].mean()) / series[:split].std()
    x = numpy.stack([series[i - WINDOW:i] for i in range(WINDOW, len(series))])[..., None]
    x, y = x.astype(numpy.float32), series[WINDOW:, None].astype(numpy.float32)
    return (x[:split - WINDOW], y[:split - WINDOW]), (x[split - WINDOW:], y[split - WINDOW:])


def record():
    try:
        import keras
        from keras import layers
    except ImportError as error:
        sys.exit(f"keras_sequences: {error}; install the peers with benchmarks/peers/setup.sh")

    def run(network, loss, data, test, epochs, seed, metrics=()):
        keras.utils.set_random_seed(seed)
        model = keras.Sequential(network())
        model.compile(keras.optimizers.Adam(0.003), loss, metrics=list(metrics))
        logs = model.fit(*data, batch_size=32, epochs=epochs, validation_data=test, verbose=0)
        print(seed, logs.history, flush=True)
        return {"seed": seed, "epochs": [{name: round(values[epoch], 6)
                                          for name, values in logs.history.items()}
                                         for epoch in range(epochs)]}

    def sentiment():
        return [keras.Input((STEPS,)), layers.Embedding(WORDS, 32, mask_zero=True),
                layers.Bidirectional(layers.LSTM(32)), layers.Dense(1, activation="sigmoid")]

    def forecast():
        return [keras.Input((WINDOW, 1)), layers.GRU(32), layers.Dense(1)]

    words = numpy.load(options.folder / "sentences.npz")
    train, test = windows(options.folder)
    results = {
        "made_by": "benchmarks/peers/keras_sequences.py FOLDER --record FILE",
        "keras": f"{keras.__version__}, {keras.backend.backend()}",
        "sentiment": [run(sentiment, "binary_crossentropy", (words["x_train"], words["y_train"]),
                          (words["x_test"], words["y_test"]), 5, seed, ["accuracy"])
                      for seed in SEEDS],
        "forecast": [run(forecast, "mse", train, test, 10, seed) for seed in SEEDS],
    }
    options.record.write_text(json.dumps(results, indent=1) + "\n", encoding="ascii")


draw_data(options.folder)
if options.record:
    record()
