#!/usr/bin/env python3
"""Writes data/attention_masks.safetensors: networks of Keras in float64 in which attention reads masks of padded steps.

Stored for each case NAME: NAME/x, NAME/param/<number>, NAME/y, and for the loss sum(y * c) with NAME/c the gradients
NAME/d/<number>. Parameters are numbered in the order of the network; x of several inputs is one row for each example.

    python3 -m venv venv && venv/bin/pip install torch keras safetensors
    KERAS_BACKEND=torch venv/bin/python make_attention_masks.py data
"""

import json
import os
import sys

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras
import numpy as np
import torch
from safetensors.numpy import save

from make_recurrent import record_net  # which lets Keras compute in float64

L = keras.layers
# Padding at the end, at the beginning and between; a whole sentence of it.
MASK = np.array([[1, 1, 1, 0, 0], [0, 1, 0, 1, 1], [0, 0, 0, 0, 0]])
WORDS = MASK * (np.arange(15).reshape(3, 5) % 6 + 1.0)
OTHER = np.array([[3, 0, 5, 1, 0], [0, 6, 2, 4, 1], [1, 2, 0, 3, 4]]) * 1.0
QUERIES = np.array([[5, 0, 1, 2], [0, 3, 6, 0], [4, 4, 1, 0]]) * 1.0


def attended(layer, *operands, causal=False):
    """The result that is computed with the probabilities, since Keras' other way computes them in float32, and leaves
    rows without any key to the backend."""
    y, _ = layer(*operands, use_causal_mask=causal, return_attention_scores=True)
    return y


def embedded(x, features=3):
    return L.Embedding(7, features, mask_zero=True)(x)


def own(layer, causal=False):
    def make(x):
        e = embedded(x)
        return attended(layer(), e, e, causal=causal)
    return make


def mean(x):
    e = embedded(x)
    return L.Dense(2)(L.GlobalAveragePooling1D()(attended(L.MultiHeadAttention(2, 4), e, e)))


def allowed(x):
    """As `attention_mask`: a number is another one than 0."""
    return keras.ops.not_equal(x, 0)


def explicit(words, pairs):
    """A mask of pairs, the mask of padded steps and the causal one."""
    e = embedded(words)
    y, _ = L.MultiHeadAttention(2, 4)(e, e, attention_mask=allowed(pairs), use_causal_mask=True,
                                      return_attention_scores=True)
    return y


def explicit_grouped(query, value, pairs):
    """Without the mask of the query, so that the mean has all steps."""
    q, v = L.Dense(3)(query), L.Embedding(7, 3, mask_zero=True)(value)
    y, _ = L.GroupQueryAttention(4, 4, 2)(q, v, attention_mask=allowed(pairs), return_attention_scores=True)
    return y


def explicit_three(query, value, key, pairs):
    y, _ = L.MultiHeadAttention(2, 3, value_dim=2, use_bias=False)(
        L.Dense(3)(query), L.Dense(2)(value), L.Dense(4)(key), attention_mask=allowed(pairs),
        return_attention_scores=True)
    return y


def cross(query, value, key):
    """With three masks."""
    return L.GlobalAveragePooling1D()(attended(L.MultiHeadAttention(2, 4), embedded(query), embedded(value, 2),
                                               embedded(key)))


def features(*shape):
    return np.random.default_rng(59).normal(size=shape)


def pairs(queries, keys):
    """Rows without any pair among them; a 2 counts, too."""
    mask = np.random.default_rng(61).integers(0, 3, size=(3, queries, keys)) * 1.0
    mask[0, 1] = 0
    return mask


CASES = {  # name: function of symbolic inputs, their values
    "attention": (own(lambda: L.MultiHeadAttention(2, 4)), [WORDS]),
    "attention_causal": (own(lambda: L.MultiHeadAttention(2, 4, value_dim=2), causal=True), [WORDS]),
    "grouped_attention": (own(lambda: L.GroupQueryAttention(4, 4, 2, use_bias=False), causal=True), [WORDS]),
    "mean_of_attention": (mean, [WORDS[:2]]),  # the mean of no step is NaN in Keras
    "cross_attention": (cross, [QUERIES, WORDS, OTHER]),
    "explicit": (explicit, [WORDS, pairs(5, 5)]),
    "explicit_grouped": (explicit_grouped, [features(3, 4, 2), WORDS, pairs(4, 5)]),
    "explicit_three": (explicit_three, [features(3, 4, 2), features(3, 5, 2), features(3, 5, 3), pairs(4, 5)]),
}


def main(folder):
    keras.config.set_floatx("float64")
    tensors = {}
    for number, (name, (make, inputs)) in enumerate(CASES.items()):
        symbols = [keras.Input(x.shape[1:]) for x in inputs]
        net = keras.Model(symbols, make(*symbols))
        found = record_net(net, inputs, np.random.default_rng(260 + number))
        if name in ("attention", "attention_causal"):  # no key for a padded step: the bias of the output alone
            bias = found[f"param/{len(net.trainable_variables) - 1}"]
            np.testing.assert_array_equal(found["y"][MASK == 0], np.broadcast_to(bias, found["y"][MASK == 0].shape))
        for part, value in found.items():
            assert value.dtype == np.float64, (name, part, value.dtype)
            tensors[f"{name}/{part}"] = np.ascontiguousarray(value)
    case = {"rule": "gradients are of sum(y * c)",
            "made_with": f"keras {keras.__version__}, torch {torch.__version__.split('+')[0]}, float64"}
    with open(os.path.join(folder, "attention_masks.safetensors"), "wb") as file:
        file.write(save(tensors, {"case": json.dumps(case)}))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: make_attention_masks.py FOLDER")
    main(sys.argv[1])
