#!/usr/bin/env python3
"""Runs Keras' own layers that change images, with factors that leave nothing to chance, and prints what they gave as C++.

    pip install keras==3.15.1 tensorflow-cpu jax scipy
    python3 record_augmentation.py > augmentation_recorded.hpp

On the TensorFlow backend, but for the fill mode `wrap`, which repeats the image on the numpy backend only. Number i of an
image is 37 i modulo 101, divided by 10.
"""

import json
import os
import subprocess
import sys

SHAPES = [(5, 4, 2), (3, 6, 1)]
FILLS = {"tensorflow": ["reflect", "constant", "nearest"], "numpy": ["wrap"]}
VALUE = 2.5
# No half pixels: there, `nearest` depends on rounding.
ROTATIONS = [0.1, -0.22, 0.24, 0.43]
TRANSLATIONS = [(0.13, -0.37), (-0.71, 0.9), (1.0, 0.2)]
CROPS = [((5, 4, 2), 3, 2), ((3, 6, 1), 4, 4), ((7, 5, 1), 2, 5), ((2, 2, 3), 3, 3), ((4, 9, 1), 5, 3), ((6, 6, 1), 4, 4)]


def image(shape):
    import numpy as np
    size = shape[0] * shape[1] * shape[2]
    return ((np.arange(size) * 37) % 101 / 10).reshape((1, *shape))


def numbers(tensor):
    import numpy as np
    return [float(v) for v in np.asarray(tensor, dtype="float64").reshape(-1)]


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
    """What RandomCrop is documented to do outside of training is smart_resize."""
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


def listed(values):
    return "{" + ", ".join(f"{v:.9g}" for v in values) + "}"


def shape_of(shape):
    return f"shape({', '.join(map(str, shape))})"


def ranges(factors):
    return ", ".join("{%sf, %sf}" % (float(f), float(f)) for f in factors)


def fill_of(fill):
    return f"fill_constant({VALUE}f)" if fill == "constant" else f"fill_{fill}"


HEAD = """/// \\file
/// What Keras' layers give, by record_augmentation.py. Not written by hand.
#pragma once

#include <vector>

#include "lockstep/layers/layers.hpp"

namespace lockstep::recorded {

/// What an op gives for the one image whose number i is (37 i mod 101) / 10.
template <class Op>
struct Recorded {
  Op op;
  std::vector<double> y;
};
"""


def main():
    rows = run("tensorflow")
    rows["affine"] += run("numpy")["affine"]
    print(HEAD)
    for kind, op in (("rotation", "RandomRotationOp"), ("translation", "RandomTranslationOp")):
        print(f"inline const std::vector<Recorded<{op}>> {kind}s{{")
        for name, shape, factors, fill, interpolation, y in rows["affine"]:
            if name == kind:
                print(f"    {{{{{shape_of(shape)}, {ranges(factors)}, {fill_of(fill)}, {interpolation}}},\n     {listed(y)}}},")
        print("};\n")
    print("/// Flipped images.\ninline const std::vector<Recorded<RandomFlipOp>> flips{")
    for mode, shape, y in rows["flips"]:
        print(f"    {{{{{shape_of(shape)}, {mode}}},\n     {listed(y)}}},")
    print("};\n\n/// Outside of training.\ninline const std::vector<Recorded<RandomCropOp>> crops{")
    for shape, height, width, y in rows["crops"]:
        print(f"    {{{{{shape_of(shape)}, {height}, {width}}},\n     {listed(y)}}},")
    print("};\n\n}  // namespace lockstep::recorded")


if __name__ == "__main__":
    record(sys.argv[1]) if len(sys.argv) > 1 else main()
