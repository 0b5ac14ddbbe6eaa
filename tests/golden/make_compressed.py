#!/usr/bin/env python3
"""Writes data/compressed.safetensors: float64 runs of replicas that compress their gradients, simulated in
NumPy alone, for lockstep to reproduce.

Net, weights and batches are those of make_parameter_server.py, the optimizer is SGD with rate 0.1 and
momentum 0.9. REPLICAS replicas divide each batch, and the last one has fewer examples.

The file has `init`, `x`, `labels` and `sizes`, and for the runs in RUNS <run>/weights = the weights after
each step, a row each. The metadata `case` has the options of each run.

    venv/bin/python make_compressed.py data
"""

import json
import math
import pathlib
import sys

import numpy as np
from make_parameter_server import COUNT, SIZES, WIDTHS, gradients, layers_of, save

REPLICAS = 3
RATE, MOMENTUM = 0.1, 0.9

RUNS = {  # format, its options, steps of an update
    "bfloat16": ("bfloat16", {}, 1),
    "bfloat16_accumulated": ("bfloat16", {}, 2),
    "top_k": ("top_k", {"fraction": 0.1}, 1),
    "top_k_warm_up": ("top_k", {"fraction": 0.1, "warm_up": 5}, 1),
    "top_k_accumulated": ("top_k", {"count": 3}, 2),
    "power_sgd": ("power_sgd", {"rank": 1, "start": 2, "rate": 2.0}, 1),
    "power_sgd_2": ("power_sgd", {"rank": 2, "start": 0, "rate": 1.0}, 1),
    "power_sgd_accumulated": ("power_sgd", {"rank": 2, "start": 1, "rate": 1.0}, 3),
}


