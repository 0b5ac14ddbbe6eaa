"""The C++ text of networks that draw.py has drawn."""
import draw


def number(value):
    return repr(float(value))


def boolean(value):
    return "true" if value else "false"


def listed(*arguments):
    return ", ".join(str(argument) for argument in arguments if argument is not None)


def per_axis(option, extents):
    if max(extents) == 1:
        return None
    return f"ls::{option}({listed(*extents[:1 if len(set(extents)) == 1 else None])})"


def size(extents):
    return str(extents[0]) if len(set(extents)) == 1 else f"ls::kernel({listed(*extents)})"


def regularizer(option, r):
    if not r:
        return None
    values = {"L1": [r["l1"]], "L2": [r["l2"]], "L1L2": [r["l1"], r["l2"]]}[r["k"]]
    return f"ls::{option}_regularizer(ls::{r['k']}{{{listed(*map(number, values))}}})"


def rotary(r):
    if not r:
        return None
    return f"ls::rotary{'_pairs' if r['pairs'] else ''}({number(r['max_wavelength'])}f, {number(r['scaling_factor'])}f)"


class Program:
    """The types of one network, in an order in which each is defined before it is used."""

    def __init__(self, network):
        self.network, self.types, self.shared = network, [], {}

    def named(self, text, kind=None):
        name = f"{kind or 'Block'}{self.network['seed']}_{len(self.types)}"
        self.types.append(f"struct {name} : {text} {{}};" if kind != "Call" else f"using {name} = {text};")
        return name

    def affine(self, layer, kernel="kernel"):
        activation = layer["activation"]
        return [None if layer["bias"] else "ls::no_bias", activation and f"ls::{activation}",
                regularizer(kernel, layer["regularizer"]), regularizer("bias", layer["bias_regularizer"])]

    def layer(self, layer):
        k = layer["k"]

        def of(*arguments):
            return f"ls::{k}<{listed(*arguments)}>"
        if k in ("Frozen", "Recompute"):
            return of(self.chain(layer["block"]))
        if k == "Shared":
            if layer["key"] not in self.shared:
                block = self.chain(self.network["shared"][layer["key"]]["block"])
                self.shared[layer["key"]] = self.named(f'ls::Shared<"{layer["key"]}", {block}>', "Call")
            return self.shared[layer["key"]]
        if k == "TiedDense":
            return of(f'"{layer["key"]}"')
        if k == "Residual":
            return of(self.chain(layer["main"]), self.chain(layer["skip"]) if layer["skip"] else None)
        if k == "Parallel":
            return of(f"ls::{layer['rule']}", *map(self.chain, layer["branches"]))
        if k == "Graph":
            return self.graph(layer["graph"])
        if k == "Dense":
            return of(layer["units"], *self.affine(layer))
        if k in draw.RECURRENT:
            return of(layer["units"], *self.affine(layer), regularizer("recurrent", layer["recurrent_regularizer"]),
                      f"ls::recurrent_activation(ls::{layer['gates']})" if layer.get("gates") else None,
                      "ls::return_sequences" if layer["sequences"] else None, "ls::go_backwards" if layer["backwards"] else None,
                      "ls::zero_output_for_mask" if layer["zero"] else None,
                      None if layer.get("resets_after", True) else "ls::reset_after(false)")
        if k == "Bidirectional":
            return of(self.layer(layer["layer"]), f"ls::{layer['rule']}")
        if k == "TimeDistributed":
            return of(self.layer(layer["layer"]))
        if k in draw.ATTENTION:
            return of(layer["heads"], layer.get("kv_heads"), layer["dim"],
                      layer.get("value_dim") and f"ls::value_dim({layer['value_dim']})",
                      layer["outputs"] and f"ls::output_shape({layer['outputs']})", "ls::causal" if layer["causal"] else None,
                      layer["window"] and f"ls::sliding_window({layer['window']})", rotary(layer["rotary"]),
                      *self.affine(layer | {"activation": None}))
        if k == "PositionEmbedding":
            return of(layer["positions"], regularizer("kernel", layer["regularizer"]))
        if k == "Embedding":
            return of(layer["vocabulary"], layer["units"], regularizer("kernel", layer["regularizer"]),
                      "ls::mask_zero" if layer["mask_zero"] else None)
        if k == "Masking":
            return of(layer["value"])
        if k == "RMSNormalization":
            return of(f"ls::epsilon({number(layer['epsilon'])}f)")
        if k in ("ZeroPadding1D", "Cropping1D"):
            return of(*layer["edges"])
        if k == "UpSampling1D":
            return of(layer["n"])
        if k in ("BatchNormalization", "LayerNormalization", "GroupNormalization"):
            return of(layer.get("groups"), f"ls::momentum({layer['momentum']})" if "momentum" in layer else None,
                      f"ls::epsilon({number(layer['epsilon'])}f)", None if layer["center"] else "ls::center(false)",
                      None if layer["scale"] else "ls::scale(false)", "ls::synchronized" if layer.get("synchronized") else None)
        if k == "LeakyReLU":
            return of("ls::negative_slope(0.25f)")
        if k == "PReLU":
            return of(f"ls::shared_axes({listed(*layer['axes'])})" if layer["axes"] else None)
        if k == "Rescaling":
            return of(f"ls::factor({number(layer['factor'])})", f"ls::offset({number(layer['offset'])})")
        if k in ("Conv1D", "Conv2D", "DepthwiseConv2D", "SeparableConv2D"):
            return of(layer["filters"] if k != "DepthwiseConv2D" else None, size(layer["size"]),
                      "ls::same" if layer["padding"] == "same" else None, per_axis("strides", layer["strides"]),
                      per_axis("dilation", layer["dilation"]),
                      f"ls::depth_multiplier({layer['multiplier']})" if k[0] in "DS" and layer["multiplier"] > 1 else None,
                      *self.affine(layer, "depthwise" if k[0] in "DS" else "kernel"))
        if k == "Conv2DTranspose":
            return of(layer["filters"], size(layer["size"]), per_axis("strides", layer["strides"]), *self.affine(layer))
        if k.startswith(("MaxPooling", "AveragePooling")):
            strides = layer["strides"] if layer["strides"] != layer["size"] else None
            return of(size(layer["size"]), "ls::same" if layer["padding"] == "same" else None,
                      strides and f"ls::strides({listed(*strides)})")
        if k == "UpSampling2D":
            return of(size(layer["size"]).replace("kernel", "size"),
                      "ls::bilinear" if layer["interpolation"] == "bilinear" else None)
        if k == "ZeroPadding2D":
            return of(f"ls::edges({listed(*layer['edges'])})")
        if k == "Reshape":
            return of(f"ls::shape({listed(*layer['target'])})")
        if k == "Permute":
            return of(*layer["dims"])
        if k == "RepeatVector":
            return of(layer["n"])
        return f"ls::{k}"

    def chain(self, layers):
        if len(layers) == 1:
            return self.layer(layers[0])
        return f"ls::Sequential<{listed(*map(self.layer, layers))}>" if layers else "ls::Identity"

    def rule(self, rule):
        if rule is None:
            return None
        if rule["k"] == "Graph":
            return self.graph(rule["graph"])
        if rule["k"] in draw.ATTENTION:
            return self.layer(rule)
        if rule["k"] == "ConcatenateOn":
            return "ls::ConcatenateOn<1>"
        if rule["k"] == "Dot":
            return f"ls::Dot<{listed(rule['axis'], 'ls::normalize' if rule['normalize'] else None)}>"
        return f"ls::{rule['k']}"

    def graph(self, graph):
        lines = []
        for name, shape in graph["inputs"]:
            extents = listed(*shape)
            lines.append(f'ls::In<"{name}", {f"ls::Integers<{extents}>" if name in self.network["integers"] else extents}>')
        for s in graph["statements"]:
            names = listed(*(f'"{name}"' for name in s["from"]))
            body = listed(f'"{s["name"]}"', f"ls::From<{names}>", self.rule(s["rule"]), *map(self.layer, s["layers"]))
            lines.append(f"ls::{'Out' if s['out'] else 'Let'}<{body}>")
        return self.named("ls::Graph<\n    " + ",\n    ".join(lines) + ">", "Graph")


