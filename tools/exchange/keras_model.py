#!/usr/bin/env python3
"""Models of lockstep in Keras 3, and their weights back.

As a module:
    model = keras_model.load("w.json", "w.safetensors")     # a keras.Model that predicts the same
    keras_model.save(model, "trained.safetensors")          # for model.load_weights in C++

As a command, which exits with 1 after an error:
    keras_model.py load w.json w.safetensors w.keras
    keras_model.py save w.keras trained.safetensors

Needs keras with a backend (JAX, PyTorch or TensorFlow), numpy and safetensors. Keras has no slash in a layer's name, and
PyTorch no dot: they become ">" and "-dot-". A layer with tied weights gets a copy of them. RandomCutout, which Keras does not have, becomes Identity. Keras has no
convolutions with both strides and dilation above 1.
"""
import argparse
import importlib.util
import math
import os
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent))
from model_files import (ModelFileError, crop_of, function_value, read_architecture, read_weights, reason,  # noqa: E402
                         window, write_weights)


def _arguments():
    parser = argparse.ArgumentParser(description="Models of lockstep as Keras files, and their weights back.")
    commands = parser.add_subparsers(dest="command", required=True)
    to_keras = commands.add_parser("load", help="architecture and weights to a Keras file")
    for name in ("architecture", "weights", "keras_file"):
        to_keras.add_argument(name)
    from_keras = commands.add_parser("save", help="the weights of a Keras file")
    for name in ("keras_file", "weights"):
        from_keras.add_argument(name)
    return parser.parse_args()


if __name__ == "__main__":
    given = _arguments()  # before the imports, since --help needs no packages
if "keras" not in sys.modules and "KERAS_BACKEND" not in os.environ and not importlib.util.find_spec("tensorflow"):
    # TensorFlow is Keras' default, also where it is not installed.
    for backend in ("jax", "torch"):
        if importlib.util.find_spec(backend):
            os.environ["KERAS_BACKEND"] = backend
            break
try:
    import keras
    import numpy
    import safetensors  # noqa: F401
except ImportError as missing:
    if __name__ != "__main__":
        raise
    sys.exit(f"keras_model: {missing}; install keras, numpy, safetensors and one of jax, torch and tensorflow")

# Layers whose options are the arguments of Keras' class of the same name.
SAME = {"Add", "Average", "AveragePooling1D", "AveragePooling2D", "AveragePooling3D", "BatchNormalization", "CenterCrop", "Concatenate",
        "Conv1D", "Conv2D", "Conv3D", "Dense", "DepthwiseConv2D", "Dot", "Dropout", "ELU", "Embedding", "Flatten", "GaussianNoise",
        "GlobalAveragePooling1D", "GlobalAveragePooling2D", "GlobalAveragePooling3D", "GlobalMaxPooling1D", "GlobalMaxPooling2D",
        "GlobalMaxPooling3D", "GRU",
        "GroupNormalization", "LayerNormalization", "LeakyReLU", "LSTM", "Maximum", "MaxPooling1D", "MaxPooling2D", "MaxPooling3D", "Minimum",
        "Multiply",
        "Normalization", "Permute", "PReLU", "RandomBrightness", "RandomContrast", "RandomFlip", "RandomRotation",
        "RandomTranslation", "RandomZoom", "ReLU", "RepeatVector", "Rescaling", "Reshape", "Resizing",
        "RMSNormalization",
        "SeparableConv2D", "SimpleRNN", "Softmax", "SpatialDropout2D", "Subtract", "UpSampling2D"}
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


class _InsideMean:
    """The mean over the part of each window that is inside the image. Keras' layer also counts the padding with PyTorch as
    backend, if it is uneven."""

    def call(self, inputs):
        pads = [window(extent, size, stride, 1, self.padding)[1:]
                for extent, size, stride in zip(inputs.shape[1:-1], self.pool_size, self.strides)]

        def pool(x):
            return keras.ops.average_pool(keras.ops.pad(x, [(0, 0), *pads, (0, 0)]), self.pool_size, self.strides, "valid",
                                          "channels_last")
        return pool(inputs) / pool(keras.ops.ones_like(inputs))


@keras.saving.register_keras_serializable(package="lockstep")
class AveragePooling1D(_InsideMean, keras.layers.AveragePooling1D):
    pass


@keras.saving.register_keras_serializable(package="lockstep")
class AveragePooling2D(_InsideMean, keras.layers.AveragePooling2D):
    pass


@keras.saving.register_keras_serializable(package="lockstep")
class AveragePooling3D(_InsideMean, keras.layers.AveragePooling3D):
    pass


