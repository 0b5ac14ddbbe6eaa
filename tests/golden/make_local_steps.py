#!/usr/bin/env python3
"""Writes data/local_steps.safetensors: float64 runs of local SGD and DiLoCo, simulated in NumPy alone, for
lockstep to reproduce.

The net is BatchNormalization, Dense(6, tanh) with the penalty 0.02 sum(kernel^2), Dense(4) on 5 numbers, with
softmax crossentropy. Two epochs of eight batches: seven of 12 examples and one of 3, so that the last of four
replicas has none of it. All weights are one vector in Keras' order: gamma, beta, kernel, bias, kernel, bias;
`moving mean, moving variance` is another.

The file has `init`, `x`, `labels`, and for each run of RUNS and number of replicas N, as <run>/<N>/...,
`weights` and `state`, a row for each epoch, and `loss` and `accuracy` of the epochs. The metadata `case` has
the options of each run.

    python3 -m venv venv && venv/bin/pip install numpy
    venv/bin/python make_local_steps.py data
"""

import pathlib
import sys

import numpy as np

from make_parameter_server import Server, save

INPUTS, HIDDEN, CLASSES = 5, 6, 4
SIZES = [12] * 7 + [3]
EPOCHS, L2, MOMENTUM, EPSILON = 2, 0.02, 0.99, 1e-3
SHAPES = [(INPUTS,), (INPUTS,), (INPUTS, HIDDEN), (HIDDEN,), (HIDDEN, CLASSES), (CLASSES,)]
SGD = {"optimizer": "sgd", "learning_rate": 0.1, "momentum": 0.9}
ADAM = {"optimizer": "adam", "learning_rate": 0.02}

RUNS = {  # name: steps of a round, outer rate, outer momentum, options of the inner optimizer
    "each": (1, 1.0, 0.0, SGD),
    "local": (3, 1.0, 0.0, SGD),
    "local_adam": (4, 1.0, 0.0, ADAM),
    "diloco": (3, 0.7, 0.9, ADAM),
}


def parts_of(weights):
    """Views of the vector."""
    parts, at = [], 0
    for shape in SHAPES:
        parts.append(weights[at:at + int(np.prod(shape))].reshape(shape))
        at += parts[-1].size
    return parts


class Replica:
    """One replica: weights, the inner optimizer's slots, the moving statistics."""

    def __init__(self, init, options):
        self.inner = Server(init, **options)
        self.mean, self.variance = np.zeros(INPUTS), np.ones(INPUTS)

    def objective(self, weights, x, labels):
        """The loss, a mean over these examples and without the penalty, its gradient with the penalty's, the
        right answers, and the statistics of the examples."""
        gamma, beta, kernel, bias, kernel_2, bias_2 = parts_of(weights)
        mean, variance = x.mean(axis=0), x.var(axis=0)
        scaled = (x - mean) / np.sqrt(variance + EPSILON)
        h = np.tanh((scaled * gamma + beta) @ kernel + bias)
        logits, rows = h @ kernel_2 + bias_2, np.arange(len(labels))
        shifted = logits - logits.max(axis=1, keepdims=True)
        log_softmax = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        slope = np.exp(log_softmax)
        slope[rows, labels] -= 1
        slope /= len(x)
        gradient = np.zeros_like(weights)
        of_gamma, of_beta, of_kernel, of_bias, of_kernel_2, of_bias_2 = parts_of(gradient)
        of_kernel_2[:], of_bias_2[:] = h.T @ slope, slope.sum(axis=0)
        inner = (slope @ kernel_2.T) * (1 - h**2)
        of_kernel[:], of_bias[:] = (scaled * gamma + beta).T @ inner + 2 * L2 * kernel, inner.sum(axis=0)
        outside = inner @ kernel.T
        of_gamma[:], of_beta[:] = (outside * scaled).sum(axis=0), outside.sum(axis=0)
        right = int((logits.argmax(axis=1) == labels).sum())
        return -log_softmax[rows, labels].mean(), gradient, right, (mean, variance)

    def step(self, number, x, labels):
        """\\returns the objective times the examples, and the right answers."""
        kernel = parts_of(self.inner.weights)[2]
        penalty = L2 * (kernel**2).sum()
        loss, gradient, right, (mean, variance) = self.objective(self.inner.weights, x, labels)
        self.inner.updates = number  # those of the job
        self.inner.update(gradient, None)
        self.mean = MOMENTUM * self.mean + (1 - MOMENTUM) * mean
        self.variance = MOMENTUM * self.variance + (1 - MOMENTUM) * variance
        return (loss + penalty) * len(x), right


