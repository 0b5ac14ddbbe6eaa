"""The Keras side, in float64: draws weights and batches of a network, and trains it. Needs keras with the backend torch."""
import math
import os

os.environ["KERAS_BACKEND"] = "torch"
import keras  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from keras import layers as kl  # noqa: E402
from keras import ops  # noqa: E402
from keras.src.backend.common import dtypes  # noqa: E402
from keras.src.utils.naming import auto_name  # noqa: E402

import draw  # noqa: E402
import keras_model  # noqa: E402

# Keras computes in float32 where it derives a type from float64.
for table in [vars(dtypes)[name] for name in dir(dtypes) if isinstance(vars(dtypes)[name], dict)]:
    for key in [key for key, value in table.items() if key == "float64" and value == "float32"]:
        table[key] = "float64"
for function in [vars(dtypes)[name] for name in dir(dtypes) if hasattr(vars(dtypes)[name], "cache_clear")]:
    function.cache_clear()
keras.config.set_floatx("float64")


def pair(value):
    return tuple(value) if isinstance(value, (list, tuple)) else (value, value)


def conv2d(x, kernel, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """As a product with the patches: PyTorch's own in float64 refuses to differentiate some images of width or channel 1."""
    steps = zip(x.shape[2:], kernel.shape[2:], pair(stride), pair(padding), pair(dilation))
    extents = [(extent + 2 * p - d * (k - 1) - 1) // s + 1 for extent, k, s, p, d in steps]
    patches = torch.nn.functional.unfold(x, kernel.shape[2:], dilation, padding, stride)
    patches = patches.reshape(len(x), groups, -1, patches.shape[-1])
    y = torch.einsum("gok,ngkp->ngop", kernel.reshape(groups, len(kernel) // groups, -1), patches)
    y = y.reshape(len(x), len(kernel), *extents)
    return y if bias is None else y + bias[:, None, None]


def conv1d(x, kernel, bias=None, stride=1, padding=0, dilation=1, groups=1):
    def along(value, other):
        return (other, value[0] if isinstance(value, (list, tuple)) else value)
    return conv2d(x[:, :, None], kernel[:, :, None], bias, along(stride, 1), along(padding, 0), along(dilation, 1), groups)[:, :, 0]


def nll_loss(log_p, target, reduction):
    """Of clipped probabilities, normalized again as Keras does on TensorFlow; a gather, for the same reason as conv2d."""
    assert reduction == "none"
    return log_p.logsumexp(1) - log_p.gather(1, target.unsqueeze(1)).squeeze(1)


def conv_transpose2d(x, kernel, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    """The convolution of an image with zeros between its pixels, with the kernel turned round."""
    assert groups == 1
    down, right = pair(stride)
    spread = x.new_zeros(*x.shape[:2], (x.shape[2] - 1) * down + 1, (x.shape[3] - 1) * right + 1)
    spread[:, :, ::down, ::right] = x
    pads = [(d * (k - 1) - p, d * (k - 1) - p + more) for k, p, more, d in
            zip(kernel.shape[2:], pair(padding), pair(output_padding), pair(dilation))]
    spread = torch.nn.functional.pad(spread, (*pads[1], *pads[0]))
    return conv2d(spread, kernel.flip(2, 3).transpose(0, 1), bias, dilation=dilation)


for replacement in (conv1d, conv2d, conv_transpose2d, nll_loss):
    setattr(torch.nn.functional, replacement.__name__, replacement)


def float32(value):
    return float(np.float32(value))


@keras.saving.register_keras_serializable()
def leaky_relu(x):
    return ops.leaky_relu(x, float32(0.2))  # as lockstep rounds it


def activation(name):
    return leaky_relu if name == "leaky_relu" else name


def regularizer(r):
    if not r:
        return None
    return {"L1": lambda: keras.regularizers.L1(r["l1"]), "L2": lambda: keras.regularizers.L2(r["l2"]),
            "L1L2": lambda: keras.regularizers.L1L2(r["l1"], r["l2"])}[r["k"]]()


class AveragePooling(kl.Layer):
    """The mean over the part of each window that is inside the image; with PyTorch, Keras also counts uneven padding."""

    def __init__(self, layer):
        super().__init__()
        self.size, self.strides, self.padding = layer["size"], layer["strides"], layer["padding"]

    def call(self, x):
        pads = [(0, 0)]
        for extent, size, stride in zip(x.shape[1:], self.size, self.strides):
            total = max((-(-extent // stride) - 1) * stride + size - extent, 0) if self.padding == "same" else 0
            pads.append((total // 2, total - total // 2))
        pads.append((0, 0))

        def pool(value):
            return ops.average_pool(ops.pad(value, pads), self.size, self.strides, "valid", "channels_last")
        return pool(x) / pool(ops.ones_like(x))


class PositionEmbedding(keras_model.PositionEmbedding):
    def __init__(self, positions, penalty):
        super().__init__(positions)
        self.penalty, self.supports_masking = penalty, True

    def build(self, input_shape):
        super().build(input_shape)
        self.embeddings.regularizer = self.penalty


MERGES = {"Concatenate": "concat", "Add": "sum", "Multiply": "mul", "Average": "ave"}
WITHIN = "of_steps"  # the layer of a TimeDistributed


def name_of(v):
    """lockstep's name of a variable, whose layers have no cells."""
    return "/".join(part for part in v.path.split("/") if not part.endswith("_cell") and part != WITHIN)


class Builder:
    """Builds the layers in lockstep's order, so that Keras gives them the same names."""

    def __init__(self, network):
        self.network, self.shared = network, network["shared"]
        self.made, self.frozen = {}, False

    def layer(self, layer, x):
        k = layer["k"]
        if k in ("Frozen", "Recompute"):
            before, self.frozen = self.frozen, self.frozen or k == "Frozen"
            x = self.chain(layer["block"], x)
            self.frozen = before
            return x
        if k == "Shared":
            return self.chain(self.shared[layer["key"]]["block"], x)
        if k == "TiedDense":
            owner = self.made[id(self.shared[layer["key"]]["block"][0])]
            return kl.Lambda(lambda v: ops.matmul(v, ops.transpose(owner.weights[0])))(x)
        if k == "Residual":
            main = self.chain(layer["main"], x)
            return kl.Add()([main, self.chain(layer["skip"], x)])
        if k == "Parallel":
            return self.rule({"k": layer["rule"]}, [self.chain(branch, x) for branch in layer["branches"]])
        if k == "Graph":
            return self.graph(layer["graph"], [x])[0]
        if k in draw.ATTENTION:
            return self.attend(layer, [x])
        if k == "BatchNormalization":
            x = ops.copy(x)  # without the mask, which lockstep's layer drops
        return self.called(layer, lambda built: built(x))

    def called(self, layer, call):
        """The result of a layer, which is built for its first call."""
        is_new = id(layer) not in self.made
        if is_new:
            self.made[id(layer)] = self.build(layer)
        built = self.made[id(layer)]
        y = call(built)
        if is_new:
            built.trainable = not self.frozen  # also of the layers within it, which are built by now
        return y

    def attend(self, layer, operands):
        """The result that is computed with the scores: Keras' other way computes in float32."""
        query, value, *key = operands if len(operands) > 1 else operands * 2
        return self.called(layer, lambda built: built(query, value, *key, use_causal_mask=layer["causal"],
                                                      return_attention_scores=True)[0])

    def chain(self, layers, x):
        for layer in layers:
            x = self.layer(layer, x)
        return x

    def build(self, layer, name=None):
        """`name`: of a layer within another one."""
        k = layer["k"]

        def affine(kernel="kernel"):
            return {"use_bias": layer["bias"], "activation": activation(layer["activation"]),
                    "bias_regularizer": regularizer(layer["bias_regularizer"]),
                    kernel + "_regularizer": regularizer(layer["regularizer"])}
        if k == "Dense":
            return kl.Dense(layer["units"], name=name, **affine())
        if k == "Embedding":
            return kl.Embedding(layer["vocabulary"], layer["units"], mask_zero=layer["mask_zero"], embeddings_regularizer=regularizer(layer["regularizer"]))
        if k in draw.RECURRENT:
            options = affine() | {"recurrent_regularizer": regularizer(layer["recurrent_regularizer"]), "name": name}
            if not layer["activation"]:
                del options["activation"]
            if layer.get("gates"):
                options["recurrent_activation"] = activation(layer["gates"])
            if k == "GRU":
                options["reset_after"] = layer["resets_after"]
            return getattr(kl, k)(layer["units"], return_sequences=layer["sequences"], go_backwards=layer["backwards"],
                                  zero_output_for_mask=layer["zero"], **options)
        if k == "Bidirectional":
            inner = self.build(layer["layer"], {"LSTM": "lstm", "GRU": "gru", "SimpleRNN": "simple_rnn"}[layer["layer"]["k"]])
            return kl.Bidirectional(inner, merge_mode=MERGES[layer["rule"]])
        if k == "TimeDistributed":
            return kl.TimeDistributed(self.build(layer["layer"], WITHIN))
        if k in draw.ATTENTION:
            options = affine() | {"sliding_window": layer["window"], **(layer["rotary"] or {})}
            del options["activation"]
            plain, rotary = keras_model.ATTENTION[k]
            if k == "GroupedQueryAttention":
                options |= {"name": auto_name("grouped_query_attention"), "head_dim": layer["dim"],
                            "num_query_heads": layer["heads"], "num_key_value_heads": layer["kv_heads"]}
            else:
                options |= {"name": auto_name("multi_head_attention"), "num_heads": layer["heads"], "key_dim": layer["dim"],
                            "value_dim": layer["value_dim"], "output_shape": layer["outputs"]}
            return (rotary if layer["rotary"] else plain)(**options)
        if k == "PositionEmbedding":
            return PositionEmbedding(layer["positions"], regularizer(layer["regularizer"]))
        if k == "Masking":
            return kl.Masking(layer["value"])
        if k in ("ZeroPadding1D", "Cropping1D"):
            return getattr(kl, k)(tuple(layer["edges"]))
        if k == "UpSampling1D":
            return kl.UpSampling1D(layer["n"])
        if k == "RMSNormalization":
            return kl.RMSNormalization(epsilon=layer["epsilon"], name=name)
        if k in ("BatchNormalization", "LayerNormalization", "GroupNormalization"):
            return getattr(kl, k)(name=name, **{option: layer[option] for option in ("groups", "epsilon", "center", "scale", "momentum") if option in layer})
        if k == "LeakyReLU":
            return kl.LeakyReLU(negative_slope=0.25)
        if k == "PReLU":
            return kl.PReLU(shared_axes=layer["axes"] or None)
        if k == "Rescaling":
            return kl.Rescaling(layer["factor"], layer["offset"])
        if k in ("Conv1D", "Conv2D", "DepthwiseConv2D", "SeparableConv2D"):
            options = {"kernel_size": layer["size"], "strides": layer["strides"], "dilation_rate": layer["dilation"],
                       "padding": layer["padding"]} | affine("depthwise" if k[0] in "DS" else "kernel")
            options = {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
            if k[0] in "DS":
                options["depth_multiplier"] = layer["multiplier"]
            if k != "DepthwiseConv2D":
                options["filters"] = layer["filters"]
            return getattr(kl, k)(name=name, **options)
        if k == "Conv2DTranspose":
            return kl.Conv2DTranspose(layer["filters"], tuple(layer["size"]), strides=tuple(layer["strides"]), **affine())
        if k.startswith("AveragePooling"):
            return AveragePooling(layer)
        if k.startswith("MaxPooling"):
            return getattr(kl, k)(tuple(layer["size"]), strides=tuple(layer["strides"]), padding=layer["padding"])
        if k == "UpSampling2D":
            return kl.UpSampling2D(tuple(layer["size"]), interpolation=layer["interpolation"])
        if k == "ZeroPadding2D":
            top, bottom, left, right = layer["edges"]
            return kl.ZeroPadding2D(((top, bottom), (left, right)))
        if k in ("Reshape", "Permute"):
            return getattr(kl, k)(tuple(layer["target"] if k == "Reshape" else layer["dims"]))
        if k == "RepeatVector":
            return kl.RepeatVector(layer["n"])
        if k in ("LogSoftmax", "ReLU6", "Sigmoid", "SiLU", "Softmax", "Softplus", "Tanh"):  # kl.Softmax rejects masks of steps
            return kl.Activation({"LogSoftmax": "log_softmax"}.get(k, k.lower()))
        return getattr(kl, k)()

    def rule(self, rule, values):
        if rule["k"] == "Dot":
            return kl.Dot(rule["axis"], normalize=rule["normalize"])(values)
        if rule["k"] in draw.ATTENTION:
            return self.attend(rule, values)
        if rule["k"] == "ConcatenateOn":
            return kl.Concatenate(axis=1)(values)
        return (kl.Concatenate(axis=-1) if rule["k"] == "Concatenate" else getattr(kl, rule["k"])())(values)

    def graph(self, graph, inputs):
        values = {name: value for (name, _), value in zip(graph["inputs"], inputs)}
        outputs = []
        for s in graph["statements"]:
            operands = [values[name] for name in s["from"]]
            if s["rule"] and s["rule"]["k"] == "Graph":
                results = self.graph(s["rule"]["graph"], operands)
            else:
                results = [self.rule(s["rule"], operands) if s["rule"] else operands[0]]
            if "parts" in s:
                values |= {f"{s['name']}/{part}": value for (part, _), value in zip(s["parts"], results)}
                continue
            value = values[s["name"]] = self.chain(s["layers"], results[0])
            if s["out"]:
                outputs.append(value)
        return outputs


class Masked(keras.losses.Loss):
    """Examples and positions of weight 0 are masked, too, as Keras' layers mask the output of a network."""

    def __init__(self, loss):
        super().__init__()
        self.loss = loss

    def __call__(self, target, output, sample_weight=None):
        if sample_weight is not None:
            mask, sample_weight = sample_weight
            of_steps = getattr(output, "_keras_mask", None)
            if of_steps is not None:
                mask = mask & of_steps.reshape(of_steps.shape + (1,) * (mask.ndim - of_steps.ndim))
            output._keras_mask = mask
        return self.loss(target, output, sample_weight)


def loss(options):
    return getattr(keras.losses, options["k"])(**{name: value for name, value in options.items() if name != "k"})


def optimizer(o):
    options = {name: value for name, value in (o | o["with"]).items() if name not in ("k", "with")}
    return getattr(keras.optimizers, o["k"])(**options)


def positions(head):
    return tuple(head["shape"][:-1])


def targets(head, random, n):
    task, shape = head["task"], (n, *head["shape"])
    classes = shape[-1]
    if task == "sparse":
        y = random.integers(0, classes, shape[:-1])
        ignored = head["loss"].get("ignore_class")
        if ignored is not None:
            y = np.where(random.random(y.shape) < 0.3, ignored, y)
            y.reshape(-1)[0] = 0  # one that counts
        return y
    if task == "categorical":
        return np.eye(classes)[random.integers(0, classes, shape[:-1])]
    if task == "kl":
        e = np.exp(random.normal(size=shape))
        return e / e.sum(-1, keepdims=True)
    if task == "binary":
        return random.integers(0, 2, shape)
    if task == "hinge":
        return random.integers(0, 2, shape) * 2 - 1
    if task == "poisson":
        return random.poisson(2, shape)
    return random.normal(size=shape)


def weights(head, random, n, mode):
    w = random.uniform(0.2, 2, (n, *(positions(head) if mode == "rows" else ())))
    w[random.random(w.shape) < 0.2] = 0
    w.reshape(-1)[0] = 1
    return w


def class_weights(head, y):
    """The weight of each target's class."""
    if not head["class_weight"]:
        return np.ones(y.shape[:1 + len(positions(head))])
    classes = y if head["task"] == "sparse" else y[..., 0] if y.shape[-1] == 1 else y.argmax(-1)
    table = dict(map(tuple, head["class_weight"]))
    return np.vectorize(lambda c: table.get(int(c), 1.0), otypes=[float])(classes)


def kernel_of(v, random):
    shape = tuple(v.shape)
    if v.name in ("gamma", "scale", "moving_variance"):
        return random.uniform(0.5, 1.5, shape)
    if v.name in ("beta", "bias", "moving_mean"):
        return random.normal(0, 0.3, shape)
    if v.name in ("embeddings", "alpha"):
        return random.normal(0, 0.6, shape)
    fan = math.prod(shape[:2]) if "depthwise" in v.path and v.name != "pointwise_kernel" else math.prod(shape[:-1])
    return random.normal(size=shape) / math.sqrt(max(1, fan))


def inputs(network, name, shape, random, n):
    """Numbers of words, about a third of which are 0, or numbers, with steps of padding if the network masks them. Each
    example has a step that is not padding: Keras' mean of no steps is NaN."""
    is_padding = random.random((n, shape[0])) < 0.3
    is_padding[np.arange(n), random.integers(0, shape[0], n)] = False
    if name in network["integers"]:
        return np.where(is_padding, 0, random.integers(1, network["integers"][name], (n, *shape)))
    values = random.normal(size=(n, *shape)).astype(np.float32).astype(np.float64)
    if name in network["masked"]:
        values[is_padding] = network["masked"][name]
    return values


def numpy(value):
    return np.asarray(ops.convert_to_numpy(value), np.float64)


def build(network):
    keras.backend.clear_session()
    builder, graph = Builder(network), network["graph"]
    inputs = [keras.Input(tuple(shape), name=name, dtype="int64" if name in network["integers"] else "float64")
              for name, shape in graph["inputs"]]
    outputs = builder.graph(graph, inputs)
    names = [head["output"] for head in graph["heads"]]
    model = keras.Model({name: value for (name, _), value in zip(graph["inputs"], inputs)}, {
        name: kl.Identity(name=name)(value) for name, value in zip(names, outputs)})

    def call(values, training=None, mask=None):
        # In the order of the statements: Keras' own order of calls depends on depths, and so do shared moving statistics.
        return dict(zip(names, builder.graph(graph, [values[name] for name, _ in graph["inputs"]])))
    model.call = call
    return model


def train(network):
    """(data for lockstep, results of Keras), arrays by name."""
    random = np.random.default_rng(1_000_000 + network["seed"])
    graph, heads = network["graph"], network["graph"]["heads"]
    model = build(network)
    for head in heads:
        assert tuple(model.output[head["output"]].shape[1:]) == tuple(head["shape"]), (model.output, head)
    data, results = {}, {}
    for v in model.weights:
        v.assign(kernel_of(v, random).astype(np.float32).astype(np.float64))
        data[f"init/{name_of(v)}"] = numpy(v)
    losses = {head["output"]: Masked(loss(head["loss"])) for head in heads}
    model.compile(loss=losses, loss_weights={head["output"]: head["weight"] for head in heads}, optimizer=optimizer(network["optimizer"]))
    for step, n in enumerate(network["batches"]):
        x = {name: inputs(network, name, shape, random, n) for name, shape in graph["inputs"]}
        y = {head["output"]: targets(head, random, n) for head in heads}
        mode = network["weights"]
        if mode == "examples":
            one = weights({"shape": [1]}, random, n, mode)
            w = {head["output"]: one for head in heads}
        else:
            w = {head["output"]: weights(head, random, n, mode) if mode else np.ones((n, *positions(head))) for head in heads}
        given, untrained = {}, {}
        for head in heads:
            name = head["output"]
            each = w[name].reshape(n, *[1] * (len(positions(head)) + 1 - w[name].ndim), *w[name].shape[1:])
            each = np.broadcast_to(each, (n, *positions(head)))
            mask = (each != 0) | (not head["masks"])
            given[name] = (mask, each * class_weights(head, y[name]))
            untrained[name] = (mask, each)
        data[f"x{step}"] = np.concatenate([np.asarray(x[name], float).reshape(n, -1) for name, _ in graph["inputs"]], 1)
        data[f"y{step}"] = np.concatenate([np.asarray(y[head["output"]], float).reshape(n, -1) for head in heads], 1)
        if mode:
            data[f"w{step}"] = one if mode == "examples" else np.concatenate([w[head["output"]].reshape(n, -1) for head in heads], 1)
        if step == 0:
            first = x, y, untrained
        logs = on_batch(model, x, y, given, True)
        for name, value in logs.items():
            results.setdefault(f"loss/{name}", []).append(value)
    logs = on_batch(model, *first, False)
    results |= {f"test/{name}": [value] for name, value in logs.items()}
    predicted = model(first[0], training=False)
    results["predict"] = np.concatenate([numpy(predicted[head["output"]]).reshape(len(data["x0"]), -1) for head in heads], 1)
    results |= {f"weights/{name_of(v)}": numpy(v) for v in model.weights}
    return data, results


def on_batch(model, x, y, weights, trains):
    """Keras' own step, which passes the mask with the weights."""
    tensors = {name: tuple(ops.convert_to_tensor(part) for part in parts) for name, parts in weights.items()}
    data = ({name: ops.convert_to_tensor(v) for name, v in x.items()}, {name: ops.convert_to_tensor(v) for name, v in y.items()}, tensors)
    model.reset_metrics()
    logs = model.train_step(data) if trains else model.test_step(data)
    return {name: float(value) for name, value in logs.items()}