INSIDE_MEANS = {"AveragePooling1D": AveragePooling1D, "AveragePooling2D": AveragePooling2D, "AveragePooling3D": AveragePooling3D}


@keras.saving.register_keras_serializable(package="lockstep")
class SliceAxis(keras.layers.Layer):
    """x[:, begin:end] along `axis`, where axis 0 is the batch."""

    def __init__(self, axis, begin, end, **options):
        super().__init__(**options)
        self.axis, self.begin, self.end = axis, begin, end

    def call(self, inputs):
        return inputs[(slice(None),) * self.axis + (slice(self.begin, self.end),)]

    def get_config(self):
        return {**super().get_config(), "axis": self.axis, "begin": self.begin, "end": self.end}


@keras.saving.register_keras_serializable(package="lockstep")
class RowPart(keras.layers.Layer):
    """A part of a row with another shape."""

    def __init__(self, target_shape, offset, **options):
        super().__init__(**options)
        self.target_shape, self.offset = tuple(target_shape), offset

    def call(self, inputs):
        size = math.prod(self.target_shape)
        return keras.ops.reshape(inputs[:, self.offset:self.offset + size], (-1, *self.target_shape))

    def get_config(self):
        return {**super().get_config(), "target_shape": self.target_shape, "offset": self.offset}


@keras.saving.register_keras_serializable(package="lockstep")
class InputOrder(keras.layers.Layer):
    """A recurrent layer that goes backwards, with the steps of its output in the order of the input."""

    def __init__(self, layer, **options):
        super().__init__(**options)
        self.layer = layer if isinstance(layer, keras.Layer) else keras.layers.deserialize(layer)

    def build(self, input_shape):
        self.layer.build(input_shape)

    def call(self, inputs, training=None):
        return keras.ops.flip(self.layer(inputs, training=training), axis=1)

    def get_config(self):
        return {**super().get_config(), "layer": keras.layers.serialize(self.layer)}


@keras.saving.register_keras_serializable(package="lockstep")
class TiedDense(keras.layers.Layer):
    """A product with the transposed matrix of another layer, of which this layer has a copy."""

    def __init__(self, shape, **options):
        super().__init__(**options)
        self.matrix = self.add_weight(shape=tuple(shape), name="matrix", trainable=False)

    def call(self, inputs):
        return keras.ops.matmul(inputs, keras.ops.transpose(self.matrix))

    def get_config(self):
        return {**super().get_config(), "shape": tuple(self.matrix.shape)}


@keras.saving.register_keras_serializable(package="lockstep")
class Function(keras.layers.Layer):
    """A function of lockstep, as a layer or as an activation."""

    OPERATIONS = {name: getattr(keras.ops, name) for name in (
        "abs", "erf", "exp", "expm1", "log", "log1p", "maximum", "minimum", "sigmoid", "softplus", "sqrt", "tanh", "where")}
    OPERATIONS |= {"stop": keras.ops.stop_gradient, "tensor": lambda value, like: value,
                   "sum": lambda x: keras.ops.sum(x, axis=-1, keepdims=True),
                   "largest": lambda x: keras.ops.max(x, axis=-1, keepdims=True)}

    def __init__(self, formula, nodes, **options):
        super().__init__(**options)
        self.formula, self.nodes = formula, nodes

    def call(self, inputs):
        return function_value(self.nodes, inputs, self.OPERATIONS)

    def get_config(self):
        return {**super().get_config(), "formula": self.formula, "nodes": self.nodes}


class _Blocks(keras.layers.Layer):
    """A pixel's channels are (row in the block, column in the block, channel), as in tf.nn.depth_to_space."""

    def __init__(self, block_size, **options):
        super().__init__(**options)
        self.block_size = block_size

    def get_config(self):
        return {**super().get_config(), "block_size": self.block_size}


