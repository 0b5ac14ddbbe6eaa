#!/usr/bin/env python3
"""Models of lockstep in PyTorch, and their weights back.

As a module:
    model = torch_model.load("w.json", "w.safetensors")     # a torch.nn.Module that predicts the same
    torch_model.save(model, "trained.safetensors")          # for model.load_weights in C++

As a command, which prints the model and exits with 1 after an error:
    torch_model.py w.json w.safetensors

Inputs and outputs have lockstep's axes, channels last: (examples, height, width, channels). Needs torch, numpy and
safetensors. Augmentation is left out: RandomFlip and its like are the identity, RandomCrop resizes the middle.
"""
import argparse
import contextlib
import functools
import math
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent))
from model_files import (ModelFileError, crop_of, function_value, read_architecture, read_weights, reason, window,  # noqa: E402
                         write_weights)


def _arguments():
    parser = argparse.ArgumentParser(description="Loads a model of lockstep into PyTorch, and prints it.")
    for name in ("architecture", "weights"):
        parser.add_argument(name)
    return parser.parse_args()


if __name__ == "__main__":
    given = _arguments()  # before the imports, since --help needs no packages
try:
    import numpy
    import safetensors  # noqa: F401
    import torch
    from torch import nn
    from torch.nn import functional
except ImportError as missing:
    if __name__ != "__main__":
        raise
    sys.exit(f"torch_model: {missing}; install torch, numpy and safetensors")

ACTIVATIONS = {"elu": nn.ELU, "gelu": nn.GELU, "relu": nn.ReLU, "relu6": nn.ReLU6, "sigmoid": nn.Sigmoid,
               "silu": nn.SiLU, "softplus": nn.Softplus, "tanh": nn.Tanh,
               "softmax": lambda: nn.Softmax(-1), "log_softmax": lambda: nn.LogSoftmax(-1)}
LAYERS = {"ELU": "elu", "GELU": "gelu", "ReLU": "relu", "ReLU6": "relu6", "Sigmoid": "sigmoid", "SiLU": "silu",
          "Softplus": "softplus", "Tanh": "tanh", "Softmax": "softmax", "LogSoftmax": "log_softmax"}
MERGES = {"Add": torch.add, "Maximum": torch.maximum, "Minimum": torch.minimum, "Multiply": torch.mul,
          "Subtract": torch.sub}
RECURRENT = {"LSTM": 4, "GRU": 3, "SimpleRNN": 1}  # gates
IDENTITIES = {"RandomBrightness", "RandomContrast", "RandomCutout", "RandomFlip", "RandomRotation", "RandomTranslation",
              "RandomZoom"}


class Function(nn.Module):
    """A function as a layer."""

    def __init__(self, function, text):
        super().__init__()
        self.function, self.text = function, text

    def forward(self, *inputs):
        return self.function(*inputs)

    def extra_repr(self):
        return self.text


OPERATIONS = {name: getattr(torch, name) for name in ("abs", "erf", "exp", "expm1", "log", "log1p", "maximum", "minimum",
                                                      "sigmoid", "sqrt", "tanh", "where")}
OPERATIONS |= {"softplus": functional.softplus, "stop": torch.Tensor.detach,
               "tensor": lambda value, like: value if torch.is_tensor(value) else like.new_tensor(value),
               "sum": lambda x: x.sum(-1, keepdim=True), "largest": lambda x: x.amax(-1, keepdim=True)}


def _of_nodes(nodes, formula):
    """A function of lockstep, as a layer or as an activation."""
    return Function(lambda x: function_value(nodes, x, OPERATIONS), formula)


class ChannelsFirst(nn.Module):
    """A layer of PyTorch, whose channels are axis 1, for values with channels last. `pads` are added around the image,
    from the first axis on: (before, after) each; `crop` is cut out of the result: (begin, extent) each."""

    def __init__(self, layer, pads=(), value=0.0, crop=()):
        super().__init__()
        self.layer, self.pads, self.value, self.crop = layer, pads, value, crop

    def forward(self, x):
        x = x.movedim(-1, 1)
        if any(map(any, self.pads)):
            x = functional.pad(x, [n for pair in reversed(self.pads) for n in pair], value=self.value)
        x = self.layer(x)
        for axis, (begin, extent) in enumerate(self.crop):
            x = x.narrow(axis + 2, begin, extent)
        return x.movedim(1, -1)


