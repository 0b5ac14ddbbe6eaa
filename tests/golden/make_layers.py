#!/usr/bin/env python3
"""Writes data/layer_<name>.safetensors for the layers in CASES: one call of Keras each, in float64.

Stored for each: x, param/<parameter>, y_train, y_infer, and for the loss sum(y_train * c) the
gradients dx and d/<parameter>; for merging layers also x2 and dx2, and every third number of x2 is
that of x, except for Dot. TensorFlow resizes images in float32 for any input type, so x and c of the layers
that resize are multiples of 1/16, whose sums are exact if the factors are powers of two.

    python3 -m venv venv && venv/bin/pip install tensorflow-cpu keras safetensors
    venv/bin/python make_layers.py data
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

L = keras.layers


def own(name, function):
    """A function of TensorFlow as a layer, where Keras has none."""
    return type(name, (L.Layer,), {"call": lambda self, inputs: function(inputs)})()


CASES = {  # name: layer, shape of an example; merging layers have a second input, of this or the last shape
    "depthwise_multiplier": (lambda: L.DepthwiseConv2D(
        (3, 2), strides=2, padding="same", depth_multiplier=2, use_bias=False), (8, 7, 3)),
    "depthwise_dilated": (lambda: L.DepthwiseConv2D(3, dilation_rate=2), (7, 9, 4)),
    "separable": (lambda: L.SeparableConv2D(5, 3, padding="same", depth_multiplier=2), (6, 5, 3)),
    "separable_strides": (lambda: L.SeparableConv2D(4, (3, 2), strides=2, use_bias=False),
                          (8, 7, 3)),
    "conv_transpose": (lambda: L.Conv2DTranspose(4, 3), (5, 4, 3)),
    "conv_transpose_same_stride2": (lambda: L.Conv2DTranspose(4, 3, strides=2, padding="same"),
                                    (4, 5, 3)),
    "conv_transpose_same_4x4": (lambda: L.Conv2DTranspose(
        2, 4, strides=2, padding="same", use_bias=False), (5, 4, 3)),
    "conv_transpose_strides": (lambda: L.Conv2DTranspose(4, (5, 2), strides=(2, 3)), (4, 3, 2)),
    "conv_transpose_output_padding": (lambda: L.Conv2DTranspose(
        3, (3, 4), strides=3, padding="same", output_padding=(2, 1)), (4, 3, 2)),
    "conv_transpose_valid_padding": (lambda: L.Conv2DTranspose(
        3, 2, strides=2, output_padding=1), (4, 3, 2)),
    "up_sampling_nearest": (lambda: L.UpSampling2D((2, 3)), (4, 3, 2)),
    "up_sampling_bilinear": (lambda: L.UpSampling2D(2, interpolation="bilinear"), (5, 4, 3)),
    "up_sampling_bilinear_4x2": (lambda: L.UpSampling2D((4, 2), interpolation="bilinear"),
                                 (3, 6, 2)),
    "up_sampling_bilinear_3x5": (lambda: L.UpSampling2D((3, 5), interpolation="bilinear"),
                                 (4, 3, 2)),
    "zero_padding_1d": (lambda: L.ZeroPadding1D((2, 1)), (4, 3)),
    "cropping_1d": (lambda: L.Cropping1D((2, 1)), (7, 3)),
    "cropping_2d": (lambda: L.Cropping2D(((1, 2), (0, 3))), (5, 7, 3)),
    "slice_axis": (lambda: own("SliceAxis", lambda x: x[:, :, 1:4]), (3, 5, 2)),
    "permute": (lambda: L.Permute((3, 1, 2)), (4, 3, 2)),
    "repeat_vector": (lambda: L.RepeatVector(4), (5,)),
    "up_sampling_1d": (lambda: L.UpSampling1D(3), (4, 2)),
    "depth_to_space": (lambda: own("DepthToSpace", lambda x: tf.nn.depth_to_space(x, 2)), (2, 3, 12)),
    "space_to_depth": (lambda: own("SpaceToDepth", lambda x: tf.nn.space_to_depth(x, 2)), (4, 6, 3)),
    "multiply": (lambda: L.Multiply(), (3, 4)),
    "subtract": (lambda: L.Subtract(), (3, 4)),
    "average": (lambda: L.Average(), (3, 4)),
    "maximum": (lambda: L.Maximum(), (3, 4)),
    "minimum": (lambda: L.Minimum(), (3, 4)),
    "dot": (lambda: L.Dot((2, 1)), (3, 4), (4, 2)),
    "dot_normalized": (lambda: L.Dot(-1, normalize=True), (3, 2, 4), (5, 4)),
    "dot_of_vectors": (lambda: L.Dot(1, normalize=True), (6,), (6,)),
    "conv_groups": (lambda: L.Conv2D(6, (3, 2), padding="same", groups=3), (5, 6, 9)),
    "conv_groups_strides": (lambda: L.Conv2D(4, 3, strides=2, groups=2, use_bias=False), (8, 7, 2)),
    "conv1d_groups": (lambda: L.Conv1D(6, 3, dilation_rate=2, groups=2), (9, 4)),
    "prelu": (lambda: L.PReLU(), (3, 4, 2)),
    "prelu_channels": (lambda: L.PReLU(shared_axes=[1, 2]), (3, 4, 5)),
    "prelu_rows": (lambda: L.PReLU(shared_axes=[2, 3]), (4, 3, 2)),
    "resizing_bilinear": (lambda: L.Resizing(8, 4), (4, 8, 3)),
    "resizing_bilinear_7x5": (lambda: L.Resizing(7, 5), (4, 9, 2)),
    "resizing_nearest": (lambda: L.Resizing(7, 5, interpolation="nearest"), (4, 9, 2)),
    "center_crop": (lambda: L.CenterCrop(4, 3), (7, 6, 2)),
    "center_crop_small": (lambda: L.CenterCrop(6, 3), (5, 7, 2)),
    "random_zoom": (lambda: L.RandomZoom((0.35, 0.35), (-0.4, -0.4)), (6, 7, 2)),
    "random_zoom_nearest": (lambda: L.RandomZoom((-0.3, -0.3), interpolation="nearest"), (5, 6, 1)),
    "random_contrast": (lambda: L.RandomContrast((-0.75, 0.75), value_range=(-1, 1)), (5, 4, 3)),
    "random_brightness": (lambda: L.RandomBrightness((0.25, 0.25), value_range=(-1, 1)), (5, 4, 3)),
    "conv1d_transpose": (lambda: L.Conv1DTranspose(4, 3, strides=2, padding="same"), (5, 3)),
    "conv1d_transpose_valid": (lambda: L.Conv1DTranspose(3, 4, strides=3, use_bias=False), (4, 2)),
    "conv1d_transpose_padded": (lambda: L.Conv1DTranspose(
        2, 3, strides=2, output_padding=0, padding="same"), (4, 3)),
}
COUNT = 2


def record(make, shape, random, second=None):
    layer = make()
    dyadic = isinstance(layer, (L.UpSampling2D, L.Resizing, L.CenterCrop))
    merges = isinstance(layer, (L.Multiply, L.Subtract, L.Average, L.Maximum, L.Minimum, L.Dot))

    def draw(size):
        values = random.normal(size=size)
        return np.round(values * 16) / 16 if dyadic else values

    x = tf.constant(draw((COUNT, *shape)))
    more = []
    if merges:
        x2 = draw((COUNT, *(second or shape)))
        if second is None:
            x2.reshape(-1)[::3] = np.asarray(x).reshape(-1)[::3]
        more = [tf.constant(x2)]
    inputs = [x, *more] if merges else x
    if not merges:
        layer.build(x.shape)
    for variable in layer.weights:
        variable.assign(random.normal(size=variable.shape))
    infer = tf.cast(layer(inputs, training=False), tf.float64)
    c = draw(infer.shape)
    variables = layer.trainable_variables
    with tf.GradientTape() as tape:
        tape.watch([x, *more])
        y = tf.cast(layer(inputs, training=True), tf.float64)
        loss = tf.reduce_sum(y * c)
    dx, *gradients = tape.gradient(loss, [x, *more, *(v.value for v in variables)])
    tensors = {"x": x, "c": c, "y_train": y, "y_infer": infer, "dx": dx}
    if merges:
        tensors |= {"x2": more[0], "dx2": gradients.pop(0)}
    for variable, gradient in zip(variables, gradients):
        tensors["param/" + variable.name] = variable
        tensors["d/" + variable.name] = gradient
    tensors = {name: np.asarray(value) for name, value in tensors.items()}
    for name, value in tensors.items():
        assert value.dtype == np.float64, (name, value.dtype)
    config = {key: value for key, value in layer.get_config().items()
              if isinstance(value, (int, float, str, list, tuple))}
    case = {
        "layer": type(layer).__name__,
        "config": config,
        "rule": "gradients are of sum(y_train * c)",
        "made_with": f"keras {keras.__version__}, tensorflow {tf.__version__}, float64",
    }
    return save(tensors, {"case": json.dumps(case)})


def main(folder):
    keras.config.set_floatx("float64")
    names = list(CASES)
    again = names.index("conv_groups")  # from here on the seeds are those of the cases before
    for position, (name, (make, *shapes)) in enumerate(CASES.items()):
        number = position if position < again else position - again + names.index("zero_padding_1d")
        keras.backend.clear_session()
        data = record(make, shapes[0], np.random.default_rng(40 + number), *shapes[1:])
        with open(os.path.join(folder, f"layer_{name}.safetensors"), "wb") as file:
            file.write(data)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: make_layers.py FOLDER")
    main(sys.argv[1])
