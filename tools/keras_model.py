#!/usr/bin/env python3
"""Models of lockstep in Keras 3, and their weights back.

As a module:
    model = keras_model.load("w.json", "w.safetensors")     # a keras.Model that predicts the same
    keras_model.save(model, "trained.safetensors")          # for model.load_weights in C++

As a command, which exits with 1 after an error:
    keras_model.py load w.json w.safetensors w.keras
    keras_model.py save w.keras trained.safetensors

Needs keras with a backend (JAX, PyTorch or TensorFlow), numpy and safetensors. A slash in a layer's name is a dot in
Keras. RandomCutout, which Keras does not have, becomes Identity.
"""
import argparse
import sys

import keras
import numpy

from model_files import ModelFileError, crop_of, read_architecture, read_weights, write_weights

# Layers whose options are the arguments of Keras' class of the same name.
SAME = {"Add", "AveragePooling1D", "AveragePooling2D", "BatchNormalization", "Concatenate", "Conv1D", "Conv2D", "Dense",
        "DepthwiseConv2D", "Dropout", "ELU", "Embedding", "Flatten", "GaussianNoise", "GlobalAveragePooling1D",
        "GlobalAveragePooling2D", "GlobalMaxPooling1D", "GlobalMaxPooling2D", "LayerNormalization", "LeakyReLU",
        "MaxPooling1D", "MaxPooling2D", "Normalization", "RandomFlip", "RandomRotation", "RandomTranslation", "ReLU",
        "Rescaling", "Reshape", "SeparableConv2D", "Softmax", "SpatialDropout2D", "UpSampling2D"}
FUNCTIONS = {"GELU": "gelu", "LogSoftmax": "log_softmax", "ReLU6": "relu6", "SiLU": "silu", "Sigmoid": "sigmoid",
             "Softplus": "softplus", "Tanh": "tanh"}
ACTIVATIONS = {"elu", "leaky_relu", "relu", "softmax", *FUNCTIONS.values()}


@keras.saving.register_keras_serializable(package="lockstep")
class RandomCrop(keras.layers.RandomCrop):
    """Keras' layer leaves images unchanged outside training; lockstep's resizes the largest centered part, as Keras
    documents."""

    def call(self, inputs, training=True):
        if training:
            return super().call(inputs, training=True)
        top, left, height, width = crop_of(inputs.shape[1:], self.height, self.width)
        part = inputs[:, top:top + height, left:left + width, :]
        return keras.ops.image.resize(part, (self.height, self.width), interpolation="bilinear", antialias=False,
                                      data_format="channels_last")


