#!/usr/bin/env python3
"""Writes data/recurrent.safetensors: recurrent layers of Keras in float64, one call each.

Stored for each case NAME: NAME/x, NAME/param/<parameter>, NAME/y, and for the loss sum(y * c) with NAME/c the gradients
NAME/dx and NAME/d/<parameter>. Parameters of Bidirectional begin with forward_ or backward_.

    python3 -m venv venv && venv/bin/pip install torch keras safetensors
    KERAS_BACKEND=torch venv/bin/python make_recurrent.py data
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
CASES = {  # name: layer, (steps, features)
    "lstm": (lambda: L.LSTM(5), (7, 3)),
    "lstm_sequences_backwards": (lambda: L.LSTM(4, return_sequences=True, go_backwards=True), (5, 2)),
    "lstm_activations": (lambda: L.LSTM(3, activation="gelu", recurrent_activation="relu6", use_bias=False), (4, 2)),
    "lstm_one_step": (lambda: L.LSTM(17, activation="relu"), (1, 6)),
    "gru": (lambda: L.GRU(5), (7, 3)),
    "gru_sequences": (lambda: L.GRU(18, return_sequences=True, use_bias=False), (3, 4)),
    "gru_backwards": (lambda: L.GRU(3, go_backwards=True, recurrent_activation="silu"), (6, 2)),
    "gru_before": (lambda: L.GRU(5, reset_after=False), (7, 3)),
    "gru_before_sequences": (lambda: L.GRU(4, reset_after=False, return_sequences=True, go_backwards=True,
                                           activation="softplus", recurrent_activation="gelu"), (5, 2)),
    "gru_before_one_step": (lambda: L.GRU(3, reset_after=False, use_bias=False), (1, 2)),
    "simple_rnn": (lambda: L.SimpleRNN(5), (7, 3)),
    "simple_rnn_sequences": (lambda: L.SimpleRNN(4, activation="elu", return_sequences=True, go_backwards=True,
                                                 use_bias=False), (5, 2)),
    "bidirectional": (lambda: L.Bidirectional(L.LSTM(4, return_sequences=True)), (5, 3)),
    "bidirectional_sum": (lambda: L.Bidirectional(L.GRU(3), merge_mode="sum"), (5, 3)),
    "masked_lstm": (lambda: L.LSTM(4, return_sequences=True), (5, 3)),
    "masked_gru": (lambda: L.GRU(4, go_backwards=True), (5, 3)),
    "masked_gru_before": (lambda: L.GRU(4, reset_after=False, return_sequences=True, zero_output_for_mask=True), (5, 3)),
}
COUNT = 3
MASK = np.array([[0, 1, 1, 0, 1], [1, 1, 0, 0, 0], [0, 0, 0, 0, 0]])  # of cases that begin with masked_
NETS = {  # name: layers, inputs; parameters are numbered in the order of the network
    "masking": (lambda: [L.Masking(0.5), L.SimpleRNN(3)],
                np.where(MASK[:, :, None] > 0, np.random.default_rng(59).normal(size=(COUNT, 5, 2)), 0.5)),
    "words": (lambda: [L.Embedding(7, 3, mask_zero=True), L.Dense(4, activation="tanh"),
                       L.Bidirectional(L.LSTM(3, return_sequences=True)), L.GRU(2)],
              MASK * np.arange(1, 16).reshape(COUNT, 5) % 7 * 1.0),
    "mean_of_words": (lambda: [L.Embedding(7, 3, mask_zero=True), L.GlobalAveragePooling1D(), L.Dense(2)],
                      (MASK * np.arange(1, 16).reshape(COUNT, 5) % 7 * 1.0)[:2]),
}


def sequential(make, inputs):
    return keras.Sequential([keras.Input(inputs.shape[1:]), *make()])


def record_net(net, inputs, random):
    """A network with one input or several, whose rows are then one row for each example."""
    for variable in net.trainable_variables:
        variable.assign(random.normal(size=variable.shape) / 2)
    values = [torch.tensor(x) for x in inputs]
    y = net(values if len(values) > 1 else values[0], training=True)
    c = random.normal(size=tuple(y.shape))
    values = [v.value for v in net.trainable_variables]
    gradients = torch.autograd.grad((y * torch.tensor(c)).sum(), values)
    row = inputs[0] if len(inputs) == 1 else np.concatenate([x.reshape(len(x), -1) for x in inputs], 1)
    tensors = {"x": torch.tensor(row), "c": torch.tensor(c), "y": y}
    for number, (value, gradient) in enumerate(zip(values, gradients)):
        tensors |= {f"param/{number}": value, f"d/{number}": gradient}
    return {name: value.detach().numpy() for name, value in tensors.items()}


def record(make, shape, random, mask=None):
    layer = make()
    x = torch.tensor(random.normal(size=(COUNT, *shape)), requires_grad=True)
    layer.build((COUNT, *shape))
    for variable in layer.weights:
        variable.assign(random.normal(size=variable.shape) / 2)
    y = layer(x, training=True, **({} if mask is None else {"mask": torch.tensor(mask > 0)}))
    c = random.normal(size=tuple(y.shape))
    variables = layer.trainable_variables
    gradients = torch.autograd.grad((y * torch.tensor(c)).sum(), [x, *(v.value for v in variables)])
    tensors = {"x": x, "c": torch.tensor(c), "y": y, "dx": gradients[0]}
    for variable, gradient in zip(variables, gradients[1:]):
        name = next((d for d in ("forward_", "backward_") if d in variable.path), "") + variable.name
        tensors["param/" + name] = variable.value
        tensors["d/" + name] = gradient
    return {name: value.detach().numpy() for name, value in tensors.items()}


def main(folder):
    keras.config.set_floatx("float64")
    tensors = {}
    for number, (name, (make, shape)) in enumerate((CASES | NETS).items()):
        random = np.random.default_rng(60 + number)
        if name in NETS:
            found = record_net(sequential(make, shape), [shape], random)
        else:
            found = record(make, shape, random, MASK if name.startswith("masked_") else None)
        for part, value in found.items():
            assert value.dtype == np.float64, (name, part, value.dtype)
            tensors[f"{name}/{part}"] = np.ascontiguousarray(value)
    tensors["mask"] = MASK.astype(np.float64)
    case = {"rule": "gradients are of sum(y * c)",
            "made_with": f"keras {keras.__version__}, torch {torch.__version__.split('+')[0]}, float64"}
    with open(os.path.join(folder, "recurrent.safetensors"), "wb") as file:
        file.write(save(tensors, {"case": json.dumps(case)}))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: make_recurrent.py FOLDER")
    main(sys.argv[1])
