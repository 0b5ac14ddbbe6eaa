#!/usr/bin/env python3
"""Writes data/output_masks.safetensors: training steps of Keras in float64 of networks whose output has a mask.

Stored for each case NAME: NAME/init/<number> and NAME/final/<number>, the weights in the order of the network before and after
three steps of SGD; for each step I NAME/I/x, NAME/I/y and, if the case has sample weights, NAME/I/w; NAME/logs/<log> with one number
for each step, and NAME/evaluate/<log> of the first batch with the final weights.

    python3 -m venv venv && venv/bin/pip install torch keras safetensors
    KERAS_BACKEND=torch venv/bin/python make_output_masks.py data
"""

import json
import os
import sys

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras
import numpy as np
import torch
from keras.src.backend.common import dtypes
from safetensors.numpy import save

dtypes.BIT64_TO_BIT32_DTYPE["float64"] = "float64"  # Keras on PyTorch rounds products to float32
L = keras.layers
STEPS, BATCHES = 5, [4, 3, 7]


def words(random, n):
    """Sentences of 1 to 5 words, padded at the end; in each batch the first ones are short."""
    lengths = np.sort(random.integers(1, STEPS + 1, n))
    return np.where(np.arange(STEPS) < lengths[:, None], random.integers(1, 7, (n, STEPS)), 0)


def series(random, n):
    return np.where(words(random, n)[:, :, None] > 0, random.normal(size=(n, STEPS, 2)), 0.5)


def accuracy():
    return keras.metrics.SparseCategoricalAccuracy("accuracy")


def tagger():
    return [keras.Input([STEPS]), L.Embedding(7, 3, mask_zero=True), L.LSTM(4, return_sequences=True), L.Dense(3)]


def crossentropy(**options):
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True, **options)


def joined():
    """Joined in output_masks.cpp: masks of two inputs, and an output without a mask."""
    inputs = [keras.Input([2], name="words"), keras.Input([3, 2], name="series")]
    table = L.Embedding(7, 2, mask_zero=True)
    e = table(inputs[0])
    both = L.Concatenate(1)([L.Masking(0.5)(inputs[1]), e])
    steps, half = L.Dense(2), L.Dense(2)
    outputs = {"mean": L.GlobalAveragePooling1D()(both), "steps": steps(both), "half": half(L.Add()([e, e]))}
    return keras.Model(inputs, outputs), table.weights + steps.weights + half.weights


def record_heads(random):
    net, variables = joined()
    found = {}
    for number, variable in enumerate(variables):
        variable.assign(random.normal(size=variable.shape) / 2)
        found[f"init/{number}"] = keras.ops.convert_to_numpy(variable)
    net.compile(loss=dict.fromkeys(["mean", "steps", "half"], "mean_squared_error"), optimizer=keras.optimizers.SGD(0.5),
                metrics={"steps": ["mean_absolute_error"]}, weighted_metrics={"half": ["mean_absolute_error"]})
    for step, n in enumerate(BATCHES):
        x = [words(random, n)[:, :2], series(random, n)[:, :3]]
        x[0][0] = 0  # an example that one head leaves out
        y = {"mean": random.normal(size=(n, 2)), "steps": random.normal(size=(n, 5, 2)), "half": random.normal(size=(n, 2, 2))}
        w = {"mean": random.uniform(0.2, 2, n), "steps": random.uniform(0.2, 2, (n, 5)), "half": random.uniform(0.2, 2, (n, 2))}
        for key, parts in {"x": x, "y": list(y.values()), "w": list(w.values())}.items():
            found[f"{step}/{key}"] = np.concatenate([part.reshape(n, -1) for part in parts], 1)
        net.reset_metrics()
        for name, value in net.train_on_batch(x, y, w, return_dict=True).items():
            found.setdefault(f"logs/{name}", []).append(value)
        if step == 0:
            first = x, y, w
    net.reset_metrics()
    for name, value in net.test_on_batch(*first, return_dict=True).items():
        found[f"evaluate/{name}"] = [value]
    for number, variable in enumerate(variables):
        found[f"final/{number}"] = keras.ops.convert_to_numpy(variable)
    return found


CASES = {  # name: layers, loss, metrics, weighted metrics, inputs, has sample weights
    "words": (tagger, crossentropy, [accuracy], [], words, False),
    "weights": (tagger, crossentropy, [accuracy], [accuracy], words, True),
    "ignored": (tagger, lambda: crossentropy(ignore_class=2), [], [], words, False),
    "series": (lambda: [keras.Input([STEPS, 2]), L.Masking(0.5), L.GRU(3, return_sequences=True), L.Dense(2)],
               keras.losses.MeanSquaredError, [keras.metrics.MeanAbsoluteError, keras.metrics.RootMeanSquaredError], [], series,
               True),
}


def record(case, random):
    layers, loss, metrics, weighted, inputs, has_weights = case
    net = keras.Sequential(layers())
    found = {}
    for number, variable in enumerate(net.trainable_variables):
        variable.assign(random.normal(size=variable.shape) / 2)
        found[f"init/{number}"] = keras.ops.convert_to_numpy(variable)
    net.compile(loss=loss(), optimizer=keras.optimizers.SGD(0.5), metrics=[m() for m in metrics],
                weighted_metrics=[m() for m in weighted])
    batches = []
    for step, n in enumerate(BATCHES):
        x = inputs(random, n)
        y = random.integers(0, 3, (n, STEPS)) if inputs is words else random.normal(size=(n, STEPS, 2))
        w = random.uniform(0.2, 2, (n, STEPS)) if has_weights else None
        batches.append((x, y, w))
        found |= {f"{step}/x": x, f"{step}/y": y} | ({f"{step}/w": w} if has_weights else {})
        net.reset_metrics()
        for name, value in net.train_on_batch(x, y, w, return_dict=True).items():
            found.setdefault(f"logs/{name}", []).append(value)
    net.reset_metrics()
    for name, value in net.test_on_batch(*batches[0], return_dict=True).items():
        found[f"evaluate/{name}"] = [value]
    for number, variable in enumerate(net.trainable_variables):
        found[f"final/{number}"] = keras.ops.convert_to_numpy(variable)
    return found


def main(folder):
    keras.config.set_floatx("float64")
    tensors = {}
    for number, (name, case) in enumerate(CASES.items()):
        for part, value in record(case, np.random.default_rng(330 + number)).items():
            tensors[f"{name}/{part}"] = np.ascontiguousarray(value, np.float64)
    for part, value in record_heads(np.random.default_rng(340)).items():
        tensors[f"heads/{part}"] = np.ascontiguousarray(value, np.float64)
    made = {"made_with": f"keras {keras.__version__}, torch {torch.__version__.split('+')[0]}, float64"}
    with open(os.path.join(folder, "output_masks.safetensors"), "wb") as file:
        file.write(save(tensors, {"case": json.dumps(made)}))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: make_output_masks.py FOLDER")
    main(sys.argv[1])
