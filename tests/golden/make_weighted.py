#!/usr/bin/env python3
"""Writes data/weighted.safetensors: short float64 runs of Keras' fit with sample and class weights.

The examples are points in four classes. Each run has its own initial weights and reads the examples
in order, in batches of 8 with a last one of 5, for three epochs. Stored for each run: init/, final/
= initial and final weights, history/<name> = one number per epoch, under Keras' names, and
evaluate/<name> = evaluate with other sample weights after training. metrics/ has predictions,
targets, sample weights, and the value of each metric with these weights.

    python3 -m venv venv && venv/bin/pip install tensorflow-cpu keras safetensors
    venv/bin/python make_weighted.py data/weighted.safetensors
"""

import json
import os
import sys

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
from safetensors.numpy import save

EXAMPLES, VALIDATION, BATCH, EPOCHS = 37, 14, 8, 3
CLASS_WEIGHT = {0: 0.25, 1: 3.0, 3: 1.75}  # class 2 has none, so it gets 1


def sparse():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def onehot():
    return keras.losses.CategoricalCrossentropy(from_logits=True)


def metrics_of(name):
    if name == "categorical":
        return keras.metrics.CategoricalAccuracy("accuracy")
    return keras.metrics.SparseCategoricalAccuracy("accuracy")


RUNS = {  # prefix: seed, loss, weighs by samples, by classes
    "samples": (21, sparse, True, False),
    "classes": (22, sparse, False, True),
    "categorical": (23, onehot, False, True),
}


def build(seed):
    keras.backend.clear_session()
    keras.utils.set_random_seed(seed)
    layers = keras.layers
    return keras.Sequential(
        [layers.Input((3,)), layers.Dense(6, activation="tanh"), layers.Dense(4)]
    )


def run(prefix, data, tensors):
    seed, loss, by_sample, by_class = RUNS[prefix]
    model = build(seed)
    classes = np.eye(4) if prefix == "categorical" else np.arange(4)
    x, y, w = data["x"], classes[data["labels"]], data["weights"]
    other = (data["val_x"], classes[data["val_labels"]], data["val_weights"])
    model.compile(
        optimizer=keras.optimizers.SGD(0.25),
        loss=loss(),
        metrics=[metrics_of(prefix)],
        weighted_metrics=[metrics_of(prefix)],
    )

    def store(kind):
        for variable in model.trainable_variables:
            value = np.asarray(variable)
            assert value.dtype == np.float64, (variable.path, value.dtype)
            tensors[f"{prefix}/{kind}/{variable.path.removeprefix('sequential/')}"] = value.copy()

    store("init")
    history = model.fit(
        x,
        y,
        batch_size=BATCH,
        epochs=EPOCHS,
        shuffle=False,
        verbose=0,
        sample_weight=w if by_sample else None,
        class_weight=CLASS_WEIGHT if by_class else None,
        validation_data=other if by_sample else other[:2],
        validation_batch_size=BATCH,
    ).history
    store("final")
    for name, values in history.items():
        tensors[f"{prefix}/history/{name}"] = np.array(values, np.float64)
    found = model.evaluate(*other[:2], sample_weight=other[2], batch_size=BATCH, verbose=0,
                           return_dict=True)
    for name, value in found.items():
        tensors[f"{prefix}/evaluate/{name}"] = np.array([value], np.float64)


def weighted_metrics(random, tensors):
    """Values of metrics with sample weights, in float64."""
    metrics, count, width = keras.metrics, 24, 4
    given = {
        "prediction": random.uniform(0, 1, (count, width)),
        "real": random.normal(size=(count, width)),
        "binary": random.integers(0, 2, (count, width)).astype(np.float64),
        "labels": random.integers(0, width, count, dtype=np.int32),
        "weights": random.uniform(0, 2, count),
    }
    given["onehot"] = np.eye(width)[given["labels"]]
    measured = {
        "binary_accuracy": (metrics.BinaryAccuracy, "binary"),
        "precision": (metrics.Precision, "binary"),
        "recall": (metrics.Recall, "binary"),
        "auc_roc": (lambda dtype: metrics.AUC(dtype=dtype), "binary"),
        "auc_pr": (lambda dtype: metrics.AUC(curve="PR", dtype=dtype), "binary"),
        "categorical_accuracy": (metrics.CategoricalAccuracy, "onehot"),
        "sparse_categorical_accuracy": (metrics.SparseCategoricalAccuracy, "labels"),
        "mse": (metrics.MeanSquaredError, "real"),
        "rmse": (metrics.RootMeanSquaredError, "real"),
        "cosine": (metrics.CosineSimilarity, "real"),
    }
    for name, values in given.items():
        tensors["metrics/" + name] = values
    for name, (make, target) in measured.items():
        metric = make(dtype="float64")
        metric.update_state(given[target], given["prediction"], sample_weight=given["weights"])
        tensors["metrics/value/" + name] = np.array([metric.result()], np.float64)
    keras.config.set_floatx("float32")  # TensorFlow has the next in no other
    metric = metrics.SparseTopKCategoricalAccuracy(2)
    metric.update_state(given["labels"], given["prediction"].astype(np.float32),
                        sample_weight=given["weights"])
    tensors["metrics/value/sparse_top2"] = np.array([metric.result()], np.float64)


def main(path):
    keras.config.set_floatx("float64")
    random = np.random.default_rng(9)
    data = {}
    for part, count in (("", EXAMPLES), ("val_", VALIDATION)):
        data[part + "x"] = random.normal(size=(count, 3))
        data[part + "labels"] = random.integers(0, 4, count, dtype=np.int32)
        data[part + "weights"] = random.uniform(0, 2, count)
    data["weights"][5], data["weights"][11] = 0.0, -0.5
    tensors = dict(data)
    for prefix in RUNS:
        run(prefix, data, tensors)
    weighted_metrics(random, tensors)
    case = {
        "model": "Dense(6,tanh) Dense(4) on 3 numbers",
        "loss": "cross-entropy from logits against labels, or one-hot rows in categorical/",
        "optimizer": "SGD(0.25)",
        "rule": f"fit in order, batches of {BATCH}, {EPOCHS} epochs; validation with val_weights "
        "in samples/ only, evaluate with val_weights in all",
        "class_weight": CLASS_WEIGHT,
        "made_with": f"keras {keras.__version__}, {keras.backend.backend()}, float64",
    }
    with open(path, "wb") as file:
        file.write(save(tensors, {"case": json.dumps(case)}))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: make_weighted.py OUT.safetensors")
    main(sys.argv[1])
