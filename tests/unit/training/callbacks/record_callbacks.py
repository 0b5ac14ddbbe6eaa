#!/usr/bin/env python3
"""Runs Keras' own callbacks over made-up numbers and prints what they decided as JSON.

    pip install keras==3.15.1 tensorflow-cpu
    python3 record_callbacks.py > ../../../golden/data/keras_callbacks.json

The model is a stand-in: its weights are the number of the epoch that has ended, so what was restored shows.
"""

import inspect
import json
import os
import random
import tempfile

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras


class Optimizer:
    def __init__(self, rate):
        self.learning_rate = rate


class Model:
    def __init__(self, rate=0.1):
        self.optimizer = Optimizer(rate)
        self.stop_training = False
        self.epoch = -1
        self.metrics = []
        self.saved = []

    def get_weights(self):
        return self.epoch

    def set_weights(self, weights):
        self.epoch = weights

    def save_weights(self, path, overwrite):
        self.saved.append(path)

    def save(self, path, overwrite):
        self.saved.append(path)


def run(callback, values, name):
    """\\returns the model and the rate in which each epoch was run."""
    model, rates = Model(), []
    callback.set_model(model)
    callback.on_train_begin()
    for epoch, value in enumerate(values):
        callback.on_epoch_begin(epoch)
        rates.append(model.optimizer.learning_rate)
        model.epoch = epoch
        callback.on_epoch_end(epoch, {"loss": 1.0, **({} if value is None else {name: value})})
        if model.stop_training:
            break
    callback.on_train_end()
    return model, rates


