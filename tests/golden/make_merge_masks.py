#!/usr/bin/env python3
"""Writes data/merge_masks.safetensors: merging layers of Keras in float64 whose operands have masks.

Stored for each network NAME as in make_recurrent_states.py: NAME/x, all inputs as one row for each example, NAME/param/<number>,
NAME/y, all outputs as one row, and for the loss sum(y * c) with NAME/c the gradients NAME/d/<number>.

    python3 -m venv venv && venv/bin/pip install torch keras safetensors
    KERAS_BACKEND=torch venv/bin/python make_merge_masks.py data
"""

import json
import os
import sys

from make_recurrent_states import L, WORDS, features, keras, np, record_net, save, torch

OTHERS = np.array([[3, 0, 2, 0, 0], [0, 5, 6, 0, 1], [0, 0, 4, 4, 0]]) * 1.0


def words(x):
    return L.Embedding(7, 3, mask_zero=True)(x)


def both(merged):
    """All steps, and what a layer computes that reads the mask."""
    return [L.Flatten()(merged), L.GRU(2)(merged)]


def with_plain(rule):
    """The last operand has no mask."""
    return lambda a, b, x: both(rule()([words(a), words(b), L.Dense(3)(x)]))


def plain_first(x, a):
    return both(L.Maximum()([L.Dense(3)(x), words(a)]))


def gate(a):
    x = words(a)
    return both(L.Multiply()([x, L.Dense(3, activation="sigmoid")(x)]))


def pair(rule):
    return lambda a, b: both(rule()([words(a), words(b)]))


PLAIN = features(*WORDS.shape, 2)
NETS = {  # name: function of symbolic inputs, their values
    "multiply": (pair(L.Multiply), [WORDS, OTHERS]),
    "maximum": (pair(L.Maximum), [WORDS, OTHERS]),
    "minimum": (pair(L.Minimum), [WORDS, OTHERS]),
    "multiply_plain": (with_plain(L.Multiply), [WORDS, OTHERS, PLAIN]),
    "maximum_plain": (with_plain(L.Maximum), [WORDS, OTHERS, PLAIN]),
    "minimum_plain": (with_plain(L.Minimum), [WORDS, OTHERS, PLAIN]),
    "plain_first": (plain_first, [PLAIN, WORDS]),
    "gate": (gate, [WORDS]),
}


def main(folder):
    keras.config.set_floatx("float64")
    tensors = {}
    for number, (name, net) in enumerate(NETS.items()):
        for part, value in record_net(*net, np.random.default_rng(520 + number)).items():
            value = value.detach().numpy()
            assert value.dtype == np.float64, (name, part, value.dtype)
            tensors[f"{name}/{part}"] = np.ascontiguousarray(value)
    case = {"rule": "gradients are of sum(y * c)",
            "made_with": f"keras {keras.__version__}, torch {torch.__version__.split('+')[0]}, float64"}
    with open(os.path.join(folder, "merge_masks.safetensors"), "wb") as file:
        file.write(save(tensors, {"case": json.dumps(case)}))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: make_merge_masks.py FOLDER")
    main(sys.argv[1])