class AveragePooling(nn.Module):
    """The mean over the part of each window that is inside the image."""

    def __init__(self, size, strides, pads):
        super().__init__()
        self.size, self.strides, self.pads = size, strides, [n for pair in reversed(pads) for n in pair]

    def forward(self, x):
        pool = (functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d)[len(self.size) - 1]
        inside = functional.pad(torch.ones_like(x[:1, :1]), self.pads)
        return pool(functional.pad(x, self.pads), self.size, self.strides) / pool(inside, self.size, self.strides)


class Attention(nn.Module):
    """Attention of lockstep, whose kernels are (features, heads, size). Its inputs are the query, the value and the key; one
    that is left out is the one before it. With `attention_mask` the mask is one more, the last one."""

    def __init__(self, config, shapes, output):
        super().__init__()
        self.config = config
        heads = config.get("num_heads", config.get("num_query_heads"))
        of_keys = config.get("num_key_value_heads", heads)
        size = config.get("key_dim", config.get("head_dim"))
        values = config.get("value_dim", size)
        self.has_mask = "attention_mask" in config
        shapes = shapes[:-1] if self.has_mask else shapes
        query, value, key = (shapes + shapes[-1:] * 2)[:3]
        for name, shape in (("query", (query[-1], heads, size)), ("key", (key[-1], of_keys, size)),
                            ("value", (value[-1], of_keys, values)), ("attention_output", (heads, values, output))):
            self.register_parameter(name + "_kernel", nn.Parameter(torch.zeros(shape)))
            if config["use_bias"]:
                bias = shape[-1:] if name == "attention_output" else shape[1:]
                self.register_parameter(name + "_bias", nn.Parameter(torch.zeros(bias)))

    def tensors(self):
        return {name.replace("_kernel", "/kernel").replace("_bias", "/bias"): Tensor(self, name)
                for name, _ in self.named_parameters()}

    def _turned(self, x):
        """Rotary positions: x (batch, heads, steps, size)."""
        wavelength, size = self.config["max_wavelength"], x.shape[-1]
        if not wavelength:
            return x
        frequency = wavelength ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
        angle = torch.arange(x.shape[-2], dtype=torch.float64)[:, None] / self.config["scaling_factor"] * frequency
        cosine, sine = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        a, b = (x[..., ::2], x[..., 1::2]) if self.config["pairs"] else x.chunk(2, -1)
        turned = a * cosine - b * sine, b * cosine + a * sine
        return torch.stack(turned, -1).flatten(-2) if self.config["pairs"] else torch.cat(turned, -1)

    def forward(self, *inputs):
        *inputs, pairs = inputs if self.has_mask else (*inputs, None)
        query, value, key = (inputs + inputs[-1:] * 2)[:3]
        own = dict(self.named_parameters())

        def projected(x, name):
            y = torch.einsum("btd,dnh->btnh", x, own[name + "_kernel"])
            return (y + own[name + "_bias"] if self.config["use_bias"] else y).transpose(1, 2)

        q, k = self._turned(projected(query, "query")), self._turned(projected(key, "key"))
        distance = torch.arange(q.shape[2])[:, None] - torch.arange(k.shape[2])[None, :]
        allowed = (distance >= 0) if self.config["use_causal_mask"] else torch.full_like(distance, True, dtype=torch.bool)
        if self.config["sliding_window"]:
            allowed = allowed & (distance.abs() < self.config["sliding_window"])
        allowed = allowed.to(q.device)
        if pairs is not None:
            allowed = allowed & (pairs != 0)[:, None]
        dropout = self.config["dropout"] if self.training else 0.0
        o = functional.scaled_dot_product_attention(q, k, projected(value, "value"), attn_mask=allowed,
                                                    dropout_p=dropout, enable_gqa=True)
        if pairs is not None:
            o = torch.where(allowed.any(-1, keepdim=True), o, 0)  # of a query without keys
        y = torch.einsum("bnth,nhe->bte", o, own["attention_output_kernel"])
        return y + own["attention_output_bias"] if self.config["use_bias"] else y