def curve(kind, length=14):
    """Values of one epoch after the other."""
    draw = random.Random(kind)
    if kind == "falls":
        return [1 / (1 + i) for i in range(length)]
    if kind == "rises":
        return [0.1 + 0.05 * i for i in range(length)]
    if kind == "flat":
        return [0.5] * length
    if kind == "valley":
        return [abs(i - 5) * 0.1 + 0.2 for i in range(length)]
    if kind == "steps":
        return [1 - 0.2 * (i // 4) for i in range(length)]
    if kind == "slow":
        return [1 - 0.00004 * i for i in range(length)]
    if kind == "nan":
        return [0.9, 0.8, float("nan"), 0.7, float("nan"), float("nan"), float("nan"), 0.6]
    if kind == "gaps":
        return [0.9, None, 0.8, None, None, 0.85, 0.7, None, 0.75, 0.75, 0.75]
    return [round(draw.uniform(0, 1), 3) for _ in range(length)]


CURVES = ["falls", "rises", "flat", "valley", "steps", "slow", "nan", "gaps", "random 1", "random 2", "random 3"]


def stopping():
    cases = [dict(patience=p, restore_best_weights=r) for p in (0, 1, 3) for r in (False, True)]
    cases += [dict(patience=2, min_delta=0.05), dict(patience=2, min_delta=-0.15, restore_best_weights=True),
              dict(patience=2, mode="max", restore_best_weights=True), dict(patience=1, baseline=0.5),
              dict(patience=2, baseline=0.75, restore_best_weights=True), dict(patience=1, start_from_epoch=4),
              dict(patience=1, start_from_epoch=4, restore_best_weights=True),
              dict(patience=2, mode="max", min_delta=0.1, baseline=0.3)]
    for options in cases:
        for kind in CURVES:
            values = curve(kind)
            model, rates = run(keras.callbacks.EarlyStopping(monitor="val_loss", **options), values, "val_loss")
            o = dict(min_delta=0, patience=0, mode="min", baseline=None, restore_best_weights=False, start_from_epoch=0)
            o.update(options)
            yield {**o, "min_delta": float(o["min_delta"]), "values": values, "epochs": len(rates),
                   "weights_of_epoch": model.epoch}


def reducing():
    cases = [dict(patience=p) for p in (0, 1, 2, 10)]
    cases += [dict(patience=1, factor=0.5, cooldown=2), dict(patience=1, factor=0.3, min_lr=0.01),
              dict(patience=1, min_delta=0.15), dict(patience=2, mode="max", factor=0.5),
              dict(patience=1, cooldown=1, min_lr=0.005), dict(patience=1, factor=0.0, min_lr=0.001)]
    for options in cases:
        for kind in CURVES:
            values = curve(kind)
            _, rates = run(keras.callbacks.ReduceLROnPlateau(monitor="val_loss", **options), values, "val_loss")
            o = dict(factor=0.1, patience=10, mode="min", min_delta=1e-4, cooldown=0, min_lr=0.0)
            o.update(options)
            yield {**o, "values": values, "rates": [float(rate) for rate in rates]}


def csv_files():
    runs = {
        "plain": [{"loss": 1.0, "accuracy": 0.5}, {"loss": 0.1, "accuracy": 2 / 3}],
        "validation": [{"loss": 0.25, "val_loss": 1e-5}, {"loss": float("nan"), "val_loss": float("inf")}],
        "numbers": [{"loss": v} for v in (1e16, 123456789012345.6, 1e15, 0.0001, 0.00012345, 9.9e-5, 1e-300, -2.0, 5e22)],
        "names": [{'a "b"': 1.0, "c,d;e": 2.0, "f\ng": 3.0, "h\ri": 4.0}],
        "missing": [{"loss": 1.0, "val_loss": 2.0}, {"loss": 0.5}],
    }
    for name, epochs in runs.items():
        for separator, append, before in ((",", False, "old\n"), (";", False, ""), (",", True, ""), (",", True, "epoch,loss\r\n")):
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "log.csv")
                with open(path, "w", newline="") as file:
                    file.write(before)
                callback = keras.callbacks.CSVLogger(path, separator=separator, append=append)
                callback.set_model(Model())
                callback.on_train_begin()
                for epoch, logs in enumerate(epochs):
                    callback.on_epoch_end(epoch, dict(logs))
                callback.on_train_end()
                text = open(path, newline="").read()
            yield {"name": name, "separator": separator, "append": append, "before": before,
                   "epochs": [[[k, float(v)] for k, v in epoch.items()] for epoch in epochs], "file": text}


def files():
    """The files of ModelCheckpoint, each with the hook at which it is written."""
    best = [dict(save_best_only=True, **more) for more in (
        {}, dict(mode="min"), dict(mode="max"), dict(initial_value_threshold=0.5),
        dict(mode="max", initial_value_threshold=0.32), dict(save_weights_only=True))]
    cases = [(dict(options, filepath="{epoch:02d}"), kind, 1, 1) for options in best for kind in CURVES]
    cases += [(dict(filepath=name, save_weights_only=weights), "nan", 1, 1) for weights in (False, True)
              for name in ("same", "{epoch:02d}-{val_loss:.2f}", "{epoch}-{loss}-{loss:.3e}-{val_loss}", "{epoch}-{batch}",
                           "{acc}")]
    cases += [(dict(filepath="{epoch:02d}-{val_loss:.2f}"), "gaps", 1, 1)]
    cases += [(dict(filepath="{epoch}.{batch:03d}-{loss:.3f}", save_freq=n), "valley", batches, 2)
              for n in (1, 2, 3, 5, 8, 40) for batches in (1, 5)]
    cases += [(dict(filepath="{epoch}.{batch}", save_freq=n, save_best_only=True, monitor="loss", **more), kind, 5, 1)
              for n in (2, 4) for kind in ("falls", "valley") for more in ({}, dict(initial_value_threshold=0.4))]
    for options, kind, batches, fits in cases:
        keras_options = dict(options, filepath=options["filepath"]
                             + (".weights.h5" if options.get("save_weights_only") else ".keras"))
        callback, model, hooks, error = keras.callbacks.ModelCheckpoint(**keras_options), Model(), [], None
        callback.set_model(model)

        def call(name, hook, *arguments):
            hook(*arguments)
            hooks.extend([name, path] for path in model.saved)
            model.saved.clear()

        try:
            for _ in range(fits):
                steps = iter(curve(kind) * 9)
                callback.on_train_begin()
                for epoch, value in enumerate(curve(kind) if batches == 1 else range(3)):
                    callback.on_epoch_begin(epoch)
                    for batch in range(batches):
                        logs = {"loss": next(steps) if batches > 1 else 1.0}
                        call(f"batch {epoch} {batch}", callback.on_train_batch_end, batch, logs)
                    if batches == 1 and value is not None:
                        logs["val_loss"] = value
                    call(f"epoch {epoch}", callback.on_epoch_end, epoch, logs)
                callback.on_train_end()
        except (KeyError, TypeError) as exception:
            error = type(exception).__name__
        yield {"options": keras_options, "curve": kind, "batches": batches, "fits": fits, "files": hooks, "error": error}


def signatures():
    """The arguments and defaults of each callback, as Python writes them."""
    for name in sorted(dir(keras.callbacks)):
        callback = getattr(keras.callbacks, name)
        if inspect.isclass(callback):
            for argument in inspect.signature(callback).parameters.values():
                if argument.kind is not inspect.Parameter.VAR_KEYWORD:
                    has_default = argument.default is not inspect.Parameter.empty
                    yield [name, argument.name, repr(argument.default) if has_default else ""]
            yield [name, "", ""]


parts = {"stopping": stopping(), "reducing": reducing(), "csv": csv_files(), "files": files(),
         "curves": ([kind, curve(kind)] for kind in CURVES), "signatures": signatures()}
print("{\n" + ",\n".join(f'"{name}": [\n  ' + ",\n  ".join(map(json.dumps, rows)) + "]" for name, rows in parts.items()) + "\n}")