@keras.saving.register_keras_serializable(package="lockstep")
class DepthToSpace(_Blocks):
    def call(self, inputs):
        height, width, channels = inputs.shape[1:]
        size = self.block_size
        blocks = keras.ops.reshape(inputs, (-1, height, width, size, size, channels // size**2))
        return keras.ops.reshape(keras.ops.transpose(blocks, (0, 1, 3, 2, 4, 5)),
                                 (-1, height * size, width * size, channels // size**2))


@keras.saving.register_keras_serializable(package="lockstep")
class SpaceToDepth(_Blocks):
    def call(self, inputs):
        height, width, channels = inputs.shape[1:]
        size = self.block_size
        blocks = keras.ops.reshape(inputs, (-1, height // size, size, width // size, size, channels))
        return keras.ops.reshape(keras.ops.transpose(blocks, (0, 1, 3, 2, 4, 5)),
                                 (-1, height // size, width // size, channels * size**2))


@keras.saving.register_keras_serializable(package="lockstep")
class PositionEmbedding(keras.layers.Layer):
    """Learned vectors of the steps, added to them."""

    def __init__(self, sequence_length, **options):
        super().__init__(**options)
        self.sequence_length = sequence_length

    def build(self, input_shape):
        self.embeddings = self.add_weight(shape=(self.sequence_length, input_shape[-1]), name="embeddings")

    def call(self, inputs):
        return inputs + self.embeddings[:inputs.shape[1]]

    def get_config(self):
        return {**super().get_config(), "sequence_length": self.sequence_length}


class _Rotary:
    """Attention with rotary positions."""

    def __init__(self, max_wavelength, scaling_factor, pairs, **options):
        super().__init__(**options)
        self.rotary = {"max_wavelength": max_wavelength, "scaling_factor": scaling_factor, "pairs": pairs}

    def _turned(self, x):
        """x: (batch, steps, heads, size)"""
        ops, (steps, heads, size) = keras.ops, x.shape[1:]
        frequency = self.rotary["max_wavelength"] ** (-numpy.arange(0, size, 2) / size)
        angle = numpy.arange(steps)[:, None] / self.rotary["scaling_factor"] * frequency
        axis = -1 if self.rotary["pairs"] else -2
        angle = ops.cast(numpy.expand_dims(angle, (1, axis)), x.dtype)
        a, b = ops.split(ops.reshape(x, (-1, steps, heads, *((size // 2, 2) if axis == -1 else (2, size // 2)))), 2, axis=axis)
        cosine, sine = ops.cos(angle), ops.sin(angle)
        return ops.reshape(ops.concatenate([a * cosine - b * sine, b * cosine + a * sine], axis=axis),
                           (-1, steps, heads, size))

    def _compute_attention(self, query, key, *arguments, **options):
        return super()._compute_attention(self._turned(query), self._turned(key), *arguments, **options)

    def get_config(self):
        return {**super().get_config(), **self.rotary}


@keras.saving.register_keras_serializable(package="lockstep")
class RotaryAttention(_Rotary, keras.layers.MultiHeadAttention):
    pass


@keras.saving.register_keras_serializable(package="lockstep")
class GroupedRotaryAttention(_Rotary, keras.layers.GroupQueryAttention):
    pass


# Layers of this file.
OWN = {"Function": Function, "PositionEmbedding": PositionEmbedding, "RandomCrop": RandomCrop, "SliceAxis": SliceAxis, "DepthToSpace": DepthToSpace, "SpaceToDepth": SpaceToDepth, "InputLayer": RowPart}
# Attention without and with rotary positions.
ATTENTION = {"MultiHeadAttention": (keras.layers.MultiHeadAttention, RotaryAttention),
             "GroupedQueryAttention": (keras.layers.GroupQueryAttention, GroupedRotaryAttention)}


def _output_padding(layer):
    """Keras' output_padding of a transposed convolution; None if the output has the default extents."""
    config, given = layer["config"], []
    default = True
    for axis in range(len(config["kernel_size"])):
        size, stride = config["kernel_size"][axis], config["strides"][axis]
        extent = (size - 1) * config["dilation_rate"][axis] + 1
        before, after = layer["input_shapes"][0][axis], layer["output_shape"][axis]
        same = config["padding"] == "same"
        default &= after == (before * stride if same else (before - 1) * stride + max(extent, stride))
        given.append(after - (before - 1) * stride - extent + (2 * (extent // 2) if same else 0))
    return None if default else tuple(given)


def _name_in_keras(name):
    return name.replace("/", ">").replace(".", "-dot-")


def _name_in_lockstep(name):
    return name.replace(">", "/").replace("-dot-", ".")


def _layer(layer):
    """The Keras layer of one layer of an architecture."""
    kind, config, name = layer["class_name"], dict(layer["config"]), _name_in_keras(layer["name"])
    slope = config.pop("activation_negative_slope", None)
    if config.get("activation") == "Function":
        config["activation"] = Function(config.pop("activation_formula"), config.pop("activation_nodes"))
    elif "activation" in config and config["activation"] not in ACTIVATIONS:
        raise ModelFileError(f"layer '{layer['name']}': the activation {config['activation']} is not one of Keras")
    if config.get("recurrent_activation", "sigmoid") not in ACTIVATIONS:
        raise ModelFileError(f"layer '{layer['name']}': the activation {config['recurrent_activation']} is not one of Keras")
    if config.get("activation") == "leaky_relu" and slope != 0.2:
        config["activation"] = keras.layers.LeakyReLU(negative_slope=slope)
    slope = config.pop("recurrent_activation_negative_slope", 0.2)
    if config.get("recurrent_activation") == "leaky_relu" and slope != 0.2:
        config["recurrent_activation"] = keras.layers.LeakyReLU(negative_slope=slope)
    if "results" in config or "operands" in config:
        raise ModelFileError(f"layer '{layer['name']}' has states among its results or operands, which have no form in the "
                             "file; save a model without return_state and initial_state")
    if config.pop("output_order", 1) < 0:
        return InputOrder(getattr(keras.layers, kind)(**config), name=name)
    for option in ("factor", "height_factor", "width_factor", "target_shape", "kernel_size", "strides", "dilation_rate",
                   "pool_size", "size", "dims", "padding", "cropping", "axes", "value_range"):
        if isinstance(config.get(option), list):
            config[option] = tuple(config[option])
    if kind in ("Conv1D", "Conv1DTranspose", "MaxPooling1D", "AveragePooling1D"):
        config = {option: value[0] if isinstance(value, tuple) else value for option, value in config.items()}
    if kind == "BatchNormalization":
        config.pop("synchronized")  # of no effect at inference
    if kind == "Normalization":
        config = {"axis": -1}
    if kind in ("ZeroPadding2D", "Cropping2D"):
        top, bottom, left, right = config["padding" if kind == "ZeroPadding2D" else "cropping"]
        return getattr(keras.layers, kind)(((top, bottom), (left, right)), name=name)
    if kind in ("ZeroPadding1D", "Cropping1D"):
        return getattr(keras.layers, kind)(**config, name=name)
    if kind == "UpSampling1D":
        return keras.layers.UpSampling1D(config["size"][0], name=name)
    if kind == "Conv1DTranspose":
        padding = _output_padding(layer)
        return keras.layers.Conv1DTranspose(**config, output_padding=padding and padding[0], name=name)
    if kind == "Conv2DTranspose":
        return keras.layers.Conv2DTranspose(**config, output_padding=_output_padding(layer), name=name)
    if kind == "RandomZoom" and config.pop("keeps_aspect"):
        config["width_factor"] = None
    if kind in ATTENTION:
        del config["use_causal_mask"]  # an argument of the call, as attention_mask
        config.pop("attention_mask", None)
        config["sliding_window"] = config["sliding_window"] or None
        plain, rotary = ATTENTION[kind]
        if config["max_wavelength"]:
            return rotary(**config, name=name)
        for option in ("max_wavelength", "scaling_factor", "pairs"):
            del config[option]
        return plain(**config, name=name)
    if kind in OWN:
        return OWN[kind](**config, name=name)
    if kind == "RandomCutout":
        return keras.layers.Identity(name=name)
    if kind in INSIDE_MEANS and keras.backend.backend() == "torch":
        return INSIDE_MEANS[kind](**config, name=name)
    if kind in FUNCTIONS:
        return keras.layers.Activation(FUNCTIONS[kind], name=name)
    if kind in SAME:
        return getattr(keras.layers, kind)(**config, name=name)
    raise ModelFileError(f"layer '{layer['name']}': Keras has no layer {kind}")


def _variables(layer):
    """The variables of a Keras layer that lockstep stores, by their names there."""
    if isinstance(layer, keras.layers.Normalization):
        return {"mean": layer.adapt_mean, "variance": layer.adapt_variance}
    if isinstance(layer, TiedDense):
        return {}
    found = {}
    within = isinstance(layer, tuple(plain for plain, _ in ATTENTION.values()))  # "query/kernel"
    for v in layer.weights:
        if v.name in ("seed_generator_state", "count"):
            continue
        name = "/".join(v.path.split("/")[-2:]) if within else v.name
        if name in found:
            raise ModelFileError(f"layer '{layer.name}' has two variables called '{name}', as no layer of lockstep; split it")
        found[name] = v
    return found


def _built(layer, inputs, tensors, layers):
    """The output of a layer, whose variables get their values; `layers` are those before it, and gets this one. Raises
    ModelFileError."""
    where = f"layer '{layer['name']}'"
    try:
        if layer["class_name"] == "TiedDense":
            matrix = tensors[layers[layer["shared_with"]][1]["parameters"][0]["name"]]
            built = TiedDense(matrix.shape, name=_name_in_keras(layer["name"]))
            built.matrix.assign(matrix)
        elif layer["shared_with"]:
            built, layer = layers[layer["shared_with"]][0], {**layer, "parameters": None}
        else:
            built = _layer(layer)
            layers[layer["name"]] = built, layer
        if layer["class_name"] in ATTENTION:
            allowed = None
            if "attention_mask" in layer["config"]:
                *inputs, allowed = inputs
                allowed = keras.ops.not_equal(allowed, 0)
            # Rows without any key are 0 if the probabilities are computed; else the backend decides.
            output = built(*(inputs + inputs[-1:])[:max(2, len(inputs))], attention_mask=allowed,
                           use_causal_mask=layer["config"]["use_causal_mask"],
                           return_attention_scores=allowed is not None)
            output = output[0] if allowed is not None else output
        else:
            output = built(inputs if len(inputs) > 1 else inputs[0])
    except ModelFileError:
        raise
    except Exception as error:  # Keras and its backends raise many kinds
        raise ModelFileError(f"{where}: {reason(error)}") from error
    shape = list(output.shape[1:])
    if shape != layer["output_shape"]:
        raise ModelFileError(f"{where} has the output shape {shape} in Keras, but {layer['output_shape']} in the file")
    if layer["parameters"] is None:
        return output
    variables = _variables(built)
    found = {parameter["name"].removeprefix(f"{layer['name']}/"): parameter for parameter in layer["parameters"]}
    if found.keys() != variables.keys():
        raise ModelFileError(f"{where} has the parameters {sorted(variables)} in Keras, but {sorted(found)} in the file")
    for name, variable in variables.items():
        value = tensors[found[name]["name"]]
        if value.shape != tuple(variable.shape):
            raise ModelFileError(f"{where}: parameter '{name}' has the shape {list(variable.shape)} in Keras, but "
                                 f"{list(value.shape)} in the file")
        variable.assign(value)
    if any(variable.trainable and not found[name]["trainable"] for name, variable in variables.items()):
        built.trainable = False  # ls::Frozen
    if isinstance(built, keras.layers.Normalization):
        built.finalize_state()
    return output


def _by_name(parts, values):
    """The values of inputs or outputs: a dictionary, if there are several."""
    if len(parts) == 1:
        return values[parts[0]["layer"]]
    return {part["name"]: values[part["layer"]] for part in parts}


def load(architecture, weights):
    """A keras.Model with the layers of the file `architecture` (JSON) and the values of the file `weights`
    (safetensors). Raises ModelFileError if one of them is damaged, or they do not fit.

    >>> model = load("w.json", "w.safetensors")
    >>> model.predict(images)       # (examples, height, width, channels)
    """
    described = read_architecture(architecture)
    tensors = read_weights(weights, described)
    named = "offset" in described["inputs"][0]
    values = {part["layer"]: keras.Input(part["shape"], name=_name_in_keras(part["name"]) if named else None)
              for part in described["inputs"]}
    layers = {}
    axes = keras.config.image_data_format()
    keras.config.set_image_data_format("channels_last")
    try:
        for layer in described["layers"]:
            values[layer["name"]] = _built(layer, [values[source] for source in layer["inputs"]], tensors, layers)
        return keras.Model(_by_name(described["inputs"], values), _by_name(described["outputs"], values),
                           name=_name_in_keras(described["name"]))
    except ModelFileError as error:
        raise ModelFileError(f"{architecture}: {error}") from error
    except Exception as error:  # duplicate names, for example
        raise ModelFileError(f"{architecture}: {reason(error)}") from error
    finally:
        keras.config.set_image_data_format(axes)


def save(model, weights):
    """Writes the weights of a Keras model as a safetensors file with the names of its layers, "conv2d/kernel". The
    layers of a model within the model have its name in front: "backbone/conv2d/kernel".

    >>> save(model, "trained.safetensors")      # C++: model.load_weights("trained.safetensors")
    """
    tensors = {}

    def add(layers, scope):
        for layer in layers:
            name = scope + _name_in_lockstep(layer.name)
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
    try:
        if given.command == "load":
            load(given.architecture, given.weights).save(given.keras_file)
        else:
            save(keras.saving.load_model(given.keras_file, compile=False), given.weights)
    except ModelFileError as error:
        sys.exit(f"keras_model: {error}")
    except Exception as error:  # whatever Keras raises for its own file
        sys.exit(f"keras_model: {given.keras_file}: {reason(error)}")


if __name__ == "__main__":
    main()
