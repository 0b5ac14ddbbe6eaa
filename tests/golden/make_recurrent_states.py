#!/usr/bin/env python3
"""Writes data/recurrent_states.safetensors: recurrent layers of Keras in float64 with initial and returned states.

Stored for each layer NAME: NAME/x, the initial states NAME/initial/<number>, NAME/param/<parameter>, NAME/y, all results as one row
for each example, and for the loss sum(y * c) with NAME/c the gradients NAME/dx, NAME/d_initial/<number> and
NAME/d/<parameter>; for each network NAME the same without the initial states, with parameters numbered in its order.

    python3 -m venv venv && venv/bin/pip install torch keras safetensors
    KERAS_BACKEND=torch venv/bin/python make_recurrent_states.py data
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
COUNT = 3
MASK = np.array([[0, 1, 1, 0, 1], [1, 1, 0, 0, 0], [0, 0, 0, 0, 0]])  # of cases that begin with masked_
WORDS = MASK * np.arange(1, 16).reshape(COUNT, 5) % 7 * 1.0
CASES = {  # name: layer, (steps, features), whether there is an initial state
    "lstm": (lambda: L.LSTM(4, return_sequences=True, return_state=True), (5, 3), True),
    "lstm_last": (lambda: L.LSTM(3, return_state=True, go_backwards=True), (4, 2), False),
    "lstm_one_step": (lambda: L.LSTM(17), (1, 2), True),
    "gru": (lambda: L.GRU(5, return_state=True), (6, 3), True),
    "gru_before": (lambda: L.GRU(4, reset_after=False, return_sequences=True, return_state=True, go_backwards=True), (5, 3), True),
    "simple_rnn": (lambda: L.SimpleRNN(3, activation="elu", return_sequences=True, return_state=True), (4, 2), True),
    "masked_lstm": (lambda: L.LSTM(4, return_sequences=True, return_state=True), (5, 3), True),
    "masked_lstm_last": (lambda: L.LSTM(4), (5, 3), True),
    "masked_gru": (lambda: L.GRU(4, return_state=True, go_backwards=True), (5, 3), True),
    "masked_gru_before": (lambda: L.GRU(4, reset_after=False, return_sequences=True, return_state=True,
                                        zero_output_for_mask=True), (5, 3), True),
}


def row(results):
    """All results of an example, one after the other."""
    results = results if isinstance(results, (list, tuple)) else [results]
    return keras.ops.concatenate([keras.ops.reshape(r, (COUNT, -1)) for r in results], axis=1)


def encoder_decoder(source, target):
    """Padded words of the source; the decoder begins with the encoder's states."""
    _, h, c = L.LSTM(4, return_state=True)(L.Embedding(7, 3, mask_zero=True)(source))
    y = L.LSTM(4, return_sequences=True)(target, initial_state=[h, c])
    return L.Dense(2)(y)


def passes_mask(words):
    """The first result has the mask of the input."""
    y, h = L.GRU(3, return_sequences=True, return_state=True)(L.Embedding(7, 3, mask_zero=True)(words))
    return [L.GRU(2)(y), h]


def unmerged(words):
    return list(L.Bidirectional(L.GRU(3, return_sequences=True), merge_mode=None)(L.Embedding(7, 2, mask_zero=True)(words)))


def both_states(source, target):
    """Two bidirectional layers, the states of the first for the second."""
    y, *states = L.Bidirectional(L.LSTM(3, return_state=True), merge_mode="sum")(L.Dense(2)(source))
    z = L.Bidirectional(L.LSTM(3, return_sequences=True))(target, initial_state=states)
    return [y, *states, z]


def both_unmerged(x):
    return list(L.Bidirectional(L.LSTM(2, return_state=True), merge_mode=None)(L.Dense(2)(x)))


def features(*shape):
    return np.random.default_rng(59).normal(size=shape)


NETS = {  # name: function of symbolic inputs, their values
    "encoder_decoder": (encoder_decoder, [WORDS, features(COUNT, 3, 2)]),
    "passes_mask": (passes_mask, [WORDS]),
    "unmerged": (unmerged, [WORDS]),
    "both_states": (both_states, [features(COUNT, 4, 2), features(COUNT, 3, 2)]),
    "both_unmerged": (both_unmerged, [features(COUNT, 4, 2)]),
}


def assign_normal(variables, random):
    for variable in variables:
        variable.assign(random.normal(size=variable.shape) / 2)


def record(make, shape, starts, random, mask):
    layer = make()
    x = torch.tensor(random.normal(size=(COUNT, *shape)), requires_grad=True)
    states = [torch.tensor(random.normal(size=(COUNT, layer.units)), requires_grad=True)
              for _ in range((2 if isinstance(layer, L.LSTM) else 1) if starts else 0)]
    layer.build((COUNT, *shape))
    assign_normal(layer.weights, random)
    y = row(layer(x, training=True, **({"initial_state": states} if starts else {}),
                  **({} if mask is None else {"mask": torch.tensor(mask > 0)})))
    c = torch.tensor(random.normal(size=tuple(y.shape)))
    variables = layer.trainable_variables
    gradients = torch.autograd.grad((y * c).sum(), [x, *states, *(v.value for v in variables)])
    tensors = {"x": x, "c": c, "y": y, "dx": gradients[0]}
    for number, state in enumerate(states):
        tensors |= {f"initial/{number}": state, f"d_initial/{number}": gradients[1 + number]}
    for variable, gradient in zip(variables, gradients[1 + len(states):]):
        tensors |= {"param/" + variable.name: variable.value, "d/" + variable.name: gradient}
    return tensors


def record_net(make, inputs, random):
    symbols = [keras.Input(x.shape[1:], batch_size=COUNT) for x in inputs]
    net = keras.Model(symbols, row(make(*symbols)))
    assign_normal(net.trainable_variables, random)
    y = net([torch.tensor(x) for x in inputs], training=True)
    c = torch.tensor(random.normal(size=tuple(y.shape)))
    values = [v.value for v in net.trainable_variables]
    tensors = {"x": torch.tensor(np.concatenate([x.reshape(COUNT, -1) for x in inputs], 1)), "c": c, "y": y}
    for number, (value, gradient) in enumerate(zip(values, torch.autograd.grad((y * c).sum(), values))):
        tensors |= {f"param/{number}": value, f"d/{number}": gradient}
    return tensors


def main(folder):
    keras.config.set_floatx("float64")
    tensors = {"mask": MASK.astype(np.float64)}
    for number, name in enumerate([*CASES, *NETS]):
        random = np.random.default_rng(410 + number)
        if name in NETS:
            found = record_net(*NETS[name], random)
        else:
            found = record(*CASES[name], random, MASK if name.startswith("masked_") else None)
        for part, value in found.items():
            value = value.detach().numpy()
            assert value.dtype == np.float64, (name, part, value.dtype)
            tensors[f"{name}/{part}"] = np.ascontiguousarray(value)
    case = {"rule": "gradients are of sum(y * c)",
            "made_with": f"keras {keras.__version__}, torch {torch.__version__.split('+')[0]}, float64"}
    with open(os.path.join(folder, "recurrent_states.safetensors"), "wb") as file:
        file.write(save(tensors, {"case": json.dumps(case)}))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: make_recurrent_states.py FOLDER")
    main(sys.argv[1])
