#!/usr/bin/env python3
"""Writes data/matrix_optimizers.safetensors: float64 steps of Keras' Muon and Adafactor.

Five parameters of different shapes get the same six gradients under each optimizer: w/NAME are the
initial weights, g/NAME the gradients of the steps, and RUN/NAME the weights after each of them. The
gradients of `dense_2/kernel` are 0. Keras on PyTorch computes norms
and means, and roots and bounds of numbers, in float32, so that both optimizers get exact ones here. PyTorch's and Jordan's variants of Muon are computed here in NumPy,
since both programs round to bfloat16.

    python3 -m venv venv && venv/bin/pip install torch keras safetensors
    venv/bin/python make_matrix_optimizers.py data/matrix_optimizers.safetensors
"""

import json
import os
import sys

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np
import torch
from keras.src.optimizers import adafactor as adafactor_module
from keras.src.optimizers import muon as muon_module
from safetensors.numpy import save


class Exact:
    """keras.ops in float64."""

    def __getattr__(self, name):
        return getattr(keras.ops, name)

    def norm(self, x, axis, keepdims):
        return torch.linalg.norm(x, dim=axis, keepdim=keepdims)

    def mean(self, x, axis=None, keepdims=False):
        x = keras.ops.convert_to_tensor(x)
        return torch.mean(x) if axis is None else torch.mean(x, dim=axis, keepdim=keepdims)

    def sqrt(self, x):
        return torch.sqrt(keras.ops.cast(x, "float64"))

    def minimum(self, x, y):
        return torch.minimum(keras.ops.cast(x, "float64"), keras.ops.cast(y, "float64"))

    def maximum(self, x, y):
        return -self.minimum(-x, -y)


adafactor_module.ops = muon_module.ops = Exact()
keras.backend.set_floatx("float64")
STEPS = 6
SHAPES = {
    "conv2d/kernel": (2, 2, 3, 4),
    "dense/kernel": (16, 3),
    "dense/bias": (3,),
    "dense_1/kernel": (3, 7),
    "dense_2/kernel": (7, 7),
}


def keras_run(optimizer, w, g):
    variables = [keras.Variable(w[n], name=n.replace("/", "_"), dtype="float64") for n in SHAPES]
    rows = {n: [] for n in SHAPES}
    for step in range(STEPS):
        optimizer.apply([keras.ops.convert_to_tensor(g[n][step]) for n in SHAPES], variables)
        for n, v in zip(SHAPES, variables):
            rows[n].append(keras.ops.convert_to_numpy(v).copy())
    return {n: np.stack(rows[n]) for n in SHAPES}


def orthogonal(x, floors):
    """Five steps of Newton-Schulz on a matrix (in, out)."""
    a, b, c = 3.4445, -4.7750, 2.0315
    norm = np.linalg.norm(x)
    x = x / (max(norm, 1e-7) if floors else norm + 1e-7)
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    for _ in range(5):
        s = x @ x.T
        x = a * x + (b * s + c * s @ s) @ x
    return x.T if tall else x


def numpy_run(w, g, rate, decay, floors, convolutions):
    """torch.optim.Muon, or Jordan's, with Keras' AdamW for the others."""
    result = {}
    for n in SHAPES:
        value, m, v, rows = w[n].copy(), 0, 0, []
        is_matrix = value.ndim == 2 or (convolutions and value.ndim > 2)
        for step in range(STEPS):
            grad = g[n][step]
            value = value - value * rate * (decay if is_matrix else 0.004)
            if is_matrix:
                m = 0.95 * m + 0.05 * grad
                x = 0.95 * m + 0.05 * grad
                x = x.reshape(-1, x.shape[-1])
                scale = np.sqrt(max(1, x.shape[1] / x.shape[0]))
                value = value - rate * scale * orthogonal(x, floors).reshape(value.shape)
            else:
                t = step + 1
                m = m + (grad - m) * (1 - 0.9)
                v = v + (grad * grad - v) * (1 - 0.999)
                factor = rate * np.sqrt(1 - 0.999**t) / (1 - 0.9**t)
                value = value - factor * m / (np.sqrt(v) + 1e-7)
            rows.append(value)
        result[n] = np.stack(rows)
    return result


def main(path):
    random = np.random.default_rng(5)
    w = {n: random.standard_normal(s) for n, s in SHAPES.items()}
    g = {n: random.standard_normal((STEPS, *s)) for n, s in SHAPES.items()}
    g["dense_2/kernel"][:] = 0
    muon, adafactor = keras.optimizers.Muon, keras.optimizers.Adafactor
    runs = {
        "muon": keras_run(muon(0.01), w, g),
        "muon_options": keras_run(
            muon(
                0.01,
                nesterov=False,
                momentum=0.8,
                rms_rate=None,
                weight_decay=0.1,
                adam_weight_decay=0.2,
                adam_lr_ratio=0.5,
                muon_a=1.875,
                muon_b=-1.25,
                muon_c=0.375,
                ns_steps=7,
                exclude_layers=["dense_1"],
            ),
            w,
            g,
        ),
        "muon_pytorch": numpy_run(w, g, 0.01, 0.1, True, False),
        "muon_jordan": numpy_run(w, g, 0.02, 0, False, True),
        "adafactor": keras_run(adafactor(0.5), w, g),
        "adafactor_options": keras_run(
            adafactor(
                0.01,
                beta_2_decay=-0.5,
                epsilon_1=1e-3,
                epsilon_2=0.1,
                clip_threshold=0.5,
                weight_decay=0.1,
            ),
            w,
            g,
        ),
    }
    tensors = {f"w/{n}": w[n] for n in SHAPES} | {f"g/{n}": g[n] for n in SHAPES}
    for run, rows in runs.items():
        tensors |= {f"{run}/{n}": np.ascontiguousarray(rows[n]) for n in SHAPES}
    assert all(np.isfinite(t).all() and t.dtype == np.float64 for t in tensors.values())
    case = {"keras": keras.__version__, "steps": STEPS}
    with open(path, "wb") as file:
        file.write(save(tensors, metadata={"case": json.dumps(case)}))


if __name__ == "__main__":
    main(sys.argv[1])
