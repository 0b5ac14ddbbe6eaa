#!/usr/bin/env python3
"""Writes data/layer_<name>.safetensors for the layers in CASES: one call of Keras each, in float64.

Stored for each: x, param/<parameter>, c, y_train, y_infer, and for the loss sum(y_train * c) the gradients dx and
d/<parameter>. PyTorch computes all of them, too, from its own functions, and must agree to 1e-12. Keras runs on TensorFlow,
since its layers with PyTorch round to float32.

    python3 -m venv venv && venv/bin/pip install tensorflow-cpu torch keras safetensors
    venv/bin/python make_attention.py data
"""

import json
import os
import sys

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf
import torch
from safetensors.numpy import save

L = keras.layers


def attention(*arguments, **options):
    return lambda: L.MultiHeadAttention(*arguments, **options)


def grouped(*arguments, **options):
    return lambda: L.GroupQueryAttention(*arguments, **options)


CASES = {  # name: layer, shape of an example (query, value, key if they differ), whether attention is causal
    "rms_norm": (lambda: L.RMSNormalization(), (3, 5), False),
    "group_norm": (lambda: L.GroupNormalization(3), (4, 2, 6), False),
    "group_norm_instance": (lambda: L.GroupNormalization(-1, center=False), (5, 4), False),
    # Keras rounds 1 / sqrt(key_dim) to float32, so the sizes have exact roots.
    "attention": (attention(2, 4), (5, 6), False),
    "attention_one_step": (attention(3, 1), (1, 4), False),
    "attention_causal": (attention(3, 4, value_dim=2, use_bias=False, output_shape=5), (7, 6), True),
    "attention_window": (attention(1, 4, sliding_window=2), (6, 3), False),
    "attention_causal_window": (attention(2, 1, value_dim=3, sliding_window=3), (7, 4), True),
    "grouped_attention": (grouped(4, 4, 2), (5, 6), True),
    "attention_cross": (attention(2, 4, value_dim=3), [(6, 5), (4, 6), (4, 2)], True),
}
COUNT = 2


def attention_of_torch(layer, inputs, weights, causal):
    query, value, key = (inputs + inputs[-1:] * 2)[:3]

    def projected(name, x):
        y = torch.einsum("btd,dnh->bnth", x, weights[name + "/kernel"])
        return y + weights[name + "/bias"][:, None, :] if name + "/bias" in weights else y

    row, column = torch.arange(query.shape[1])[:, None], torch.arange(key.shape[1])[None, :]
    allowed = (row >= column) | (not causal)
    if window := layer.get_config()["sliding_window"]:
        allowed &= (row - column).abs() < window
    o = torch.nn.functional.scaled_dot_product_attention(
        projected("query", query), projected("key", key), projected("value", value), attn_mask=allowed, enable_gqa=True)
    y = torch.einsum("bnth,nhe->bte", o, weights["attention_output/kernel"])
    return y + weights.get("attention_output/bias", 0)


def of_torch(layer, inputs, weights, causal):
    """The same function of PyTorch."""
    x = inputs[0]
    if isinstance(layer, L.RMSNormalization):
        return torch.nn.functional.rms_norm(x, x.shape[-1:], weights["scale"], layer.epsilon)
    if isinstance(layer, L.GroupNormalization):
        return torch.nn.functional.group_norm(x.movedim(-1, 1), layer.groups, weights["gamma"], weights.get("beta"),
                                              layer.epsilon).movedim(1, -1)
    return attention_of_torch(layer, inputs, weights, causal)


def record(make, shape, causal, random):
    layer = make()
    inputs = [tf.constant(random.normal(size=(COUNT, *s))) for s in (shape if isinstance(shape, list) else [shape])]
    attends = isinstance(layer, (L.MultiHeadAttention, L.GroupQueryAttention))
    operands = inputs * 2 if attends and len(inputs) == 1 else inputs
    layer.build(*(x.shape for x in operands))
    for variable in layer.weights:
        variable.assign(random.normal(size=variable.shape))

    def call(training):
        if not attends:
            return layer(*operands, training=training)
        # With the probabilities, since Keras' other way computes them in float32.
        return layer(*operands, use_causal_mask=causal, training=training, return_attention_scores=True)[0]

    infer = call(False)
    c = random.normal(size=infer.shape)
    names = [v.path.split("/", 1)[1] for v in layer.trainable_variables]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        y = call(True)
        loss = tf.reduce_sum(y * c)
    gradients = tape.gradient(loss, [*inputs, *(v.value for v in layer.trainable_variables)])
    tensors = {"c": c, "y_train": y, "y_infer": infer}
    of_inputs = [("x", "dx"), ("x2", "dx2"), ("x3", "dx3")][:len(inputs)]
    for (name, of_name), value in zip(of_inputs, inputs):
        tensors |= {name: value, of_name: gradients.pop(0)}
    for name, variable, gradient in zip(names, layer.trainable_variables, gradients):
        tensors["param/" + name] = variable
        tensors["d/" + name] = gradient
    tensors = {name: np.asarray(value) for name, value in tensors.items()}
    for name, value in tensors.items():
        assert value.dtype == np.float64, (name, value.dtype)

    leaves = [torch.tensor(tensors[name], requires_grad=True)
              for name in [*(n for n, _ in of_inputs), *("param/" + n for n in names)]]
    theirs = of_torch(layer, leaves[:len(inputs)], dict(zip(names, leaves[len(inputs):])), causal)
    their_gradients = torch.autograd.grad((theirs * torch.tensor(c)).sum(), leaves)
    for name, value in zip(["y_train", *(n for _, n in of_inputs), *("d/" + n for n in names)],
                           [theirs, *their_gradients]):
        torch.testing.assert_close(torch.tensor(tensors[name]), value, rtol=1e-12, atol=1e-12)

    case = {
        "layer": type(layer).__name__,
        "config": {key: value for key, value in layer.get_config().items()
                   if isinstance(value, (int, float, str, list, tuple))},
        "causal": causal,
        "rule": "gradients are of sum(y_train * c)",
        "made_with": f"keras {keras.__version__}, tensorflow {tf.__version__}, checked with torch {torch.__version__}, "
                     "float64",
    }
    return save(tensors, {"case": json.dumps(case)})


def main(folder):
    keras.config.set_floatx("float64")
    for number, (name, (make, shape, causal)) in enumerate(CASES.items()):
        data = record(make, shape, causal, np.random.default_rng(200 + number))
        with open(os.path.join(folder, f"layer_{name}.safetensors"), "wb") as file:
            file.write(data)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: make_attention.py FOLDER")
    main(sys.argv[1])