def loss(options):
    given = [f".{name} = {boolean(value) if isinstance(value, bool) else value}" for name, value in options.items() if name != "k"]
    return f"ls::{options['k']}", "{" + listed(*given) + "}"


def head(h):
    kind, options = loss(h["loss"])
    classes = h["class_weight"] and ".class_weight = {" + listed(*(f"{{{c}, {w}}}" for c, w in h["class_weight"])) + "}"
    return f'ls::Head<"{h["output"]}", {kind}>{{' + listed(
        f".loss = {options}", f".weight = {number(h['weight'])}", ".masks = true" if h["masks"] else None, classes) + "}"


def optimizer(o):
    def written(value):
        return boolean(value) if isinstance(value, bool) else repr(value)
    order = ["learning_rate", "momentum", "nesterov", "beta_1", "beta_2", "epsilon", "amsgrad", "weight_decay"]
    given = [f".{name} = {written(o[name])}" for name in order if name in o]
    if o["with"]:
        given.append(".with = {" + listed(*(f".{name} = {written(value)}" for name, value in o["with"].items())) + "}")
    return f"ls::{o['k']}{{{listed(*given)}}}"


def unit(networks):
    """A program that trains these networks."""
    types, calls = [], []
    for network in networks:
        slices = 0 if draw.communicates(network) else 4
        program = Program(network)
        name = program.graph(network["graph"])
        types += program.types
        # Heads in another order than the outputs.
        heads = listed(*map(head, reversed(network["graph"]["heads"])))
        calls.append(f"  run(argc, argv, {network['seed']}, [](const Case& c) {{\n    train<{name}>(c, ls::Losses{{{heads}}}, "
                     f"{optimizer(network['optimizer'])}, {slices}, {boolean(draw.is_exported(network))});\n  }});\n")
    return ('#include "train.hpp"\n\nnamespace {\n' + "\n".join(types) + "\n}  // namespace\n\nint main(int argc, char** argv) {\n"
            "  using namespace differential;\n" + "".join(calls) + "}\n")
