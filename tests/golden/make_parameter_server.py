#!/usr/bin/env python3
"""Writes data/parameter_server.safetensors and data/delayed_gradients.safetensors: float64 runs of
workers and parameter servers, simulated in NumPy alone, for lockstep to reproduce.

The net is Dense(12, tanh) Dense(7, relu) Dense(4) on 5 numbers, with softmax crossentropy. All weights
are one vector in Keras' order: kernel, bias, kernel, ... Step i reads a batch of its own; the last one
is smaller than the number of workers times two, and not divisible by it.

Both files have: `init` = the first weights, `x` and `labels` = the batches one after the other, and
`sizes` = the examples of each.

parameter_server: <run>/weights = the weights after each step, a row each, for the runs in RUNS. `simulate`
divides each batch among workers and the weights among servers; the file is that of WORKERS and SERVERS,
and others must agree with it.

delayed_gradients: for the orders in ORDERS <order>/order, <order>/missed and <order>/weights, where row u
has the weights after update u. Update u applies the gradients of the batch of step order[u], computed
with the weights before update u - missed[u]: with `init` if that is update 0, otherwise with row
u - missed[u] - 1. The optimizer counts updates, not steps. So a program that reports this pair for each
update it makes can be replayed: see `delayed`.

The metadata `case` has the optimizer of each run and order.

    python3 -m venv venv && venv/bin/pip install numpy
    venv/bin/python make_parameter_server.py data
"""

import json
import pathlib
import sys

import numpy as np

WIDTHS = (5, 12, 7, 4)
ACTIVATIONS = ("tanh", "relu", "linear")
SIZES = [20] * 9 + [5]
WORKERS, SERVERS = 3, 2

RUNS = {  # name: options of Server
    "adam": {"optimizer": "adam", "learning_rate": 0.01},
    "momentum": {"optimizer": "sgd", "learning_rate": 0.1, "momentum": 0.9},
    "clipped": {"optimizer": "adam", "learning_rate": 0.01, "global_clipnorm": 0.2},
    "averaged": {"optimizer": "sgd", "learning_rate": 0.1, "momentum": 0.9, "ema_momentum": 0.8,
                 "ema_overwrite_frequency": 3},
}

ORDERS = {  # name: run whose optimizer it has, order, missed
    "in_order": ("momentum", [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], [0] * 10),
    "two_workers": ("adam", [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], [0, 1, 1, 1, 1, 1, 1, 1, 1, 1]),
    "a_slow_worker": ("momentum", [1, 2, 3, 0, 5, 6, 4, 8, 7, 9], [0, 0, 0, 3, 1, 1, 2, 0, 2, 1]),
    "clipped": ("clipped", [2, 0, 1, 4, 3, 5, 8, 7, 6, 9], [0, 1, 2, 2, 3, 0, 1, 1, 3, 2]),
}


def layers_of(weights):
    """Views of the vector: [(kernel, bias)]."""
    layers, at = [], 0
    for inputs, outputs in zip(WIDTHS, WIDTHS[1:]):
        kernel = weights[at:at + inputs * outputs].reshape(inputs, outputs)
        at += inputs * outputs
        layers.append((kernel, weights[at:at + outputs]))
        at += outputs
    assert at == weights.size
    return layers


COUNT = sum((inputs + 1) * outputs for inputs, outputs in zip(WIDTHS, WIDTHS[1:]))


def gradients(weights, x, labels, examples):
    """The loss of these examples divided by `examples`, and its gradients by hand."""
    layers, values = layers_of(weights), [x]
    for (kernel, bias), activation in zip(layers, ACTIVATIONS):
        z = values[-1] @ kernel + bias
        values.append(np.tanh(z) if activation == "tanh" else np.maximum(z, 0) if activation == "relu" else z)
    logits, rows = values[-1], np.arange(len(labels))
    shifted = logits - logits.max(axis=1, keepdims=True, initial=-np.inf)
    log_softmax = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    loss = -log_softmax[rows, labels].sum() / examples
    slope = np.exp(log_softmax)
    slope[rows, labels] -= 1
    slope /= examples
    all_gradients = np.zeros_like(weights)
    for i in reversed(range(len(layers))):
        if ACTIVATIONS[i] == "tanh":
            slope = slope * (1 - values[i + 1] ** 2)
        elif ACTIVATIONS[i] == "relu":
            slope = slope * (values[i + 1] > 0)
        kernel, bias = layers_of(all_gradients)[i]
        kernel[:], bias[:] = values[i].T @ slope, slope.sum(axis=0)
        slope = slope @ layers[i][0].T
    return loss, all_gradients


class Server:
    """A part of the weights, with the optimizer's buffers for it. Formulas: Keras 3."""

    def __init__(self, weights, optimizer, learning_rate, momentum=0.0, global_clipnorm=None, ema_momentum=None,
                 ema_overwrite_frequency=None):
        self.weights = weights.copy()
        self.optimizer, self.rate, self.momentum = optimizer, learning_rate, momentum
        self.clipnorm, self.ema, self.overwrite = global_clipnorm, ema_momentum, ema_overwrite_frequency
        self.first, self.second = np.zeros_like(weights), np.zeros_like(weights)
        self.average, self.updates = np.zeros_like(weights), 0

    def update(self, gradient, norm):
        """`norm`: of the gradients of all servers."""
        if self.clipnorm:
            gradient = gradient * (self.clipnorm / max(norm, self.clipnorm))
        self.updates += 1
        if self.optimizer == "sgd":
            self.first = self.momentum * self.first - self.rate * gradient
            self.weights += self.first
        else:
            beta_1, beta_2, epsilon = 0.9, 0.999, 1e-7
            self.first += (1 - beta_1) * (gradient - self.first)
            self.second += (1 - beta_2) * (gradient**2 - self.second)
            alpha = self.rate * np.sqrt(1 - beta_2**self.updates) / (1 - beta_1**self.updates)
            self.weights -= alpha * self.first / (np.sqrt(self.second) + epsilon)
        if self.ema is not None:
            kept = self.ema if self.updates > 1 else 0.0
            self.average = kept * self.average + (1 - kept) * self.weights
            if self.updates % self.overwrite == 0:
                self.weights = self.average.copy()


