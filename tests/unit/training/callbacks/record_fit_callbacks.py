#!/usr/bin/env python3
"""Runs Keras' fit with callbacks and prints, as JSON, the hooks, the weights they see, and where a run resumes.

    pip install keras==3.15.1 tensorflow-cpu
    python3 record_fit_callbacks.py > ../../../golden/data/keras_fit_callbacks.json

The model is y = w x with w = 0.5 at first, trained on points of y = 3 x + sin(10 x), so each step changes w.
"""

import json
import math
import os
import tempfile

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import numpy
import tensorflow

RATE = 0.1


def data(examples, batch, repeats=False):
    x = numpy.array([[i / 4 - 1] for i in range(examples)], "float32")
    y = numpy.array([[3 * v + math.sin(10 * v)] for v in x[:, 0].tolist()], "float32")
    found = tensorflow.data.Dataset.from_tensor_slices((x, y)).batch(batch)
    return found.repeat() if repeats else found


def make(steps_per_execution=1, **options):
    layer = keras.layers.Dense(1, use_bias=False, kernel_initializer=keras.initializers.Constant(0.5))
    model = keras.Sequential([keras.Input((1,)), layer])
    model.compile(keras.optimizers.SGD(RATE, **options), "mse", steps_per_execution=steps_per_execution)
    return model


class Recorder(keras.callbacks.Callback):
    """Notes each hook in `hooks`, as [name, index or None, value]."""

    def __init__(self, hooks, value, stop=None):
        super().__init__()
        self.hooks, self.value, self.stop = hooks, value, stop

    def note(self, name, index, logs):
        self.hooks.append([name, index, self.value(self.model, logs)])
        if self.stop == [name, index]:
            self.model.stop_training = True


def hook(name, has_index):
    if has_index:
        return lambda self, index, logs=None: self.note(name, index, logs)
    return lambda self, logs=None: self.note(name, None, logs)


for run in ("train", "test", "predict"):
    for edge in ("begin", "end"):
        setattr(Recorder, f"on_{run}_{edge}", hook(f"{run}_{edge}", False))
        setattr(Recorder, f"on_{run}_batch_{edge}", hook(f"{run}_batch_{edge}", True))
        setattr(Recorder, f"on_epoch_{edge}", hook(f"epoch_{edge}", True))


def kernel(model, logs=None):
    return float(model.get_weights()[0][0, 0])


def orders():
    """The hooks of two callbacks, each with the names in its logs."""
    cases = [dict(), dict(epochs=3, validation_freq=2, validates=True), dict(epochs=2, validates=True, validation_steps=1),
             dict(epochs=2, steps_per_epoch=2), dict(epochs=3, initial_epoch=1), dict(steps_per_execution=2),
             dict(epochs=3, validates=True, stop=["train_batch_end", 1]), dict(epochs=3, validates=True, stop=["epoch_end", 1]),
             dict(epochs=3, stop=["train_begin", None]), dict(epochs=3, stop=["epoch_begin", 1])]
    for case in cases + [dict(call="evaluate"), dict(call="predict")]:
        o = dict(epochs=1, initial_epoch=0, steps_per_epoch=None, steps_per_execution=1, validates=False, validation_freq=1,
                 validation_steps=None, stop=None, call="fit")
        o.update(case)
        hooks = []
        callbacks = [Recorder(hooks, lambda model, logs, me=me: " ".join([me, *sorted(logs or {})]), o["stop"] if me == "a" else None)
                     for me in "ab"]
        model = make(o["steps_per_execution"])
        if o["call"] == "fit":
            validation = dict(validation_data=data(8, 4), validation_freq=o["validation_freq"],
                              validation_steps=o["validation_steps"]) if o["validates"] else {}
            model.fit(data(9, 3, o["steps_per_epoch"] is not None), epochs=o["epochs"], initial_epoch=o["initial_epoch"],
                      steps_per_epoch=o["steps_per_epoch"], callbacks=callbacks, verbose=0, **validation)
        elif o["call"] == "evaluate":
            model.evaluate(data(8, 4), callbacks=callbacks, verbose=0)
        else:
            model.predict(data(8, 4), callbacks=callbacks, verbose=0)
        yield {"options": o, "hooks": [f"{value.split()[0]} {name}{'' if index is None else f' {index}'}:"
                                       + "".join(f" {word}" for word in value.split()[1:] if word != "outputs")
                                       for name, index, value in hooks]}


