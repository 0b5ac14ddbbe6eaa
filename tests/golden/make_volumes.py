#!/usr/bin/env python3
"""Writes data/layer_<name>.safetensors for the layers over volumes in CASES: one call of Keras each, in float64.

The tensors are those of make_layers.py. Keras on PyTorch counts the padding of a mean, if it is uneven, so that of
average_pool3d_same is even.

    python3 -m venv venv && venv/bin/pip install torch keras safetensors
    KERAS_BACKEND=torch venv/bin/python make_volumes.py data
"""

import json
import os
import sys

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras
import numpy as np
import torch
from keras.src.backend.common import dtypes
from safetensors.numpy import save

dtypes.BIT64_TO_BIT32_DTYPE["float64"] = "float64"  # Keras on PyTorch rounds products to float32
L = keras.layers
CASES = {  # name: layer, shape of an example
    "conv3d": (lambda: L.Conv3D(4, 3), (5, 4, 6, 2)),
    "conv3d_same_strides": (lambda: L.Conv3D(3, (2, 3, 4), strides=(2, 1, 3), padding="same"), (5, 4, 7, 2)),
    "conv3d_dilated": (lambda: L.Conv3D(3, (2, 3, 2), dilation_rate=(3, 1, 2), use_bias=False), (6, 4, 5, 2)),
    "conv3d_groups": (lambda: L.Conv3D(6, (3, 1, 2), padding="same", groups=3), (3, 4, 5, 6)),
    "conv3d_1x1_stride2": (lambda: L.Conv3D(3, 1, strides=2), (4, 5, 3, 5)),
    "conv3d_voxel": (lambda: L.Conv3D(1, 3, padding="same"), (1, 1, 1, 1)),
    "max_pool3d": (lambda: L.MaxPooling3D(), (5, 4, 6, 3)),
    "max_pool3d_same": (lambda: L.MaxPooling3D((2, 3, 2), strides=(1, 2, 3), padding="same"), (4, 5, 7, 2)),
    "average_pool3d": (lambda: L.AveragePooling3D((2, 1, 3)), (4, 3, 7, 2)),
    "average_pool3d_same": (lambda: L.AveragePooling3D(3, strides=1, padding="same"), (4, 3, 5, 2)),
    "global_average_pool3d": (lambda: L.GlobalAveragePooling3D(), (3, 4, 2, 5)),
    "global_max_pool3d": (lambda: L.GlobalMaxPooling3D(), (3, 4, 2, 5)),
}
COUNT = 2


def record(make, shape, random):
    layer = make()
    layer.build((COUNT, *shape))
    for variable in layer.weights:
        variable.assign(random.normal(size=variable.shape))
    x = torch.tensor(random.normal(size=(COUNT, *shape)), requires_grad=True)
    infer = layer(x, training=False)
    c = torch.tensor(random.normal(size=tuple(infer.shape)))
    y = layer(x, training=True)
    variables = layer.trainable_variables
    dx, *gradients = torch.autograd.grad((y * c).sum(), [x, *(v.value for v in variables)])
    tensors = {"x": x, "c": c, "y_train": y, "y_infer": infer, "dx": dx}
    for variable, gradient in zip(variables, gradients):
        tensors["param/" + variable.name] = variable.value
        tensors["d/" + variable.name] = gradient
    tensors = {name: np.ascontiguousarray(value.detach().numpy()) for name, value in tensors.items()}
    for name, value in tensors.items():
        assert value.dtype == np.float64, (name, value.dtype)
    config = {key: value for key, value in layer.get_config().items()
              if isinstance(value, (int, float, str, list, tuple))}
    case = {
        "layer": type(layer).__name__,
        "config": config,
        "rule": "gradients are of sum(y_train * c)",
        "made_with": f"keras {keras.__version__}, torch {torch.__version__.split('+')[0]}, float64",
    }
    return save(tensors, {"case": json.dumps(case)})


def main(folder):
    keras.config.set_floatx("float64")
    for number, (name, (make, shape)) in enumerate(CASES.items()):
        keras.backend.clear_session()
        data = record(make, shape, np.random.default_rng(140 + number))
        with open(os.path.join(folder, f"layer_{name}.safetensors"), "wb") as file:
            file.write(data)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: make_volumes.py FOLDER")
    main(sys.argv[1])