def _output_padding(layer):
    """Keras' output_padding of a Conv2DTranspose; None if the output has the default extents."""
    config, given = layer["config"], []
    default = True
    for axis in (0, 1):
        size, stride = config["kernel_size"][axis], config["strides"][axis]
        extent = (size - 1) * config["dilation_rate"][axis] + 1
        before, after = layer["input_shapes"][0][axis], layer["output_shape"][axis]
        same = config["padding"] == "same"
        default &= after == (before * stride if same else (before - 1) * stride + max(extent, stride))
        given.append(after - (before - 1) * stride - extent + (2 * (extent // 2) if same else 0))
    return None if default else tuple(given)


def _layer(layer):
    """The Keras layer of one layer of an architecture."""
    kind, config, name = layer["class_name"], dict(layer["config"]), layer["name"].replace("/", ".")
    slope = config.pop("activation_negative_slope", None)
    if "activation" in config and config["activation"] not in ACTIVATIONS:
        raise ModelFileError(f"layer '{layer['name']}': the activation {config['activation']} is not one of Keras")
    if config.get("activation") == "leaky_relu" and slope != 0.2:
        config["activation"] = keras.layers.LeakyReLU(negative_slope=slope)
    for option in ("factor", "height_factor", "width_factor", "target_shape", "kernel_size", "strides", "dilation_rate",
                   "pool_size", "size"):
        if isinstance(config.get(option), list):
            config[option] = tuple(config[option])
    if kind in ("Conv1D", "MaxPooling1D", "AveragePooling1D"):
        config = {option: value[0] if isinstance(value, tuple) else value for option, value in config.items()}
    if kind == "BatchNormalization":
        config.pop("synchronized")  # of no effect at inference
    if kind == "Normalization":
        config = {"axis": -1}
    if kind == "ZeroPadding2D":
        top, bottom, left, right = config["padding"]
        return keras.layers.ZeroPadding2D(((top, bottom), (left, right)), name=name)
    if kind == "Conv2DTranspose":
        return keras.layers.Conv2DTranspose(**config, output_padding=_output_padding(layer), name=name)
    if kind == "RandomCrop":
        return RandomCrop(**config, name=name)
    if kind == "RandomCutout":
        return keras.layers.Identity(name=name)
    if kind in FUNCTIONS:
        return keras.layers.Activation(FUNCTIONS[kind], name=name)
    if kind in SAME:
        return getattr(keras.layers, kind)(**config, name=name)
    raise ModelFileError(f"layer '{layer['name']}': Keras has no layer {kind}")


def _variables(layer):
    """The variables of a Keras layer that lockstep stores, by their names there."""
    if isinstance(layer, keras.layers.Normalization):
        return {"mean": layer.adapt_mean, "variance": layer.adapt_variance}
    return {v.name: v for v in layer.weights if v.name not in ("seed_generator_state", "count")}


def load(architecture, weights):
    """A keras.Model with the layers of the file `architecture` (JSON) and the values of the file `weights`
    (safetensors). Raises ModelFileError if one of them is damaged, or they do not fit.

    >>> model = load("w.json", "w.safetensors")
    >>> model.predict(images)       # (examples, height, width, channels)
    """
    described = read_architecture(architecture)
    tensors = read_weights(weights, described)
    values = {"input": keras.Input(described["input_shape"])}
    for layer in described["layers"]:
        inputs = [values[source] for source in layer["inputs"]]
        try:
            built = _layer(layer)
            values[layer["name"]] = built(inputs if len(inputs) > 1 else inputs[0])
        except (TypeError, ValueError, KeyError) as error:
            raise ModelFileError(f"{architecture}: layer '{layer['name']}': {error}") from error
        shape = list(values[layer["name"]].shape[1:])
        if shape != layer["output_shape"]:
            raise ModelFileError(f"{architecture}: layer '{layer['name']}' has the output shape {shape} in Keras, but "
                                 f"{layer['output_shape']} in the file")
        variables = _variables(built)
        for parameter in layer["parameters"]:
            variable = variables.get(parameter["name"].rpartition("/")[2])
            if variable is None:
                raise ModelFileError(f"{architecture}: Keras' layer has no parameter '{parameter['name']}'")
            try:
                variable.assign(tensors[parameter["name"]].reshape(variable.shape))
            except ValueError as error:
                raise ModelFileError(f"{architecture}: parameter '{parameter['name']}' does not fit the layer's options: "
                                     f"{error}") from None
        if isinstance(built, keras.layers.Normalization):
            built.finalize_state()
    return keras.Model(values["input"], values[described["output"]], name=described["name"])


def save(model, weights):
    """Writes the weights of a Keras model as a safetensors file with the names of its layers, "conv2d/kernel". The
    layers of a model within the model have its name in front: "backbone/conv2d/kernel".

    >>> save(model, "trained.safetensors")      # C++: model.load_weights("trained.safetensors")
    """
    tensors = {}

    def add(layers, scope):
        for layer in layers:
            name = scope + layer.name.replace(".", "/")
            if isinstance(layer, keras.Model):
                add(layer.layers, name + "/")
                continue
            for variable_name, variable in _variables(layer).items():
                value = keras.ops.convert_to_numpy(variable)
                if isinstance(layer, keras.layers.Normalization):
                    value = value.reshape(-1)
                if f"{name}/{variable_name}" in tensors:
                    raise ModelFileError(f"two parameters have the name '{name}/{variable_name}'; name the layers")
                tensors[f"{name}/{variable_name}"] = numpy.asarray(value)

    add(model.layers, "")
    write_weights(weights, tensors)


def main():
    parser = argparse.ArgumentParser(description="Models of lockstep as Keras files, and their weights back.")
    commands = parser.add_subparsers(dest="command", required=True)
    to_keras = commands.add_parser("load", help="architecture and weights to a Keras file")
    for name in ("architecture", "weights", "keras_file"):
        to_keras.add_argument(name)
    from_keras = commands.add_parser("save", help="the weights of a Keras file")
    for name in ("keras_file", "weights"):
        from_keras.add_argument(name)
    given = parser.parse_args()
    try:
        if given.command == "load":
            load(given.architecture, given.weights).save(given.keras_file)
        else:
            save(keras.saving.load_model(given.keras_file, compile=False), given.weights)
    except (ModelFileError, OSError, ValueError) as error:
        sys.exit(f"keras_model: {error}")


if __name__ == "__main__":
    main()