def simulate(replicas, init, batches, run):
    """\\returns weights, statistics, loss and accuracy after each epoch, and the losses of its steps."""
    each, rate, momentum, options = run
    all_replicas = [Replica(init, options) for _ in range(replicas)]
    anchor, outer, made = init.copy(), np.zeros_like(init), 0
    rows = []
    for _ in range(EPOCHS):
        loss = right = seen = 0
        steps = []
        counts = np.zeros(replicas)
        for i, (x, labels) in enumerate(batches):
            before = loss
            for r, part in enumerate(np.array_split(np.arange(len(x)), replicas)):
                if len(part) == 0:
                    continue
                its_loss, its_right = all_replicas[r].step(made, x[part], labels[part])
                loss, right, seen = loss + its_loss, right + its_right, seen + len(part)
                counts[r] += len(part)
            made += 1
            steps.append((loss - before) / len(x))
            if (i + 1) % each and i + 1 < len(batches):
                continue
            share = counts / counts.sum()
            change = sum(s * (anchor - replica.inner.weights) for s, replica in zip(share, all_replicas))
            outer = momentum * outer + change
            anchor = anchor - rate * (change + momentum * outer)
            mean = sum(s * replica.mean for s, replica in zip(share, all_replicas))
            variance = sum(s * replica.variance for s, replica in zip(share, all_replicas))
            for replica in all_replicas:
                replica.inner.weights, replica.mean, replica.variance = anchor.copy(), mean, variance
            counts[:] = 0
        rows.append((anchor, np.concatenate([mean, variance]), loss / seen, right / seen, steps))
    return [np.array(column, np.float64) for column in zip(*rows)]


def check(init, batches, results):
    """Gradients are those of differences; rounds and replicas have effects; one of one step is SGD."""
    x, labels = batches[0]
    replica = Replica(init, SGD)

    def whole(weights):
        return replica.objective(weights, x, labels)[0] + L2 * (parts_of(weights)[2]**2).sum()

    _, exact, _, _ = replica.objective(init, x, labels)
    for i in range(init.size):
        step = np.zeros_like(init)
        step[i] = 1e-6
        assert abs((whole(init + step) - whole(init - step)) / 2e-6 - exact[i]) < 1e-8, i
    weights = {key: found[0][-1] for key, found in results.items()}
    for name, other in (("local", "each"), ("diloco", "local_adam")):
        assert np.abs(weights[name, 2] - weights[other, 2]).max() > 1e-3
    for name in RUNS:
        assert np.abs(weights[name, 2] - weights[name, 3]).max() > 1e-4, name
    assert np.abs(weights["each", 1] - weights["local", 1]).max() < 1e-13


def main(folder):
    random = np.random.default_rng(39)
    init = np.concatenate([np.ones(INPUTS), np.zeros(INPUTS)] + [
        random.normal(size=int(np.prod(shape))) / np.sqrt(INPUTS) for shape in SHAPES[2:]])
    x = random.normal(size=(sum(SIZES), INPUTS)) * 2 + 1
    labels = (x @ random.normal(size=(INPUTS, CLASSES))).argmax(axis=1).astype(np.int32)
    ends = np.cumsum(SIZES)[:-1]
    batches = list(zip(np.split(x, ends), np.split(labels, ends)))
    results = {(name, n): simulate(n, init, batches, run) for name, run in RUNS.items() for n in (1, 2, 3, 4)}
    check(init, batches, results)
    tensors = {"init": init, "x": x, "labels": labels}
    for (name, n), columns in results.items():
        tensors |= {f"{name}/{n}/{what}": rows for what, rows in zip(("weights", "state", "loss", "accuracy", "step_loss"), columns)}
    save(folder / "local_steps.safetensors", tensors,
         {"model": "BatchNormalization Dense(6,tanh) Dense(4) on 5 numbers", "loss": "cross-entropy from logits",
          "made_with": f"numpy {np.__version__}, float64",
          "runs": {name: dict(zip(("steps", "outer_rate", "momentum", "inner"), run)) for name, run in RUNS.items()}})


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: make_local_steps.py FOLDER")
    main(pathlib.Path(sys.argv[1]))