def averages():
    """The kernel that a callback after SwapEMAWeights sees, in fit, evaluate and predict, and after each of them. A
    step between fit and evaluate makes the weights differ from the averages."""
    for swaps in (None, False, True):
        for overwrites in (None, 2):
            for stop in (None, ["epoch_end", 1]):
                hooks = []
                model = make(use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=overwrites)
                recorder = Recorder(hooks, kernel, stop)
                callbacks = [recorder] if swaps is None else [keras.callbacks.SwapEMAWeights(swap_on_epoch=swaps), recorder]
                after = []
                for call in ((lambda: model.fit(data(6, 2), validation_data=data(6, 3), epochs=3, callbacks=callbacks, verbose=0)),
                             (lambda: model.train_on_batch(*next(iter(data(6, 6))))),
                             (lambda: model.evaluate(data(6, 3), callbacks=callbacks, verbose=0)),
                             (lambda: model.predict(data(6, 3), callbacks=callbacks, verbose=0))):
                    call()
                    after.append(kernel(model))
                yield {"swap_on_epoch": swaps, "overwrite": overwrites or 0, "stops": stop is not None,
                       "hooks": [[f"{n}{'' if i is None else f' {i}'}", value] for n, i, value in hooks], "after": after}


class Crash(keras.callbacks.Callback):
    """Crashes before the step with this number, counted over the run."""

    def __init__(self, step):
        super().__init__()
        self.left = step

    def on_train_batch_begin(self, batch, logs=None):
        if self.left == 0:
            raise RuntimeError("crash")
        self.left -= 1


def backups():
    """A run of 3 epochs of 4 steps that crashes after `crash` steps and starts again: the step whose weights it
    restores, its first epoch and batch, the number of steps of both runs, and what is left at the end."""
    def fit(model, *callbacks):
        hooks = []
        model.fit(data(8, 2), epochs=3, verbose=0, callbacks=[*callbacks, Recorder(hooks, kernel)])
        return [h for h in hooks if h[0] == "train_batch_end"]

    start = make()
    kernels = [kernel(start)] + [h[2] for h in fit(start)]
    assert len(set(kernels)) == 13
    cases = [dict(save_freq=f, crash=c) for f in ("epoch", 1, 3, 5) for c in (0, 2, 4, 5, 6, 9, 11)]
    cases += [dict(save_freq="epoch", crash=9, delete_checkpoint=False), dict(save_freq=3, crash=7, double_checkpoint=True),
              dict(save_freq=3, crash=7, double_checkpoint=True, damaged=True), dict(save_freq=3, crash=7, damaged=True)]
    for case in cases:
        o = dict(double_checkpoint=False, delete_checkpoint=True, damaged=False)
        o.update(case)
        options = {k: o[k] for k in ("save_freq", "double_checkpoint", "delete_checkpoint")}
        with tempfile.TemporaryDirectory() as folder:
            backup = os.path.join(folder, "backup")
            try:
                fit(make(), keras.callbacks.BackupAndRestore(backup, **options), Crash(o["crash"]))
                assert False
            except RuntimeError:
                pass
            saved = sorted(os.listdir(backup)) if os.path.exists(backup) else []
            if o["damaged"]:
                with open(os.path.join(backup, "latest.weights.h5"), "r+b") as file:
                    file.truncate(100)
            begin, model, hooks = [], make(), None
            restored = keras.callbacks.LambdaCallback(on_train_begin=lambda logs: begin.append(kernel(model)))
            try:
                hooks = fit(model, keras.callbacks.BackupAndRestore(backup, **options), restored)
            except OSError:
                pass
            yield {**o, "saved": len([name for name in saved if "weights" in name]),
                   "restored": kernels.index(begin[0]) if hooks else None, "epoch": model._initial_epoch if hooks else None,
                   "batch": hooks[0][1] if hooks else None, "steps": len(hooks) if hooks else None,
                   "left": os.path.exists(backup)}


parts = {"orders": orders(), "averages": averages(), "backups": backups()}
print("{\n" + ",\n".join(f'"{name}": [\n  ' + ",\n  ".join(map(json.dumps, rows)) + "]" for name, rows in parts.items()) + "\n}")