class Job:
    """The servers of a job."""

    def __init__(self, servers, init, options):
        self.ranges = np.array_split(np.arange(COUNT), servers)
        self.servers = [Server(init[part], **options) for part in self.ranges]

    def update(self, pushes):
        """Each of `pushes` is a worker's gradients; the owner of a range adds those of its range."""
        sums = []
        for part in self.ranges:
            total = np.zeros(len(part))
            for push in pushes:
                total += push[part]
            sums.append(total)
        norm = np.sqrt(sum((total**2).sum() for total in sums))
        for server, total in zip(self.servers, sums):
            server.update(total, norm)

    def pull(self):
        return np.concatenate([server.weights for server in self.servers])


def simulate(workers, servers, init, batches, options):
    """Synchronous steps: the weights after each."""
    job, rows = Job(servers, init, options), []
    for x, labels in batches:
        weights = job.pull()
        job.update([gradients(weights, x[part], labels[part], len(x))[1]
                    for part in np.array_split(np.arange(len(x)), workers) if len(part)])
        rows.append(job.pull())
    return np.array(rows)


def delayed(order, missed, init, batches, options, servers=SERVERS):
    """Asynchronous steps: the weights after each update. Update u applies the gradients of the batch of step
    order[u], with the weights that the first u - missed[u] updates have made."""
    assert sorted(order) == list(range(len(batches))) and all(0 <= m <= u for u, m in enumerate(missed))
    job, rows = Job(servers, init, options), [init]
    for u, (step, late) in enumerate(zip(order, missed)):
        x, labels = batches[step]
        job.update([gradients(rows[u - late], x, labels, len(x))[1]])
        rows.append(job.pull())
    return np.array(rows[1:])


def check(init, batches):
    """Gradients are those of differences; results do not depend on the division; options have effects."""
    x, labels = batches[0]
    _, exact = gradients(init, x, labels, len(x))
    for i in range(COUNT):
        step = np.zeros(COUNT)
        step[i] = 1e-6
        above, below = (gradients(init + sign * step, x, labels, len(x))[0] for sign in (1, -1))
        assert abs((above - below) / 2e-6 - exact[i]) < 1e-8, i
    results = {name: simulate(WORKERS, SERVERS, init, batches, options) for name, options in RUNS.items()}
    for name, options in RUNS.items():
        for workers, servers in ((1, 1), (2, 3), (7, 1), (4, 5)):
            other = simulate(workers, servers, init, batches, options)
            assert np.abs(other - results[name]).max() < 1e-13, (name, workers, servers)
    assert np.abs(results["clipped"] - results["adam"]).max() > 1e-3
    assert np.abs(results["averaged"][2] - results["momentum"][2]).max() > 1e-3
    late = {name: delayed(order, missed, init, batches, RUNS[run]) for name, (run, order, missed) in ORDERS.items()}
    assert np.abs(late["in_order"] - results["momentum"]).max() < 1e-13
    for name, (run, order, _) in ORDERS.items():
        other = delayed(order, [0] * len(order), init, batches, RUNS[run])
        assert name == "in_order" or np.abs(late[name] - other).max() > 1e-4, name
    return results, late


def save(path, tensors, case):
    """A safetensors file."""
    types = {"float64": "F64", "int32": "I32"}
    header, at = {"__metadata__": {"case": json.dumps(case)}}, 0
    for name, values in tensors.items():
        header[name] = {"dtype": types[values.dtype.name], "shape": values.shape, "data_offsets": [at, at + values.nbytes]}
        at += values.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(np.ascontiguousarray(v).tobytes() for v in tensors.values()))


def main(folder):
    random = np.random.default_rng(38)
    init = np.concatenate([np.concatenate([random.normal(size=i * o) / np.sqrt(i), random.normal(size=o) / 10])
                           for i, o in zip(WIDTHS, WIDTHS[1:])])
    x = random.normal(size=(sum(SIZES), WIDTHS[0]))
    labels = random.integers(0, WIDTHS[-1], sum(SIZES), dtype=np.int32)
    ends = np.cumsum(SIZES)[:-1]
    batches = list(zip(np.split(x, ends), np.split(labels, ends)))
    results, late = check(init, batches)
    common = {"init": init, "x": x, "labels": labels, "sizes": np.array(SIZES, np.int32)}
    case = {"model": "Dense(12,tanh) Dense(7,relu) Dense(4) on 5 numbers", "loss": "cross-entropy from logits",
            "made_with": f"numpy {np.__version__}, float64"}
    save(folder / "parameter_server.safetensors", {**common, **{f"{name}/weights": rows for name, rows in results.items()}},
         {**case, "workers": WORKERS, "servers": SERVERS, "runs": RUNS})
    tensors = dict(common)
    for name, (_, order, missed) in ORDERS.items():
        tensors |= {f"{name}/order": np.array(order, np.int32), f"{name}/missed": np.array(missed, np.int32),
                    f"{name}/weights": late[name]}
    save(folder / "delayed_gradients.safetensors", tensors,
         {**case, "orders": {name: RUNS[run] for name, (run, _, _) in ORDERS.items()}})


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: make_parameter_server.py FOLDER")
    main(pathlib.Path(sys.argv[1]))
