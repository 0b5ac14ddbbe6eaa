#!/usr/bin/env python3
"""Writes data/heads.safetensors: float64 runs of a network with four outputs and a loss for each, simulated in
NumPy alone, for lockstep to reproduce.

The net is Dense(6, tanh), Dense(15) on 5 numbers. Its outputs are parts of the last row:

    kind   3      a class, crossentropy of the softmax; class weights in the run `weighted`
    even   1      0 or 1, binary crossentropy of the sigmoid, times 0.3
    tags   3 x 3  a class at each of 3 steps; steps with label -1 are padding; times 0.5
    curve  2      a number at each of 2 steps, squared error; steps of weight 0 are padding in `weighted`; times 2

Keras' rules: the loss of an output in a batch is the sum of w l divided by the number of examples, or of steps,
without padding. The loss is the sum over the outputs, each times its factor. In the logs of an epoch losses
are means over batches, times the sizes of these; losses of outputs are without the factors. Plain metrics
count examples, weighted ones sum their weights. Two epochs of batches of 8, 8 and 5 with SGD(0.25), then an
evaluation of the first 10 examples without class weights.

The runs are `plain`, without weights of examples or classes, and `weighted`. The file has `init`, `x`, the
targets `kind`, `even`, `tags`, `curve`, the weights `w`, (examples, 7) in the order of the outputs, and as
<run>/... `final`, the weights after training, `<name>` of the logs of the epochs, and `evaluate/<name>`.

    python3 -m venv venv && venv/bin/pip install numpy
    venv/bin/python make_heads.py data
"""

import pathlib
import sys

import numpy as np

from make_parameter_server import save

INPUTS, HIDDEN, EXAMPLES, BATCH, EPOCHS, RATE = 5, 6, 21, 8, 2, 0.25
OUTPUTS = {"kind": slice(0, 3), "even": slice(3, 4), "tags": slice(4, 13), "curve": slice(13, 15)}
WEIGHTS = {"kind": slice(0, 1), "even": slice(1, 2), "tags": slice(2, 5), "curve": slice(5, 7)}
FACTORS = {"kind": 1.0, "even": 0.3, "tags": 0.5, "curve": 2.0}
CLASSES = {0: 0.25, 2: 3.0}  # of kind
SHAPES = [(INPUTS, HIDDEN), (HIDDEN,), (HIDDEN, 15), (15,)]


def parts_of(weights):
    parts, at = [], 0
    for shape in SHAPES:
        parts.append(weights[at:at + int(np.prod(shape))].reshape(shape))
        at += parts[-1].size
    assert at == weights.size
    return parts


def softmax_loss(logits, labels):
    """Crossentropies and their slopes; of padding 0."""
    labels = np.asarray(labels, int)
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    valid = labels >= 0
    onehot = np.eye(3)[np.where(valid, labels, 0)]
    return -(log_p * onehot).sum(axis=-1) * valid, (np.exp(log_p) - onehot) * valid[..., None], valid


def head(name, out, target):
    """For each example and step: loss, slope, right answers, whether the step counts."""
    if name == "kind":
        loss, slope, valid = softmax_loss(out, target)
        return loss[:, None], slope[:, None, :], (out.argmax(axis=1) == target)[:, None], valid[:, None]
    if name == "even":
        p = 1 / (1 + np.exp(-out))
        t = target[:, None]
        return -(t * np.log(p) + (1 - t) * np.log(1 - p)), (p - t)[:, :, None], (out > 0) == t, np.ones_like(out, bool)
    if name == "tags":
        logits = out.reshape(-1, 3, 3)
        loss, slope, valid = softmax_loss(logits, target)
        return loss, slope, logits.argmax(axis=2) == target, valid
    error = out - target
    return error ** 2, 2 * error[:, :, None], error < np.inf, np.ones_like(error, bool)


