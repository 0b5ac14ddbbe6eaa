#!/usr/bin/env python3
"""Writes data/mnist_cnn_small.safetensors: short float64 runs of Keras for lockstep to reproduce.

The net is a small version of the tutorials' CNN. Images and labels are random and stored in the
file. Each run has its own initial weights and reads the images in order. Stored for each run:
init/ = initial weights, grad/ = gradients of the first step, final/ = final weights, and the loss
and accuracy of each step (before its update).

    python3 -m venv venv && venv/bin/pip install tensorflow-cpu keras safetensors
    venv/bin/python make_small.py data/mnist_cnn_small.safetensors
"""

import json
import os
import sys

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf
from safetensors.numpy import save

EXAMPLES = 80


def adam():
    # Keras would round Python floats to float32 before it computes powers of beta.
    return keras.optimizers.Adam(0.001, beta_1=np.float64(0.9), beta_2=np.float64(0.999))


RUNS = {  # prefix: seed, optimizer, batch, steps
    "sgd": (11, lambda: keras.optimizers.SGD(0.01), 16, 5),
    "adam": (12, adam, 16, 5),
    # Six batches of 13 and a last one of 2, which leaves most of seven replicas without examples.
    "uneven": (13, lambda: keras.optimizers.SGD(0.01), 13, 7),
}


def build():
    keras.backend.clear_session()
    layers = keras.layers
    return keras.Sequential(
        [
            layers.Input((12, 12, 1)),
            layers.Conv2D(4, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(8, activation="relu"),
            layers.Dense(10),
        ]
    )


def run(prefix, images, labels, tensors):
    seed, make_optimizer, batch, steps = RUNS[prefix]
    keras.utils.set_random_seed(seed)
    model, optimizer = build(), make_optimizer()
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    variables = model.trainable_variables

    def store(kind, values):
        for variable, value in zip(variables, values):
            value = np.asarray(value)
            assert value.dtype == np.float64, (variable.path, value.dtype)
            tensors[f"{prefix}/{kind}/{variable.path.removeprefix('sequential/')}"] = value

    store("init", [v.numpy().copy() for v in variables])
    losses, accuracies = [], []
    for step in range(steps):
        rows = slice(step * batch, (step + 1) * batch)
        x, y = images[rows].astype(np.float64) / 255, labels[rows]
        with tf.GradientTape() as tape:
            logits = model(x, training=True)
            loss = loss_of(y, logits)
        gradients = tape.gradient(loss, [v.value for v in variables])
        if step == 0:
            store("grad", [g.numpy() for g in gradients])
        losses.append(float(loss))
        accuracies.append(float(np.mean(np.argmax(logits.numpy(), axis=1) == y)))
        optimizer.apply(gradients, variables)
    store("final", [v.numpy() for v in variables])
    tensors[f"{prefix}/loss"] = np.array(losses, np.float64)
    tensors[f"{prefix}/accuracy"] = np.array(accuracies, np.float64)
    return {"optimizer": type(optimizer).__name__, "batch": batch, "steps": steps}


def main(path):
    keras.config.set_floatx("float64")
    random = np.random.default_rng(7)
    images = random.integers(0, 256, (EXAMPLES, 12, 12, 1), dtype=np.uint8)
    labels = random.integers(0, 10, EXAMPLES, dtype=np.int32)
    tensors = {"images": images, "labels": labels}
    case = {
        "model": "Conv2D(4,3,relu) MaxPooling2D Flatten Dense(8,relu) Dense(10) on 12x12x1",
        "loss": "sparse categorical cross-entropy from logits, mean over the batch",
        "data": "images/255, batches in order; the last batch of a run may be short",
        "learning_rate": {"sgd": 0.01, "adam": 0.001, "uneven": 0.01},
        "runs": {prefix: run(prefix, images, labels, tensors) for prefix in RUNS},
        "made_with": f"keras {keras.__version__}, tensorflow {tf.__version__}, float64",
    }
    with open(path, "wb") as file:
        file.write(save(tensors, {"case": json.dumps(case)}))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: make_small.py OUT.safetensors")
    main(sys.argv[1])
