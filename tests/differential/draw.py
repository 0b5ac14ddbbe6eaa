"""Random networks as graphs, with heads, an optimizer and the sizes of five batches. A network is a dictionary that
cpp.py writes as C++ and keras_side.py builds in Keras. Every number that lockstep keeps in float32 (epsilon, momentum of
statistics, slopes) is a sum of few powers of two, so that float64 has the same value."""
import math

import numpy as np

LARGEST = 240  # elements of a value
WIDEST = 12    # channels of a value that is not a vector
ACTIVATIONS = ["elu", "leaky_relu", "relu", "relu6", "sigmoid", "silu", "softmax", "softplus", "tanh"]
ACTIVATION_LAYERS = ["ELU", "LeakyReLU", "LogSoftmax", "ReLU", "ReLU6", "Sigmoid", "SiLU", "Softmax", "Softplus", "Tanh"]
BY_ELEMENTS = [name for name in ACTIVATIONS if name != "softmax"]  # activations of recurrent layers
RULES = ["Add", "Average", "Concatenate", "Dot", "Maximum", "Minimum", "Multiply", "Subtract"]
RECURRENT = ["LSTM", "GRU", "SimpleRNN"]
ATTENTION = ["MultiHeadAttention", "GroupedQueryAttention"]
BLOCKS = ["Residual", "Parallel", "Recompute", "Frozen", "Frozen", "Graph", "Shared"]
# Layers whose parameters depend on the last axis and the rank alone.
BY_CHANNELS = {"Conv1D", "Conv2D", "DepthwiseConv2D", "SeparableConv2D", "BatchNormalization", "LayerNormalization",
               "RMSNormalization", "GroupNormalization", "PositionEmbedding", "Bidirectional", *RECURRENT, *ATTENTION}