def step(weights, x, targets, w, train, weighted):
    """Losses of the outputs, the gradient of the loss, and the counts of the metrics."""
    k1, b1, k2, b2 = parts_of(weights)
    hidden = np.tanh(x @ k1 + b1)
    out = hidden @ k2 + b2
    d_out, losses, counts = np.zeros_like(out), {}, {}
    for name, part in OUTPUTS.items():
        loss, slope, right, valid = head(name, out[:, part], targets[name])
        each = w[:, WEIGHTS[name]].copy() if weighted else np.ones_like(loss)
        counted = valid & (each != 0) if name == "curve" else valid
        own = each.copy()
        if name == "kind" and train and weighted:
            own *= np.array([CLASSES.get(label, 1.0) for label in targets[name]])[:, None]
        losses[name] = (own * loss).sum() / counted.sum()
        d = own[:, :, None] * slope / counted.sum()
        d_out[:, part] = FACTORS[name] * d.reshape(len(x), -1)
        counts[name] = (right & valid).sum(), valid.sum(), (each * (right & valid)).sum(), (each * valid).sum()
    d_hidden = (d_out @ k2.T) * (1 - hidden ** 2)
    gradient = np.concatenate([(x.T @ d_hidden).ravel(), d_hidden.sum(axis=0), (hidden.T @ d_out).ravel(),
                               d_out.sum(axis=0)])
    return losses, gradient, counts


class Logs:
    def __init__(self):
        self.examples, self.losses, self.counts = 0, dict.fromkeys(OUTPUTS, 0.0), {}

    def add(self, losses, counts, examples):
        self.examples += examples
        for name, value in losses.items():
            self.losses[name] += value * examples
            self.counts[name] = np.array(counts[name], float) + self.counts.get(name, 0)

    def values(self):
        means = {name: value / self.examples for name, value in self.losses.items()}
        result = {f"{name}_loss": value for name, value in means.items()}
        result["loss"] = sum(FACTORS[name] * value for name, value in means.items())
        result["kind_accuracy"] = self.counts["kind"][0] / self.counts["kind"][1]
        result["kind_weighted_accuracy"] = self.counts["kind"][2] / self.counts["kind"][3]
        result["even_binary_accuracy"] = self.counts["even"][0] / self.counts["even"][1]
        result["tags_accuracy"] = self.counts["tags"][2] / self.counts["tags"][3]
        return result


def run(init, data, weighted):
    weights, epochs = init.copy(), []

    def batches(count):
        for first in range(0, count, BATCH):
            part = slice(first, min(first + BATCH, count))
            yield data["x"][part], {name: data[name][part] for name in OUTPUTS}, data["w"][part]

    for _ in range(EPOCHS):
        logs = Logs()
        for x, targets, w in batches(EXAMPLES):
            losses, gradient, counts = step(weights, x, targets, w, True, weighted)
            logs.add(losses, counts, len(x))
            weights -= RATE * gradient
        epochs.append(logs.values())
    logs = Logs()
    for x, targets, w in batches(10):
        losses, _, counts = step(weights, x, targets, w, False, weighted)
        logs.add(losses, counts, len(x))
    return weights, epochs, logs.values()


def check_gradient(init, data):
    """The gradient by hand agrees with differences."""
    w = data["w"]
    loss = lambda at: sum(FACTORS[n] * v for n, v in step(at, data["x"], data, w, True, True)[0].items())
    gradient = step(init, data["x"], data, w, True, True)[1]
    for i in range(0, init.size, 7):
        shift = np.zeros_like(init)
        shift[i] = 1e-6
        assert abs((loss(init + shift) - loss(init - shift)) / 2e-6 - gradient[i]) < 1e-8


def main(folder):
    random = np.random.default_rng(40)
    init = np.concatenate([random.normal(size=int(np.prod(shape))) * 0.5 for shape in SHAPES])
    tags = random.integers(0, 3, (EXAMPLES, 3))
    for i in range(EXAMPLES):
        tags[i, 3 - i % 4:] = -1
    w = random.uniform(0.2, 2, (EXAMPLES, 7))
    w[::3, 6] = 0
    w[4, 5:] = 0
    data = {"x": random.normal(size=(EXAMPLES, INPUTS)), "kind": random.integers(0, 3, EXAMPLES),
            "even": random.integers(0, 2, EXAMPLES), "tags": tags, "curve": random.normal(size=(EXAMPLES, 2)), "w": w}
    check_gradient(init, data)
    tensors = {"init": init} | {name: np.asarray(value, np.float64) for name, value in data.items()}
    for name, weighted in (("plain", False), ("weighted", True)):
        final, epochs, evaluation = run(init, data, weighted)
        tensors[f"{name}/final"] = final
        for key in epochs[0]:
            tensors[f"{name}/{key}"] = np.array([epoch[key] for epoch in epochs])
            tensors[f"{name}/evaluate/{key}"] = np.array([evaluation[key]])
    save(pathlib.Path(folder) / "heads.safetensors", tensors, {"model": __doc__})


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: make_heads.py FOLDER")
    main(sys.argv[1])
