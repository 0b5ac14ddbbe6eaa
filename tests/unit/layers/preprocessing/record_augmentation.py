#!/usr/bin/env python3
"""Runs Keras' augmentation layers with deterministic factors and prints their outputs as JSON.

    pip install keras==3.15.1 tensorflow-cpu jax scipy
    python3 record_augmentation.py > ../../golden/data/keras_augmentation.json

Uses the TensorFlow backend, except for the fill mode `wrap`, which repeats the image on the numpy backend only. Number i
of an image is 37 i modulo 101, divided by 10.
"""

import json
import os
import subprocess
import sys

SHAPES = [(5, 4, 2), (3, 6, 1)]
FILLS = {"tensorflow": ["reflect", "constant", "nearest"], "numpy": ["wrap"]}
VALUE = 2.5
# Avoids half pixels, where `nearest` depends on rounding.
ROTATIONS = [0.1, -0.22, 0.24, 0.43]
TRANSLATIONS = [(0.13, -0.37), (-0.71, 0.9), (1.0, 0.2)]
CROPS = [((5, 4, 2), 3, 2), ((3, 6, 1), 4, 4), ((7, 5, 1), 2, 5), ((2, 2, 3), 3, 3), ((4, 9, 1), 5, 3), ((6, 6, 1), 4, 4)]


def image(shape):
    import numpy as np
    size = shape[0] * shape[1] * shape[2]
    return ((np.arange(size) * 37) % 101 / 10).reshape((1, *shape))


def numbers(tensor):
    import numpy as np
    return [float(f"{v:.9g}") for v in np.asarray(tensor, dtype="float64").reshape(-1)]


def affine(backend):
    """Rows: layer, shape, factors, fill, interpolation, numbers."""
    import keras
    for fill in FILLS[backend]:
        for interpolation in ("bilinear", "nearest"):
            options = {"fill_mode": fill, "fill_value": VALUE, "interpolation": interpolation, "dtype": "float64"}
            for shape in SHAPES:
                for f in ROTATIONS:
                    layer = keras.layers.RandomRotation((f, f), **options)
                    yield "rotation", shape, [f], fill, interpolation, numbers(layer(image(shape), training=True))
                for h, w in TRANSLATIONS:
                    layer = keras.layers.RandomTranslation((h, h), (w, w), **options)
                    yield "translation", shape, [h, w], fill, interpolation, numbers(layer(image(shape), training=True))


def flips():
    import keras
    import numpy as np
    for mode in ("horizontal", "vertical", "horizontal_and_vertical"):
        layer = keras.layers.RandomFlip(mode, dtype="float64")
        for shape in SHAPES:
            thrown = {"flips": np.ones((1, 1, 1, 1), bool)}
            yield mode, shape, numbers(layer.transform_images(image(shape), thrown, training=True))


def crops():
    """Runs smart_resize, which is the documented behavior of RandomCrop outside training."""
    import keras
    for shape, height, width in CROPS:
        resized = keras.preprocessing.image.smart_resize(image(shape)[0], (height, width))
        yield shape, height, width, numbers(resized)


def record(backend):
    rows = {"affine": list(affine(backend))}
    if backend == "tensorflow":
        rows |= {"flips": list(flips()), "crops": list(crops())}
    print(json.dumps(rows))


def run(backend):
    environment = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run([sys.executable, __file__, backend], env=environment, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    rows = run("tensorflow")
    rows["affine"] += run("numpy")["affine"]
    parts = {}
    for kind in ("rotation", "translation"):
        parts[kind + "s"] = [dict(shape=shape, factors=factors, fill=fill, interpolation=interpolation, y=y)
                             for name, shape, factors, fill, interpolation, y in rows["affine"] if name == kind]
    parts["flips"] = [dict(shape=shape, mode=mode, y=y) for mode, shape, y in rows["flips"]]
    parts["crops"] = [dict(shape=shape, height=height, width=width, y=y) for shape, height, width, y in rows["crops"]]
    print("{\n" + ",\n".join(f'"{name}": [\n  ' + ",\n  ".join(map(json.dumps, part)) + "]"
                             for name, part in parts.items()) + "\n}")


if __name__ == "__main__":
    record(sys.argv[1]) if len(sys.argv) > 1 else main()