def philox(counter, key):
    """Philox4x32-10 of Random123."""
    x, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * x[0], 0xCD9E8D57 * x[2]
        x = [(b >> 32) ^ x[1] ^ k[0], b & 0xFFFFFFFF, (a >> 32) ^ x[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return x


assert philox([0] * 4, [0] * 2)[0] == 0x6627E8D5


def normals(key, stream, count):
    """Box-Muller from two uniform numbers of 53 bits each; the second normal of a pair is not used."""
    words, block = [], 0
    while len(words) < 4 * count:
        words += philox([block, 0, stream & 0xFFFFFFFF, stream >> 32], [key & 0xFFFFFFFF, key >> 32])
        block += 1
    uniform = [((high << 21) ^ (low >> 11)) * 2.0**-53 for high, low in zip(words[::2], words[1::2])]
    return np.array([math.sqrt(-2 * math.log(1 - a)) * math.cos(2 * math.pi * b)
                     for a, b in zip(uniform[::2], uniform[1::2])][:count])


def mix(a, b):
    """The finalizer of splitmix64."""
    z = (a + 0x9E3779B97F4A7C15 * (b + 1)) % 2**64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % 2**64
    return z ^ (z >> 31)


def to_bfloat16(values):
    """Rounded to the nearest value, ties to even, as float32."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16
    return bits.astype(np.uint32).view(np.float32)


class Bfloat16:
    def exchange(self, own, update):
        total = to_bfloat16(own[0])
        for part in own[1:]:
            total = total + to_bfloat16(part)
        return to_bfloat16(total).astype(np.float64), np.zeros_like(own)


class TopK:
    def __init__(self, fraction=None, count=None, warm_up=0):
        self.fraction, self.count, self.warm_up = fraction, count, warm_up

    def exchange(self, own, update):
        kept, total = own.copy(), np.zeros(COUNT)
        for i in range(len(own)):
            parts, sent = layers_of(kept[i]), layers_of(total)
            for have, to in ((a, b) for x, y in zip(parts, sent) for a, b in zip(x, y)):
                k = self.count or max(1, math.floor(self.fraction * have.size + 0.5))
                if update < self.warm_up:
                    k = math.floor(have.size * (k / have.size) ** (update / self.warm_up) + 0.5)
                flat = have.reshape(-1)
                chosen = np.argsort(-np.abs(flat), kind="stable")[:k]
                to.reshape(-1)[chosen] += flat[chosen]
                flat[chosen] = 0
        return total, kept


class PowerSgd:
    def __init__(self, rank, start, rate):
        self.rank, self.start, self.rate, self.factors = rank, start, rate, {}

    def exchange(self, own, update):
        total, kept = own.sum(axis=0), np.zeros_like(own)
        if update < self.start:
            return total, kept
        at = 0
        for layer, (kernel, bias) in enumerate(layers_of(total)):
            rows, columns = kernel.shape
            rank = min(self.rank, rows, columns)
            if (rows + columns) * rank * self.rate < rows * columns:
                if layer not in self.factors:
                    self.factors[layer] = np.stack([normals(mix(0, at), update * self.rank + c, rows)
                                                    for c in range(rank)], axis=1)
                q, _ = np.linalg.qr(self.factors[layer])
                parts = [layers_of(part)[layer][0] for part in own]
                p, _ = np.linalg.qr(sum(part.T @ q for part in parts))
                q = sum(part @ p for part in parts)
                kernel[:] = q @ p.T
                for i, part in enumerate(parts):
                    layers_of(kept[i])[layer][0][:] = part - kernel / REPLICAS
                self.factors[layer] = q
            at += kernel.size + bias.size
        return total, kept


FORMATS = {"bfloat16": Bfloat16, "top_k": TopK, "power_sgd": PowerSgd}


def simulate(init, batches, wire, each):
    """The weights after each step. `each`: steps of an update, which has the mean of their gradients."""
    weights, velocity, rows = init.copy(), np.zeros(COUNT), []
    kept = np.zeros((REPLICAS, COUNT))
    for step, (x, labels) in enumerate(batches):
        for i, part in enumerate(np.array_split(np.arange(len(x)), REPLICAS)):
            kept[i] += gradients(weights, x[part], labels[part], len(x))[1]
        if (step + 1) % each == 0:
            total, kept = wire.exchange(kept, step // each)
            velocity = MOMENTUM * velocity - RATE * total / each
            weights = weights + velocity
        rows.append(weights.copy())
    return np.array(rows)


class Whole:
    def exchange(self, own, update):
        return own.sum(axis=0), np.zeros_like(own)


def main(folder):
    random = np.random.default_rng(39)
    init = np.concatenate([np.concatenate([random.normal(size=i * o) / np.sqrt(i), random.normal(size=o) / 10])
                           for i, o in zip(WIDTHS, WIDTHS[1:])])
    x = random.normal(size=(sum(SIZES), WIDTHS[0]))
    labels = random.integers(0, WIDTHS[-1], sum(SIZES), dtype=np.int32)
    ends = np.cumsum(SIZES)[:-1]
    batches = list(zip(np.split(x, ends), np.split(labels, ends)))
    tensors = {"init": init, "x": x, "labels": labels, "sizes": np.array(SIZES, np.int32)}
    for name, (kind, options, each) in RUNS.items():
        whole = simulate(init, batches, Whole(), each)
        rows = simulate(init, batches, FORMATS[kind](**options), each)
        difference = np.abs(rows - whole).max()
        assert 1e-5 < difference < 0.5, (name, difference)
        tensors[f"{name}/weights"] = rows
    everything = simulate(init, batches, TopK(fraction=1.0), 1)
    full_rank = simulate(init, batches, PowerSgd(12, 0, 0.0), 1)
    for rows in (everything, full_rank):
        assert np.abs(rows - simulate(init, batches, Whole(), 1)).max() < 1e-12
    save(folder / "compressed.safetensors", tensors,
         {"model": "Dense(12,tanh) Dense(7,relu) Dense(4) on 5 numbers", "loss": "cross-entropy from logits",
          "made_with": f"numpy {np.__version__}, float64", "replicas": REPLICAS, "runs": RUNS})


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: make_compressed.py FOLDER")
    main(pathlib.Path(sys.argv[1]))