class PositionEmbedding(nn.Module):
    """Learned vectors of the steps, added to them."""

    def __init__(self, length, features):
        super().__init__()
        self.embeddings = nn.Parameter(torch.zeros(length, features))

    def forward(self, x):
        return x + self.embeddings[:x.shape[1]]


class Dot(nn.Module):
    """Dot products along an axis of each input; of vectors of length 1 with `normalizes`."""

    def __init__(self, axes, normalizes, shape):
        super().__init__()
        self.axes, self.normalizes, self.shape = axes, normalizes, shape

    def forward(self, *inputs):
        a, b = (x.movedim(axis, -1).reshape(len(x), -1, x.shape[axis]) for x, axis in zip(inputs, self.axes))
        if self.normalizes:
            a, b = (functional.normalize(x, dim=-1, eps=1e-7) for x in (a, b))
        return (a @ b.mT).reshape(len(a), *self.shape)


class Blocks(nn.Module):
    """DepthToSpace and SpaceToDepth: channels are (row in the block, column in the block, channel), unlike those of
    pixel_shuffle, whose channel is first."""

    def __init__(self, size, enlarges):
        super().__init__()
        self.size, self.enlarges = size, enlarges

    def forward(self, x):
        n, height, width, channels = x.shape
        if self.enlarges:
            blocks = x.reshape(n, height, width, self.size, self.size, -1).permute(0, 1, 3, 2, 4, 5)
            return blocks.reshape(n, height * self.size, width * self.size, -1)
        blocks = x.reshape(n, height // self.size, self.size, width // self.size, self.size, channels)
        return blocks.permute(0, 1, 3, 2, 4, 5).reshape(n, height // self.size, width // self.size, -1)


class Recurrent(nn.Module):
    """LSTM, GRU or SimpleRNN, with lockstep's parameters."""

    def __init__(self, kind, features, config):
        super().__init__()
        self.kind, self.config = kind, config
        columns = RECURRENT[kind] * config["units"]
        self.kernel = nn.Parameter(torch.zeros(features, columns))
        self.recurrent_kernel = nn.Parameter(torch.zeros(config["units"], columns))
        if config["use_bias"]:
            self.bias = nn.Parameter(torch.zeros((2, columns) if kind == "GRU" and config["reset_after"] else columns))
        self.activation = self.function("activation", "tanh")
        self.gate = self.function("recurrent_activation", "sigmoid")

    def function(self, option, default):
        name = self.config.get(option, default)
        if name == "leaky_relu":
            return nn.LeakyReLU(self.config[option + "_negative_slope"])
        if name not in ACTIVATIONS:
            raise ModelFileError(f"the activation {name} of a recurrent layer has no form in PyTorch")
        return ACTIVATIONS[name]()

    def forward(self, x):
        bias = self.bias if self.config["use_bias"] else torch.zeros(self.kernel.shape[1], dtype=x.dtype)
        of_state = bias[1] if bias.ndim == 2 else 0
        h = c = x.new_zeros(len(x), self.config["units"])
        z = self.product(x, self.kernel, self.masks(x[:, :1], "dropout")) + (bias[0] if bias.ndim == 2 else bias)
        of_h = self.masks(h, "recurrent_dropout")
        states = []
        for step in range(x.shape[1])[::-1 if self.config["go_backwards"] else 1]:
            h, c = self.step(z[:, step], h, c, of_state, of_h)
            states.append(h)
        if not self.config["return_sequences"]:
            return h
        return torch.stack(states[::-1] if self.config.get("output_order", 1) < 0 else states, 1)

    def masks(self, like, option):
        """A mask of dropout for each gate, the same for all of them without recurrent_dropout; None outside training."""
        rate, gates = self.config[option], RECURRENT[self.kind]
        if not self.training or rate == 0:
            return None
        drawn = gates if self.config["recurrent_dropout"] > 0 else 1
        masks = [nn.functional.dropout(torch.ones_like(like), rate) for _ in range(drawn)]
        return masks * (gates // drawn)

    def product(self, values, kernel, masks):
        if masks is None:
            return values @ kernel
        parts = kernel.chunk(RECURRENT[self.kind], 1)
        return torch.cat([values * mask @ part for mask, part in zip(masks, parts)], -1)

    def step(self, z, h, c, bias, masks):
        product = self.product(h, self.recurrent_kernel, masks)
        if self.kind == "SimpleRNN":
            return self.activation(z + product), c
        if self.kind == "LSTM":
            i, f, candidate, o = (z + product).chunk(4, 1)
            c = self.gate(f) * c + self.gate(i) * self.activation(candidate)
            return self.gate(o) * self.activation(c), c
        units = h.shape[1]
        parts = product + bias
        update, reset = (self.gate(z[:, part] + parts[:, part]) for part in (slice(units), slice(units, 2 * units)))
        state = reset * parts[:, 2 * units:]
        if not self.config["reset_after"]:
            state = (reset * h * (1 if masks is None else masks[2])) @ self.recurrent_kernel[:, 2 * units:]
        return update * h + (1 - update) * self.activation(z[:, 2 * units:] + state), c


class TiedDense(nn.Module):
    """A product with the transposed matrix of another layer: `tensor` of lockstep's matrix."""

    def __init__(self, tensor, shape):
        super().__init__()
        self.module, self.tensor, self.shape = [tensor.module], tensor, shape  # in a list: not a part of this module

    def forward(self, x):
        matrix = getattr(self.module[0], self.tensor.name)
        return x @ (matrix if self.tensor.order else matrix.mT).reshape(*reversed(self.shape))


class Normalization(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("variance", torch.ones(channels))

    def forward(self, x):
        return (x - self.mean) / self.variance.sqrt().clamp_min(1e-7)


class GroupNorm(nn.GroupNorm):
    """Also for one vector whose groups have one channel each, which PyTorch's own rejects."""

    def forward(self, x):
        return torch.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)


class PReLU(nn.Module):
    """A slope for each element, or for those that share it: alpha has extent 1 along shared axes."""

    def __init__(self, shape):
        super().__init__()
        self.alpha = nn.Parameter(torch.zeros(shape))

    def forward(self, x):
        return torch.where(x > 0, x, self.alpha * x)


class GaussianNoise(nn.Module):
    def __init__(self, stddev):
        super().__init__()
        self.stddev = stddev

    def forward(self, x):
        return x + self.stddev * torch.randn_like(x) if self.training else x


class Tensor:
    """A parameter of lockstep, in PyTorch an attribute of a module: the axes in another order, then reshaped."""

    def __init__(self, module, name, order=None):
        self.module, self.name, self.order = module, name, order

    def set(self, value):
        tensor = getattr(self.module, self.name)
        if self.order:
            value = value.transpose(self.order)
        # A depthwise kernel's channels and their multiplier are one axis in PyTorch.
        joined = (value.shape[0] * value.shape[1], 1, *value.shape[2:]) if value.ndim > 2 else None
        if tuple(tensor.shape) not in (value.shape, joined):
            raise ValueError(f"its shape {list(value.shape)} is {list(tensor.shape)} in PyTorch")
        with torch.no_grad():
            tensor.copy_(torch.from_numpy(numpy.array(value)).reshape(tensor.shape))

    def freeze(self):
        """Leaves out the gradient; buffers have none."""
        tensor = getattr(self.module, self.name)
        if isinstance(tensor, nn.Parameter):
            tensor.requires_grad_(False)

    def get(self, shape):
        value = getattr(self.module, self.name).detach().float().cpu().numpy()
        if not self.order:
            return value.reshape(shape)
        return value.reshape([shape[axis] for axis in self.order]).transpose(numpy.argsort(self.order))


def _convolution(layer, kernel, bias, groups=1):
    """A convolution of channels-first values, without padding, and its tensors by lockstep's names."""
    config, kernel = layer["config"], next(p for p in layer["parameters"] if p["name"].endswith("/" + kernel))
    *size, inputs, outputs = kernel["shape"]
    axes, point = len(size), kernel["name"].endswith("pointwise_kernel")
    parts = config.get("groups", 1)
    step = [1] * axes if point else config["strides"]
    gap = [1] * axes if point else config["dilation_rate"]
    built = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[axes - 1](inputs * parts, outputs * groups, size, step, dilation=gap,
                                                         groups=groups * parts, bias=bias)
    order = (axes + 1, axes, *range(axes)) if groups == 1 else (axes, axes + 1, *range(axes))
    tensors = {kernel["name"].rpartition("/")[2]: Tensor(built, "weight", order)}
    if bias:
        tensors["bias"] = Tensor(built, "bias")
    return built, tensors


def _pads(layer, size):
    config = layer["config"]
    gaps = config.get("dilation_rate", [1] * len(size))
    return [window(extent, *numbers, config["padding"])[1:] for extent, *numbers in
            zip(layer["input_shapes"][0], size, config["strides"], gaps)]


def _transposed(layer):
    config = layer["config"]
    filters, size, strides, gaps = (config[key] for key in ("filters", "kernel_size", "strides", "dilation_rate"))
    crop, extra, axes = [], [], len(size)
    for axis in range(axes):
        out, extent = layer["output_shape"][axis], (size[axis] - 1) * gaps[axis] + 1
        before = window(out, size[axis], strides[axis], gaps[axis], config["padding"])[1]
        crop.append((before, out))
        extra.append(max(0, before + out - (layer["input_shapes"][0][axis] - 1) * strides[axis] - extent))
    built = (nn.ConvTranspose1d, nn.ConvTranspose2d)[axes - 1](
        layer["input_shapes"][0][-1], filters, size, strides, output_padding=extra, dilation=gaps, bias=config["use_bias"])
    tensors = {"kernel": Tensor(built, "weight", (axes + 1, axes, *range(axes)))}
    if config["use_bias"]:
        tensors["bias"] = Tensor(built, "bias")
    return ChannelsFirst(built, crop=crop), tensors


def _normalized(built, config, names):
    """The scale and the offset; one that lockstep does not have stays 1 or 0."""
    tensors = {}
    for name, option, parameter in (("gamma", "scale", "weight"), ("beta", "center", "bias")):
        if config[option]:
            tensors[name] = Tensor(built, parameter)
        else:
            getattr(built, parameter).requires_grad_(False)
    return {**tensors, **{name: Tensor(built, own) for name, own in names.items()}}


def _crop(layer):
    height, width = layer["output_shape"][:2]
    rows, columns = layer["input_shapes"][0][:2]
    if layer["class_name"] == "CenterCrop" and rows >= height and columns >= width:
        top, left = (rows - height) // 2, (columns - width) // 2
        return Function(lambda x: x[:, top:top + height, left:left + width], f"the middle {height} x {width}")
    top, left, h, w = crop_of(layer["input_shapes"][0], height, width)

    def resize(x):
        return functional.interpolate(x[:, :, top:top + h, left:left + w], (height, width), mode="bilinear")
    return ChannelsFirst(Function(resize, f"the middle {h} x {w} as {height} x {width}"))


def _module(layer):
    """The layer in PyTorch, for values with channels last, and its tensors by the names of lockstep's parameters."""
    kind, config, shape = layer["class_name"], layer["config"], layer["input_shapes"][0]
    if kind in ("Conv1D", "Conv2D", "Conv3D"):
        built, tensors = _convolution(layer, "kernel", config["use_bias"])
        return ChannelsFirst(built, _pads(layer, config["kernel_size"])), tensors
    if kind == "DepthwiseConv2D":
        built, tensors = _convolution(layer, "kernel", config["use_bias"], groups=shape[-1])
        return ChannelsFirst(built, _pads(layer, config["kernel_size"])), tensors
    if kind == "SeparableConv2D":
        depthwise, tensors = _convolution(layer, "depthwise_kernel", False, groups=shape[-1])
        pointwise, more = _convolution(layer, "pointwise_kernel", config["use_bias"])
        return (ChannelsFirst(nn.Sequential(depthwise, pointwise), _pads(layer, config["kernel_size"])),
                {**tensors, **more})
    if kind in ("Conv1DTranspose", "Conv2DTranspose"):
        return _transposed(layer)
    if kind == "Dense":
        built = nn.Linear(shape[-1], config["units"], bias=config["use_bias"])
        tensors = {"kernel": Tensor(built, "weight", (1, 0))}
        return built, {**tensors, "bias": Tensor(built, "bias")} if config["use_bias"] else tensors
    if kind == "Embedding":
        built = nn.Embedding(config["input_dim"], config["output_dim"])
        return nn.Sequential(Function(lambda x: x.long(), "integers"), built), {"embeddings": Tensor(built, "weight")}
    if kind in RECURRENT and ("results" in config or "operands" in config):
        raise ModelFileError(f"layer '{layer['name']}' has states among its results or operands, which have no form in "
                             "PyTorch; save a model without return_state and initial_state")
    if kind in RECURRENT:
        built = Recurrent(kind, shape[-1], config)
        return built, {name: Tensor(built, name) for name, _ in built.named_parameters()}
    if kind == "BatchNormalization":
        built = {1: nn.BatchNorm1d, 2: nn.BatchNorm1d, 3: nn.BatchNorm2d, 4: nn.BatchNorm3d}[len(shape)](
            shape[-1], config["epsilon"], 1 - config["momentum"])
        return ChannelsFirst(built), _normalized(built, config, {"moving_mean": "running_mean",
                                                                "moving_variance": "running_var"})
    if kind == "LayerNormalization":
        built = nn.LayerNorm(shape[-1], config["epsilon"])
        return built, _normalized(built, config, {})
    if kind in ("MultiHeadAttention", "GroupedQueryAttention"):
        built = Attention(config, layer["input_shapes"], layer["output_shape"][-1])
        return built, built.tensors()
    if kind == "PositionEmbedding":
        built = PositionEmbedding(config["sequence_length"], shape[-1])
        return built, {"embeddings": Tensor(built, "embeddings")}
    if kind == "RMSNormalization":
        built = nn.RMSNorm(shape[-1], config["epsilon"])
        return built, {"scale": Tensor(built, "weight")}
    if kind == "GroupNormalization":
        built = GroupNorm(config["groups"], shape[-1], config["epsilon"])
        return ChannelsFirst(built), _normalized(built, config, {})
    if kind == "Normalization":
        built = Normalization(shape[-1])
        return built, {"mean": Tensor(built, "mean"), "variance": Tensor(built, "variance")}
    if kind == "PReLU":
        built = PReLU([1 if axis + 1 in config["shared_axes"] else extent for axis, extent in enumerate(shape)])
        return built, {"alpha": Tensor(built, "alpha")}
    return _without_parameters(layer, kind, config, shape), {}


def _without_parameters(layer, kind, config, shape):
    if kind in LAYERS:
        return ACTIVATIONS[LAYERS[kind]]()
    if kind == "LeakyReLU":
        return nn.LeakyReLU(config["negative_slope"])
    if kind in ("MaxPooling1D", "MaxPooling2D", "MaxPooling3D"):
        pool = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)[len(config["pool_size"]) - 1](config["pool_size"], config["strides"])
        return ChannelsFirst(pool, _pads(layer, config["pool_size"]), float("-inf"))
    if kind in ("AveragePooling1D", "AveragePooling2D", "AveragePooling3D"):
        return ChannelsFirst(AveragePooling(config["pool_size"], config["strides"], _pads(layer, config["pool_size"])))
    if kind in ("GlobalAveragePooling1D", "GlobalAveragePooling2D", "GlobalAveragePooling3D"):
        return Function(lambda x: x.mean(dim=tuple(range(1, x.ndim - 1))), kind)
    if kind in ("GlobalMaxPooling1D", "GlobalMaxPooling2D", "GlobalMaxPooling3D"):
        return Function(lambda x: x.amax(dim=tuple(range(1, x.ndim - 1))), kind)
    if kind in ("Flatten", "Reshape"):
        return Function(lambda x: x.reshape(len(x), *layer["output_shape"]), f"{kind} to {layer['output_shape']}")
    if kind == "UpSampling1D":
        return Function(lambda x: x.repeat_interleave(config["size"][0], 1), f"each step {config['size'][0]} times")
    if kind == "UpSampling2D":
        return ChannelsFirst(nn.Upsample(scale_factor=tuple(map(float, config["size"])), mode=config["interpolation"]))
    if kind == "ZeroPadding2D":
        top, bottom, left, right = config["padding"]
        return ChannelsFirst(nn.Identity(), ((top, bottom), (left, right)))
    if kind == "ZeroPadding1D":
        return ChannelsFirst(nn.Identity(), (tuple(config["padding"]),))
    if kind in ("Cropping1D", "Cropping2D"):
        before = config["cropping"][::2]
        return ChannelsFirst(nn.Identity(), crop=tuple(zip(before, layer["output_shape"])))
    if kind == "InputLayer":
        begin, to = config["offset"], layer["output_shape"]
        return Function(lambda x: x[:, begin:begin + math.prod(to)].reshape(len(x), *to), f"{to} from {begin} of the row")
    if kind == "SliceAxis":
        axis, begin, end = config["axis"], config["begin"], config["end"]
        return Function(lambda x: x.narrow(axis, begin, end - begin), f"{begin}:{end} of axis {axis}")
    if kind == "Permute":
        return Function(lambda x: x.permute(0, *config["dims"]), f"axes {config['dims']}")
    if kind == "RepeatVector":
        return Function(lambda x: x.unsqueeze(1).expand(-1, config["n"], -1), f"{config['n']} times")
    if kind in ("DepthToSpace", "SpaceToDepth"):
        return Blocks(config["block_size"], kind == "DepthToSpace")
    if kind == "Rescaling":
        return Function(lambda x: x * config["scale"] + config["offset"], f"x * {config['scale']} + {config['offset']}")
    if kind == "Dropout":
        return nn.Dropout(config["rate"])
    if kind == "SpatialDropout2D":
        return ChannelsFirst(nn.Dropout2d(config["rate"]))
    if kind == "GaussianNoise":
        return GaussianNoise(config["stddev"])
    if kind in ("CenterCrop", "RandomCrop"):
        return _crop(layer)
    if kind == "Resizing":
        mode = {"nearest": "nearest-exact", "bilinear": "bilinear"}[config["interpolation"]]
        return ChannelsFirst(nn.Upsample(size=(config["height"], config["width"]), mode=mode))
    if kind in IDENTITIES:
        return nn.Identity()
    if kind in MERGES:
        return Function(lambda *values: functools.reduce(MERGES[kind], values), kind)
    if kind == "Dot":
        return Dot(config["axes"], config["normalize"], layer["output_shape"])
    if kind == "Function":
        return _of_nodes(config["nodes"], config["formula"])
    if kind == "Average":
        return Function(lambda *values: functools.reduce(torch.add, values) / len(values), kind)
    if kind == "Concatenate":
        return Function(lambda *values: torch.cat(values, config["axis"]), kind)
    raise ModelFileError(f"layer '{layer['name']}': {kind} has no form in PyTorch")


@contextlib.contextmanager
def _place(where):
    """Names the place of an exception, of which PyTorch raises many kinds."""
    try:
        yield
    except ModelFileError:
        raise
    except Exception as error:
        raise ModelFileError(f"{where} does not fit: {reason(error)}") from error


class Model(nn.Module):
    """A network of lockstep. `layers` are modules by name."""

    def __init__(self, described):
        super().__init__()
        self.described, self.layers, self.tensors, self.keys = described, nn.ModuleDict(), {}, {}
        layers = {layer["name"]: layer for layer in described["layers"]}
        for layer in described["layers"]:
            name, config, is_tied = layer["name"], layer["config"], layer["class_name"] == "TiedDense"
            first = layers[layer["shared_with"]] if layer["shared_with"] and not is_tied else layer
            if first is not layer and first["input_shapes"] == layer["input_shapes"]:
                self.keys[name] = self.keys[first["name"]]
                continue
            with _place(f"layer '{name}'"):
                if is_tied:
                    matrix = next(p for p in self.tensors if p.startswith(layer["shared_with"] + "/"))
                    built, tensors = TiedDense(*self.tensors[matrix]), {}
                else:
                    built, tensors = _module({**layer, "parameters": first["parameters"]})
                activation = None if layer["class_name"] in RECURRENT else config.get("activation")
                if activation == "leaky_relu":
                    built = nn.Sequential(built, nn.LeakyReLU(config["activation_negative_slope"]))
                elif activation == "Function":
                    built = nn.Sequential(built, _of_nodes(config["activation_nodes"], config["activation_formula"]))
                elif activation in ACTIVATIONS:
                    built = nn.Sequential(built, ACTIVATIONS[activation]())
                elif activation is not None:
                    raise ModelFileError(f"layer '{name}': the activation {activation} has no form in PyTorch")
            self.keys[name] = self.key(name)
            self.layers[self.keys[name]] = built
            if first is not layer:  # a call with another input: other padding, the same parameters
                for own, tensor in tensors.items():
                    shared = self.tensors[f"{first['name']}/{own}"][0]
                    setattr(tensor.module, tensor.name, getattr(shared.module, shared.name))
                continue
            found = [parameter["name"].removeprefix(name + "/") for parameter in layer["parameters"]]
            if set(found) != set(tensors):
                raise ModelFileError(f"layer '{name}' has the parameters {sorted(tensors)} in PyTorch, but {sorted(found)} "
                                     "in the file")
            for parameter, own in zip(layer["parameters"], found):
                self.tensors[parameter["name"]] = tensors[own], parameter["shape"]

    def key(self, name):
        """The name of a layer's module, which has no dot and is not an attribute of them."""
        key = name.replace("/", "_of_").replace(".", "_")
        while key in self.layers or hasattr(self.layers, key):
            key += "_"
        return key

    def layer(self, layer, values):
        """The output of a layer for the outputs of the layers before."""
        return self.layers[self.keys[layer["name"]]](*(values[name] for name in layer["inputs"]))

    def forward(self, x):
        inputs, outputs = self.described["inputs"], self.described["outputs"]
        values = {part["layer"]: x[part["name"]] if len(inputs) > 1 else x for part in inputs}
        for layer in self.described["layers"]:
            values[layer["name"]] = self.layer(layer, values)
        if len(outputs) == 1:
            return values[outputs[0]["layer"]]
        return {part["name"]: values[part["layer"]] for part in outputs}

    def check(self):
        """Raises ModelFileError if a layer does not have the output shape of the file."""
        values = {part["layer"]: torch.zeros(1, *part["shape"]) for part in self.described["inputs"]}
        for layer in self.described["layers"]:
            with torch.no_grad(), _place(f"layer '{layer['name']}'"):
                output = values[layer["name"]] = self.layer(layer, values)
            if list(output.shape[1:]) != layer["output_shape"]:
                raise ModelFileError(f"layer '{layer['name']}' has the output shape {list(output.shape[1:])} in PyTorch, but "
                                     f"{layer['output_shape']} in the file")


def load(architecture, weights):
    """A Model in eval mode with the layers of the file `architecture` (JSON) and the values of the file `weights`
    (safetensors). Raises ModelFileError if one of them is damaged, or they do not fit.

    >>> model = load("w.json", "w.safetensors")
    >>> model(torch.from_numpy(images))     # (examples, height, width, channels)
    >>> model({"image": images, "words": words})["digit"]   # a graph with several inputs and outputs
    """
    described = read_architecture(architecture)
    values = read_weights(weights, described)
    try:
        model = Model(described)
        for name, (tensor, _) in model.tensors.items():
            with _place(f"parameter '{name}'"):
                tensor.set(values[name])
        for parameter in (p for layer in described["layers"] for p in layer["parameters"]):
            if not parameter["trainable"]:
                model.tensors[parameter["name"]][0].freeze()  # ls::Frozen
        model.eval().check()
    except ModelFileError as error:
        raise ModelFileError(f"{architecture}: {error}") from error
    return model


def save(model, weights):
    """Writes the weights of a model from `load`, perhaps trained since, with the names and layouts of lockstep.

    >>> save(model, "trained.safetensors")      # C++: model.load_weights("trained.safetensors")
    """
    write_weights(weights, {name: tensor.get(shape) for name, (tensor, shape) in model.tensors.items()})


def main():
    try:
        print(load(given.architecture, given.weights))
    except ModelFileError as error:
        sys.exit(f"torch_model: {error}")


if __name__ == "__main__":
    main()