def window(extent, size, stride, dilation, padding):
    return -(-extent // stride) if padding == "same" else (extent - (size - 1) * dilation - 1) // stride + 1


def out_shape(layer, s, shared):
    """The shape that a layer or block makes of s; None if it does not accept s."""
    k = layer["k"]
    if k in ("Chain", "Recompute", "Frozen"):
        return out_of_chain(layer["block"], s, shared)
    if k == "Shared":
        entry = shared[layer["key"]]
        if tuple(s) != tuple(entry["input"]) and not entry["by_channels"]:
            return None
        if len(s) != len(entry["input"]) or s[-1] != entry["input"][-1]:
            return None
        return out_of_chain(entry["block"], s, shared)
    if k == "TiedDense":
        rows, columns = layer["matrix"]
        return s[:-1] + (rows,) if s[-1] == columns else None
    if k == "Residual":
        return s
    if k == "Parallel":
        outs = [out_of_chain(b, s, shared) for b in layer["branches"]]
        return merged(layer["rule"], outs)
    if k == "Graph":
        return tuple(layer["graph"]["outputs"][0]) if tuple(layer["graph"]["inputs"][0][1]) == tuple(s) else None
    if k == "Dense":
        return s[:-1] + (layer["units"],)
    if k == "Embedding":
        return s + (layer["units"],)
    if k in ("Conv1D", "Conv2D", "DepthwiseConv2D", "SeparableConv2D", "MaxPooling1D", "AveragePooling1D",
             "MaxPooling2D", "AveragePooling2D"):
        if len(s) != len(layer["size"]) + 1:
            return None
        out = tuple(window(*a, layer["padding"]) for a in zip(s, layer["size"], layer["strides"], layer["dilation"]))
        if min(out) < 1 or "Pool" in k and any(a > b for a, b in zip(layer["size"], s)):
            return None
        channels = s[-1] * layer.get("multiplier", 1) if k == "DepthwiseConv2D" else layer.get("filters", s[-1])
        return out + (channels,)
    if k in RECURRENT:
        return (s[0], layer["units"]) if layer["sequences"] else (layer["units"],)
    if k == "Bidirectional":
        out = out_shape(layer["layer"], s, shared)
        return out[:-1] + (out[-1] * (2 if layer["rule"] == "Concatenate" else 1),)
    if k in ATTENTION:
        return (s[0], layer["outputs"] or s[1])
    if k == "PositionEmbedding":
        return s if s[0] <= layer["positions"] else None
    if k == "TimeDistributed":
        step = out_shape(layer["layer"], s[1:], shared)
        return step and s[:1] + step
    if k in ("ZeroPadding1D", "Cropping1D"):
        extent = s[0] + sum(layer["edges"]) * (1 if k[0] == "Z" else -1)
        return (extent, s[1]) if extent > 0 else None
    if k == "UpSampling1D":
        return (s[0] * layer["n"], s[1])
    if k == "Conv2DTranspose":
        return tuple((e - 1) * t + max(a, t) for e, a, t in zip(s, layer["size"], layer["strides"])) + (layer["filters"],)
    if k == "UpSampling2D":
        return (s[0] * layer["size"][0], s[1] * layer["size"][1], s[2])
    if k == "ZeroPadding2D":
        t, b, l, r = layer["edges"]
        return (s[0] + t + b, s[1] + l + r, s[2])
    if k.startswith("Global"):
        return s[-1:]
    if k == "Flatten":
        return (math.prod(s),)
    if k == "Reshape":
        return tuple(layer["target"])
    if k == "Permute":
        return tuple(s[d - 1] for d in layer["dims"])
    if k == "RepeatVector":
        return (layer["n"],) + s
    return s


def out_of_chain(layers, s, shared):
    for layer in layers:
        s = s and out_shape(layer, s, shared)
    return s


def merged(rule, shapes, axis=None):
    """The shape of merged values; None if the rule does not accept them."""
    if any(s is None for s in shapes):
        return None
    if rule == "Concatenate":
        if len({s[:-1] for s in shapes}) > 1:
            return None
        return shapes[0][:-1] + (sum(s[-1] for s in shapes),)
    if rule == "ConcatenateOn":
        if len(shapes[0]) < 2 or len({s[1:] for s in shapes}) > 1:
            return None
        return (sum(s[0] for s in shapes),) + shapes[0][1:]
    if rule == "Dot":
        a, b = shapes
        if len(a) != len(b) or len(a) > 2 or a[axis - 1] != b[axis - 1]:
            return None
        return a[:axis - 1] + a[axis:] + b[:axis - 1] + b[axis:] or (1,)
    return shapes[0] if len(set(shapes)) == 1 else None


def nodes(of, shared):
    """All layers, blocks and rules of a part of a network, those of a shared block in each call."""
    if isinstance(of, dict):
        if "k" in of:
            yield of
        if of.get("k") == "Shared":
            yield from nodes(shared[of["key"]]["block"], shared)
        of = list(of.values())
    if isinstance(of, list):
        for part in of:
            yield from nodes(part, shared)


def freezes_later(of, shared, frozen=False, first=None):
    """Whether a call of a shared block is frozen although its first call is not, which lockstep rejects."""
    first = {} if first is None else first
    if isinstance(of, dict):
        frozen = frozen or of.get("k") == "Frozen"
        if of.get("k") in ("Shared", "TiedDense"):
            if frozen > first.setdefault(of["key"], frozen):
                return True
            if of["k"] == "Shared" and freezes_later(shared[of["key"]]["block"], shared, frozen, first):
                return True
        of = list(of.values())
    return isinstance(of, list) and any(freezes_later(part, shared, frozen, first) for part in of)


def has_statistics(network):
    return any(node["k"] == "BatchNormalization" for node in nodes(network["graph"], network["shared"]))


def has_masks(network):
    return any(node["k"] == "Masking" or node.get("mask_zero") for node in nodes(network["graph"], network["shared"]))


def is_exported(network):
    """Whether the network has forms in other frameworks: those with masks and TimeDistributed do not."""
    return not has_masks(network) and all(node["k"] != "TimeDistributed" for node in nodes(network["graph"], network["shared"]))


def communicates(network):
    """Whether layers exchange statistics, so that batches cannot be cut into slices."""
    return network["synchronized"] and has_statistics(network)


class Drawer:
    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.seed = seed
        self.synchronized = self.p(0.4)
        self.sequences = self.p(0.5)  # more steps than images

    def i(self, a, b):
        return int(self.random.integers(a, b + 1))

    def p(self, share):
        return bool(self.random.random() < share)

    def pick(self, of):
        return of[int(self.random.integers(len(of)))]

    def dyadic(self, low, high):
        return max(1, round(float(self.random.uniform(low, high)) * 64)) / 64

    def name(self, letter):
        self.names += 1
        return f"{letter}{self.names}"

    # Layers.

    def regularizer(self):
        if not self.p(0.12):
            return None
        kind = self.pick(["L1", "L2", "L1L2"])
        return {"k": kind, "l1": 0 if kind == "L2" else self.i(1, 8) / 1024, "l2": 0 if kind == "L1" else self.i(1, 8) / 1024}

    def affine(self):
        bias = not self.p(0.2)
        return {"bias": bias, "activation": self.pick(ACTIVATIONS) if self.p(0.4) else None,
                "regularizer": self.regularizer(), "bias_regularizer": self.regularizer() if bias else None}

    def extents(self, n, low, high):
        first = self.i(low, high)
        return [first if self.p(0.6) else self.i(low, high) for _ in range(n)]

    def kinds(self, rank):
        common = ["Dense", "Dense", "BatchNormalization", "BatchNormalization", "LayerNormalization", "RMSNormalization",
                  "GroupNormalization", "Act", "Act", "PReLU", "Rescaling"]
        return common + {1: ["Reshape", "RepeatVector"],
                         2: ["Conv1D"] * 3 + RECURRENT + ["Bidirectional"] * 3 + ATTENTION * 2 + [
                             "PositionEmbedding", "TimeDistributed", "TimeDistributed", "Pool", "Flatten", "Global", "Permute",
                             "ZeroPadding1D", "Cropping1D", "UpSampling1D"],
                         3: ["Conv2D"] * 4 + ["DepthwiseConv2D", "SeparableConv2D", "Conv2DTranspose", "Pool", "Pool",
                                              "UpSampling2D", "ZeroPadding2D", "Flatten", "Global", "Permute"] +
                         ["TimeDistributed"],
                         4: ["Flatten", "Reshape"]}[rank]

    def one(self, s, kinds):
        k, n = self.pick(kinds), len(s) - 1
        layer = {"k": k}
        if k == "Dense":
            layer |= {"units": self.i(1, 7)} | self.affine()
        elif k == "RMSNormalization":
            layer |= {"epsilon": 2.0**-self.i(6, 9)}
        elif k == "GroupNormalization":
            layer |= {"groups": self.pick([-1] + [g for g in range(1, s[-1] + 1) if s[-1] % g == 0])}
            layer |= {"epsilon": 2.0**-self.i(6, 9), "center": not self.p(0.2), "scale": not self.p(0.2)}
        elif k in RECURRENT:
            layer = self.recurrent(k)
        elif k == "Bidirectional":
            layer |= {"layer": self.recurrent(self.pick(RECURRENT)) | {"backwards": False, "zero": False},
                      "rule": self.pick(["Concatenate", "Concatenate", "Add", "Multiply", "Average"])}
        elif k in ATTENTION:
            layer = self.attention(k)
        elif k == "PositionEmbedding":
            layer |= {"positions": s[0] + self.i(0, 3), "regularizer": self.regularizer()}
        elif k == "TimeDistributed":
            kinds = ["Dense", "LayerNormalization", "RMSNormalization", "Act", "Rescaling"] + (
                ["Conv1D", "Conv1D", "LSTM", "GRU", "Global"] if n == 2 else [])
            layer["layer"] = self.one(s[1:], kinds)
        elif k in ("ZeroPadding1D", "Cropping1D"):
            layer["edges"] = [self.i(0, 2), self.i(0, 1)]
        elif k == "UpSampling1D":
            layer["n"] = self.i(1, 3)
        elif k in ("BatchNormalization", "LayerNormalization"):
            layer |= {"epsilon": 2.0**-self.i(6, 9), "center": not self.p(0.2), "scale": not self.p(0.2)}
            if k[0] == "B":
                layer |= {"momentum": self.pick([0.5, 0.75, 0.875]), "synchronized": self.synchronized}
        elif k == "Act":
            layer["k"] = self.pick(ACTIVATION_LAYERS)
        elif k == "PReLU":
            layer["axes"] = list(range(1, len(s))) if self.p(0.5) else []
        elif k == "Rescaling":
            layer |= {"factor": self.dyadic(0.3, 2), "offset": self.dyadic(0, 1)}
        elif k in ("Conv1D", "Conv2D", "DepthwiseConv2D", "SeparableConv2D"):
            layer |= {"size": self.extents(n, 1, 4), "strides": [1] * n, "dilation": [1] * n,
                      "padding": self.pick(["same", "valid"])} | self.affine()
            if self.p(0.3):
                layer["strides"] = self.extents(n, 1, 2) if k == "Conv2D" else [2] * n
            elif self.p(0.3):
                layer["dilation"] = [2] * n
            if k in ("DepthwiseConv2D", "SeparableConv2D"):
                layer["multiplier"] = self.i(1, 2)
            if k != "DepthwiseConv2D":
                layer["filters"] = self.i(1, 6)
        elif k == "Conv2DTranspose":
            layer |= {"filters": self.i(1, 4), "size": self.extents(2, 1, 3), "strides": self.extents(2, 1, 2)} | self.affine()
        elif k == "Pool":
            layer["k"] = self.pick(["MaxPooling", "AveragePooling"]) + f"{n}D"
            layer |= {"size": self.extents(n, 1, 3), "padding": self.pick(["same", "valid"]), "dilation": [1] * n}
            layer["strides"] = layer["size"] if self.p(0.6) else self.extents(n, 1, 2)
        elif k == "UpSampling2D":
            layer |= {"size": self.extents(2, 1, 2), "interpolation": self.pick(["nearest", "bilinear"])}
        elif k == "ZeroPadding2D":
            layer["edges"] = [self.i(0, 1) for _ in range(4)]
        elif k == "Global":
            layer["k"] = self.pick(["GlobalAveragePooling", "GlobalMaxPooling"]) + f"{n}D"
        elif k == "Reshape":
            size, target = math.prod(s), []
            for _ in range(self.i(0, 2)):
                target.append(self.pick([d for d in range(1, min(size, WIDEST) + 1) if size % d == 0]))
                size //= target[-1]
            layer["target"] = target + [size]
        elif k == "Permute":
            layer["dims"] = [int(d) + 1 for d in self.random.permutation(len(s))]
        elif k == "RepeatVector":
            layer["n"] = self.i(1, 4)
        return layer

    def recurrent(self, k):
        layer = {"k": k, "units": self.i(1, 5)} | self.affine() | {
            "activation": self.pick(BY_ELEMENTS) if self.p(0.3) else None, "recurrent_regularizer": self.regularizer(),
            "sequences": self.p(0.7), "backwards": self.p(0.3), "zero": self.p(0.3)}
        if k != "SimpleRNN":
            layer["gates"] = self.pick(BY_ELEMENTS) if self.p(0.3) else None
        if k == "GRU":
            layer["resets_after"] = self.p(0.6)
        return layer

    def attention(self, k):
        """One whose result has the features of the query."""
        heads = self.i(1, 4)
        layer = {"k": k, "heads": heads, "dim": self.i(1, 4), "outputs": None, "causal": self.p(0.4),
                 "window": self.i(1, 4) if self.p(0.25) else None, "rotary": None} | self.affine()
        if self.p(0.25):
            layer["dim"] *= 2
            layer["rotary"] = {"max_wavelength": self.pick([16, 100, 10000]), "scaling_factor": self.pick([1, 2]), "pairs": self.p(0.5)}
        if k == "GroupedQueryAttention":
            layer["kv_heads"] = self.pick([h for h in range(1, heads + 1) if heads % h == 0])
        else:
            layer["value_dim"] = self.i(1, 3) if self.p(0.4) else None
            layer["outputs"] = self.i(1, 6) if self.p(0.3) else None
        return layer

    def fits(self, s):
        return s is not None and min(s) >= 1 and math.prod(s) <= LARGEST and (len(s) == 1 or s[-1] <= WIDEST)

    def layer(self, s, depth=0, kinds=None):
        """A layer or block for the shape s, and the shape that it makes."""
        while True:
            if kinds is None and depth < 3 and self.p(0.25):
                layer = self.block(s, depth + 1)
            else:
                layer = self.one(s, kinds or self.kinds(len(s)))
            out = layer and out_shape(layer, s, self.shared)
            if self.fits(out):
                return layer, out

    def chain(self, s, n, depth=0):
        layers = []
        for _ in range(n):
            layer, s = self.layer(s, depth)
            layers.append(layer)
        return layers, s

    def keeping(self, s, n, depth=0):
        """Layers that keep the shape s."""
        layers = []
        kinds = ["BatchNormalization", "LayerNormalization", "RMSNormalization", "GroupNormalization", "Act", "Dense", "PReLU"] + (
            ["Conv1D", *RECURRENT, *ATTENTION, "PositionEmbedding"] if len(s) == 2 else ["Conv2D", "DepthwiseConv2D"] if len(s) == 3 else [])
        for _ in range(n):
            layer = self.one(s, kinds)
            if "units" in layer:
                layer["units"] = s[-1]
            if "sequences" in layer:
                layer["sequences"] = True
            if "outputs" in layer:
                layer["outputs"] = None
            if "size" in layer:
                layer |= {"padding": "same", "strides": [1] * len(layer["size"]), "multiplier": 1}
                if "filters" in layer:
                    layer["filters"] = s[-1]
            layers.append(layer)
        if self.p(0.3) and depth < 3:
            layers.append({"k": self.pick(["Frozen", "Recompute"]), "block": self.keeping(s, 1, depth + 1)})
        return layers

    def block(self, s, depth):
        k = self.pick(BLOCKS)
        if k == "Residual":
            return {"k": k, "main": self.keeping(s, self.i(1, 3), depth), "skip": self.keeping(s, self.i(0, 1), depth)}
        if k == "Parallel":
            rule = self.pick([rule for rule in RULES if rule != "Dot"])
            n = 2 if rule == "Subtract" else self.i(2, 4)
            return {"k": k, "rule": rule, "branches": [self.keeping(s, self.i(0 if rule not in ("Maximum", "Minimum") else 1, 2),
                                                                    depth) for _ in range(n)]}
        if k == "Graph":
            return {"k": k, "graph": self.graph([("p" + str(self.names), s)], depth + 1, outputs=1)}
        if k == "Shared":
            return self.share(s, depth)
        return {"k": k, "block": self.chain(s, self.i(1, 2), depth)[0]}

    def share(self, s, depth=0):
        """A further call of a shared block, or the first of a new one."""
        known = [key for key, entry in self.shared.items() if entry["block"][0]["k"] != "Embedding" and out_shape({"k": "Shared", "key": key}, s, self.shared)]
        if known and self.p(0.7):
            return {"k": "Shared", "key": self.pick(known)}
        block = self.keeping(s, self.i(1, 2), 9) if self.p(0.5) else self.chain(s, self.i(1, 2), depth + 1)[0]
        key = self.name("k")
        self.shared[key] = {"input": list(s), "block": block, "by_channels": all(
            layer["k"] in BY_CHANNELS | {"Act", *ACTIVATION_LAYERS} or layer["k"] == "Dense" for layer in block)}
        return {"k": "Shared", "key": key}

    # Graphs.

    def graph(self, inputs, depth=0, outputs=1):
        """Statements over the inputs [(name, shape)], of which the last have all values that nothing else reads. Below the
        network itself: outputs without a head."""
        values, unread, statements = {name: tuple(shape) for name, shape in inputs}, [name for name, _ in inputs], []
        integers = {name for name, _ in inputs if name in self.integers}

        def add(sources, rule, layers, shape, options=None):
            name = self.name("v")
            statements.append({"name": name, "from": sources, "rule": rule, "layers": layers} | (options or {}))
            for source in sources:
                if source in unread:
                    unread.remove(source)
            values[name] = shape
            unread.append(name)
            return name

        def choose():
            open_ones = [name for name in unread if name not in integers]
            return self.pick(open_ones) if open_ones and self.p(0.75) else self.pick(
                [name for name in values if name not in integers])

        def vector(name):
            s, layers = values[name], []
            if len(s) > 1:
                layer = {"k": f"GlobalAveragePooling{len(s) - 1}D"} if len(s) < 4 and self.p(0.5) else {"k": "Flatten"}
                layers, s = [layer], out_shape(layer, s, self.shared)
                return add([name], None, layers, s)
            return name

        for name in sorted(integers):
            for _ in range(1 + self.p(0.3)):
                source = name
                if self.p(0.15):
                    source = add([name], None, [], values[name])
                    integers.add(source)
                layer, units = self.table(values[name], self.integers[name])
                if self.p(0.15):
                    layer = {"k": "Frozen", "block": [layer]}
                add([source], None, [layer], values[source] + (units,))

        for name, shape in inputs if not depth else []:
            if name not in integers and len(shape) == 2 and self.p(0.5):
                self.masked[name] = self.pick([0, 0, 0.5, -1])
                add([name], None, [{"k": "Masking", "value": self.masked[name]}], tuple(shape))

        for _ in range(self.i(1, 2) if depth else self.i(2, 5)):
            move = self.pick(["chain", "chain", "merge", "merge", "siamese", "tie", "graph", "alias"] + ["attend"] * self.sequences)
            if move == "graph" and depth > 1:
                move = "chain"
            if move == "attend":
                sequences = {name: s for name, s in values.items() if name not in integers and len(s) == 2}
                if not sequences:
                    continue
                names = [self.pick(list(sequences)) for _ in range(2)]
                if self.p(0.4):
                    names.append(self.pick([name for name, s in sequences.items() if s[0] == sequences[names[1]][0]]))
                are_alike = len({values[name][1] for name in names}) == 1  # Keras' GroupQueryAttention accepts no others
                layer = self.attention(self.pick(ATTENTION) if are_alike else "MultiHeadAttention")
                add(names, layer, [], out_shape(layer, values[names[0]], self.shared))
            elif move == "chain":
                source = choose()
                layers, s = self.chain(values[source], self.i(1, 3), depth)
                add([source], None, layers, s)
            elif move == "alias":
                source = choose()
                add([source], None, [], values[source])
            elif move == "siamese":
                source = choose()
                call = self.share(values[source], depth)
                others = [name for name, s in values.items() if name not in integers and out_shape(call, s, self.shared)]
                for name in dict.fromkeys([source, self.pick(others)]) if self.p(0.6) else [source, source]:
                    layers = [{"k": "Frozen", "block": [call]}] if self.p(0.1) else [call]
                    if self.p(0.3) and out_shape(call, values[name], self.shared) == values[name]:
                        layers = layers + [{"k": "Tanh"}, call]
                    s = out_of_chain(layers, values[name], self.shared)
                    if self.fits(s):
                        add([name], None, layers, s)
            elif move == "tie":
                tables = [key for key in self.shared if len(self.shared[key]["block"]) == 1 and self.matrix(key)
                          and self.is_called(statements, key)]
                source = choose()
                layers, s = [], values[source]
                if not tables:
                    key, units = self.name("k"), self.i(1, 5)
                    self.shared[key] = {"input": list(s), "by_channels": False, "block": [
                        {"k": "Dense", "units": units, "bias": False, "activation": None, "regularizer": self.regularizer(),
                         "bias_regularizer": None}]}
                    layers, s = [{"k": "Shared", "key": key}, {"k": self.pick(["Tanh", "ReLU"])}], s[:-1] + (units,)
                else:
                    key = self.pick(tables)
                rows, columns = self.matrix(key)
                if s[-1] != columns:
                    layers.append({"k": "Dense", "units": columns, "bias": True, "activation": "tanh", "regularizer": None,
                                   "bias_regularizer": None})
                layers.append({"k": "TiedDense", "key": key, "matrix": [rows, columns]})
                s = s[:-1] + (rows,)
                if self.fits(s):
                    add([source], None, layers, s)
            elif move == "merge":
                self.merge({name: s for name, s in values.items() if name not in integers}, values, choose, add, vector, depth)
            else:
                names = [choose(), choose()]
                called = self.graph_of(names, values, depth)
                outs = called["outputs"]
                add(names, {"k": "Graph", "graph": called}, [], tuple(outs[0]), {"parts": [
                    (o["name"], o["shape"]) for o in called["statements"] if o["out"]]} if len(outs) > 1 else None)
                if len(outs) > 1:
                    name = statements[-1]["name"]
                    unread.remove(name)
                    del values[name]
                    for part, shape in statements[-1]["parts"]:
                        values[f"{name}/{part}"] = tuple(shape)
                        unread.append(f"{name}/{part}")
        for statement in statements:
            statement["out"] = False
        heads = []
        for o in range(outputs):
            last = o == outputs - 1
            sources = [choose()]
            if last:
                sources = list(dict.fromkeys([name for name in unread if name not in self.outs] or sources))
            if len(sources) > 1:
                sources = [vector(name) for name in sources]
                rule = {"k": "Concatenate"}
                s = (sum(values[name][0] for name in sources),)
            else:
                rule, s = None, values[sources[0]]
            layers = []
            if depth:
                if self.p(0.7):
                    layers, s = self.chain(s, 1, depth + 1)
            else:
                layers, s, head = self.head(s, last)
            name = add(sources, rule, layers, s, {"out": True, "shape": list(s)})
            self.outs.add(name)
            unread.remove(name)
            if not depth:
                heads.append({"output": name, "shape": list(s)} | head)
        for statement in statements:
            statement.setdefault("out", False)
        return {"inputs": [[name, list(shape)] for name, shape in inputs], "statements": statements,
                "outputs": [st["shape"] for st in statements if st["out"]], "heads": heads}

    def table(self, s, vocabulary):
        """An Embedding, shared or not, and its units."""
        layer = {"k": "Embedding", "vocabulary": vocabulary, "units": self.i(1, 5), "regularizer": self.regularizer(),
                 "mask_zero": self.p(0.6)}
        if self.p(0.4):
            return layer, layer["units"]
        for key, entry in self.shared.items():
            first = entry["block"][0]
            if first["k"] == "Embedding" and first["vocabulary"] == vocabulary and entry["input"] == list(s) and self.p(0.7):
                return {"k": "Shared", "key": key}, first["units"]
        key = self.name("k")
        self.shared[key] = {"input": list(s), "block": [layer], "by_channels": False}
        return {"k": "Shared", "key": key}, layer["units"]

    def graph_of(self, names, values, depth):
        """A graph that takes two values."""
        n = self.name("g")
        return self.graph([(f"{n}p", values[names[0]]), (f"{n}q", values[names[1]])], depth + 1, self.i(1, 2))

    def is_called(self, statements, key):
        def within(node):
            if isinstance(node, dict):
                return node.get("key") == key or any(within(v) for v in node.values())
            return isinstance(node, (list, tuple)) and any(within(v) for v in node)
        return within(statements)

    def matrix(self, key):
        """(rows, columns) of a shared layer that has one matrix."""
        layer = self.shared[key]["block"][0]
        if layer["k"] == "Embedding":
            return [layer["vocabulary"], layer["units"]]
        if layer["k"] == "Dense" and not layer["bias"]:
            return [self.shared[key]["input"][-1], layer["units"]]
        return None

    def merge(self, numbers, values, choose, add, vector, depth):
        rule = self.pick(RULES + ["ConcatenateOn"] * self.sequences)
        first = choose()
        most = 2 if rule in ("Subtract", "Dot") else 4
        axis = self.i(1, len(values[first])) if rule == "Dot" and len(values[first]) < 3 else 1
        fitting = [name for name in numbers if merged(rule, [values[first], values[name]], axis)]
        if rule in ("Maximum", "Minimum"):  # PyTorch divides the gradient of equal values
            fitting = [name for name in fitting if name != first]
        n = min(self.i(2, most), most)
        if not fitting and rule == "ConcatenateOn":
            return
        if rule == "Dot" and len(values[first]) > 2 or not fitting or fitting == [first] and self.p(0.8):
            # Two vectors of one length.
            others = [name for name in numbers if name != first]
            if not others:
                return
            names, width = [], self.i(1, 6)
            for name in (first, self.pick(others)):
                name = vector(name)
                layers = [{"k": "Dense", "units": width} | self.affine()]
                names.append(add([name], None, layers, (width,)))
            axis = 1
        elif rule in ("Maximum", "Minimum"):
            names = [first] + [str(name) for name in self.random.permutation(fitting)][:n - 1]
        else:
            names = [first] + [self.pick(fitting) for _ in range(n - 1)]
        s = merged(rule, [values[name] for name in names], axis)
        layers, out = self.chain(s, self.i(0, 1), depth) if self.fits(s) else ([], s)
        if not self.fits(out):
            return
        options = {"k": rule}
        if rule == "Dot":
            options |= {"axis": axis, "normalize": self.p(0.5)}
        add(names, options, layers, out)

    # Heads and the rest.

    def head(self, s, last):
        """Last layers for a loss, their shape, and the loss with its options."""
        task = self.pick(["sparse", "sparse", "sparse", "categorical", "binary", "regression", "regression", "poisson", "kl",
                          "hinge", "cosine"])
        layers = []
        if len(s) > 1 and not self.p(0.6):
            layers.append({"k": "Flatten"} if len(s) == 4 or self.p(0.5) else {"k": f"GlobalMaxPooling{len(s) - 1}D"})
            s = out_shape(layers[0], s, self.shared)
        units = self.i(2, 6) if task in ("sparse", "categorical", "kl", "cosine") else self.i(1, 4)
        bare = task in ("regression", "hinge") and self.p(0.3) and not last
        if not bare:
            layers.append({"k": "Dense", "units": units, "bias": not self.p(0.2), "activation": None,
                           "regularizer": self.regularizer(), "bias_regularizer": None})
            s = s[:-1] + (units,)
        loss, end = {}, None
        if task in ("sparse", "categorical", "binary"):
            logits = self.p(0.6)
            loss = {"k": {"sparse": "SparseCategoricalCrossentropy", "categorical": "CategoricalCrossentropy",
                          "binary": "BinaryCrossentropy"}[task], "from_logits": logits}
            end = None if logits else "Sigmoid" if task == "binary" else "Softmax"
            if task == "sparse" and self.p(0.4):
                loss["ignore_class"] = self.pick([-1, 255])
            if task != "sparse" and self.p(0.4):
                loss["label_smoothing"] = self.pick([0.125, 0.25])
        elif task == "kl":
            loss, end = {"k": "KLDivergence"}, "Softmax"
        elif task == "poisson":
            loss, end = {"k": "Poisson"}, "Softplus"
        elif task == "hinge":
            loss, end = {"k": "Hinge"}, None if bare or self.p(0.5) else "Tanh"
        elif task == "cosine":
            loss = {"k": "CosineSimilarity"}
        else:
            k = self.pick(["MeanSquaredError", "MeanAbsoluteError", "Huber", "LogCosh"])
            loss = {"k": k} | ({"delta": self.dyadic(0.2, 2)} if k == "Huber" else {})
        if end:
            layers.append({"k": end})
        head = {"task": task, "loss": loss, "weight": 0 if self.p(0.05) else self.pick([1, 1, 1, 2, 0.5, 0.25, 1.5]), "masks": self.p(0.4),
                "class_weight": None}
        if self.p(0.35) and (task in ("sparse", "categorical") or task == "binary" and s[-1] == 1):
            classes = range(2 if task == "binary" else s[-1])
            head["class_weight"] = [[c, self.dyadic(0.2, 3)] for c in classes if self.p(0.7)] or [[0, 2.0]]
        return layers, s, head

    def optimizer(self):
        if self.p(0.5):
            o = {"k": "SGD", "learning_rate": self.dyadic(0.01, 0.15), "momentum": self.pick([0.0, 0.5, 0.75, 0.875])}
            if o["momentum"]:
                o["nesterov"] = self.p(0.5)
        else:
            o = {"k": "Adam", "learning_rate": self.dyadic(0.01, 0.05), "beta_1": self.pick([0.875, 0.9]),
                 "beta_2": self.pick([0.96875, 0.999]), "epsilon": 2.0**-10, "amsgrad": self.p(0.3)}
        if self.p(0.2):
            o["weight_decay"] = self.dyadic(0.01, 0.1)
        o["with"] = {}
        if self.p(0.3):
            o["with"][self.pick(["clipnorm", "global_clipnorm", "clipvalue"])] = self.dyadic(0.05, 1)
        if self.p(0.15):
            o["with"]["gradient_accumulation_steps"] = 2
        return o

    def input_shape(self):
        kind = self.pick(["vector", "steps", "steps", "integers", "integers"] if self.sequences else
                         ["vector", "vector", "image", "image", "steps", "integers"])
        if kind == "vector":
            return (self.i(1, 9),), None
        if kind == "image":
            return (self.i(1, 8), self.i(1, 8), self.i(1, 3)), None
        if kind == "steps":
            return (self.i(1, 8), self.i(1, 5)), None
        return (self.i(1, 6),), self.i(2, 12)

    def network(self):
        """One with a layer that has several calls, a frozen part, and three inputs and outputs or more."""
        while True:
            network = self.candidate()
            graph = network["graph"]
            calls = [node.get("key") for node in nodes(graph, self.shared)]
            if freezes_later(graph, self.shared):
                continue
            if (any(key and calls.count(key) > 1 for key in calls) and len(graph["inputs"]) + len(graph["outputs"]) > 2
                    and any(node["k"] == "Frozen" for node in nodes(graph, self.shared))):
                return network

    def candidate(self):
        self.shared, self.names, self.integers, self.masked, self.outs = {}, 0, {}, {}, set()
        inputs = []
        for n in range(self.i(1, 3)):
            if inputs and self.p(0.4):
                shape, vocabulary = inputs[-1][1], self.integers.get(inputs[-1][0])
            else:
                shape, vocabulary = self.input_shape()
            name = f"x{n}"
            inputs.append((name, shape))
            if vocabulary:
                self.integers[name] = vocabulary
        graph = self.graph(inputs, outputs=self.i(1, 3))
        return {"seed": self.seed, "graph": graph, "shared": self.shared, "integers": self.integers, "masked": self.masked,
                "synchronized": self.synchronized, "optimizer": self.optimizer(),
                "batches": [self.i(1, 13) for _ in range(5)], "weights": self.pick([None, "examples", "rows", "rows"])}
