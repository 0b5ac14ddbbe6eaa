"""The two files of a model: the architecture, JSON that `model.save_architecture` writes, and the weights, safetensors
with Keras' names and layouts. keras_model.py and torch_model.py use this module."""
import json
import math
import os
import pathlib
import re

FORMAT, VERSION = "lockstep.architecture", 1


class ModelFileError(Exception):
    """A file is missing, damaged, or does not fit the other one."""


def reason(error):
    """The text of another library's exception, on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split()):.300}"


def _check(holds, path, fact):
    if not holds:
        raise ModelFileError(f"{path}: {fact}")


def _is_shape(value, most_axes=4):
    return (isinstance(value, list) and len(value) <= most_axes
            and all(type(extent) is int and 0 < extent < 2**31 for extent in value))


def _is_option(value):
    return type(value) in (bool, int, float, str) or (
        isinstance(value, list) and all(type(element) in (int, float) for element in value))


def _check_layer(layer, path, known):
    _check(isinstance(layer, dict), path, f"a layer is not an object but {layer!r:.60}")
    name = layer.get("name")
    _check(isinstance(name, str) and name, path, f"a layer has no name: {layer!r:.60}")
    where = f"{path}: layer '{name}'"
    _check(name not in known, where, "the name is used twice")
    _check(isinstance(layer.get("class_name"), str), where, "'class_name' is not a string")
    inputs = layer.get("inputs")
    _check(isinstance(inputs, list) and inputs, where, "'inputs' is not a list of names")
    for source in inputs:
        _check(isinstance(source, str) and source in known, where,
               f"the input {source!r:.60} is not a layer that comes before")
    _check(layer.get("input_shapes") == [known[source] for source in inputs], where,
           "'input_shapes' are not the output shapes of its inputs")
    _check(_is_shape(layer.get("output_shape")), where, "'output_shape' is not a list of at most four extents")
    config = layer.get("config")
    _check(isinstance(config, dict) and all(_is_option(value) for value in config.values()), where,
           "'config' is not an object of numbers, strings and lists of numbers")
    parameters = layer.get("parameters")
    _check(isinstance(parameters, list), where, "'parameters' is not a list")
    for parameter in parameters:
        _check(isinstance(parameter, dict) and isinstance(parameter.get("name"), str)
               and parameter["name"].startswith(name + "/") and _is_shape(parameter.get("shape"), most_axes=5)
               and isinstance(parameter.get("trainable"), bool), where,
               f"{parameter!r:.60} is not a parameter with name, shape and trainable")
    first = layer.setdefault("shared_with", "")
    _check(isinstance(first, str) and (not first or first in known and not parameters), where,
           "'shared_with' is not a layer that comes before, or the layer has parameters")
    names = [parameter["name"] for parameter in parameters]
    _check(len(set(names)) == len(names), where, "two parameters have the same name")
    known[name] = layer["output_shape"]


def _check_parts(parts, what, path, known):
    _check(isinstance(parts, list) and parts, path, f"'{what}' is not a list")
    for part in parts:
        _check(isinstance(part, dict) and isinstance(part.get("name"), str) and isinstance(part.get("layer"), str)
               and known.get(part["layer"]) == part.get("shape"), path, f"{part!r:.60} of '{what}' is not a layer's value")


def read_architecture(path):
    """The architecture as a dictionary, after all checks: "name", "input_shape", "output", and "layers", each with
    "name", "class_name", "inputs", "input_shapes", "output_shape", "config", "parameters" and "shared_with"; and "inputs"
    and "outputs", each with "name", "shape" and "layer": one, or the named ones of a graph.
    Raises ModelFileError."""
    try:
        found = json.loads(pathlib.Path(path).read_text("utf-8"))
    except OSError as error:
        raise ModelFileError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{path}: not JSON ({error}); write it with model.save_architecture") from None
    _check(isinstance(found, dict) and found.get("format") == FORMAT, path,
           f"not an architecture ('format' is not '{FORMAT}'); write it with model.save_architecture")
    version = found.get("format_version")
    _check(version == VERSION, path, f"'format_version' is {version!r:.60}, but these tools read {VERSION}; use the tools "
           "of the lockstep that wrote the file")
    _check(isinstance(found.get("name"), str), path, "'name' is not a string")
    _check(_is_shape(found.get("input_shape")), path, "'input_shape' is not a list of at most four extents")
    _check(isinstance(found.get("layers"), list), path, "'layers' is not a list")
    known = {"input": found["input_shape"]}
    for layer in found["layers"]:
        _check_layer(layer, path, known)
    _check(isinstance(found.get("output"), str) and found["output"] in known, path,
           f"'output' is {found.get('output')!r:.60}, which is not a layer")
    for what, layer in (("inputs", "input"), ("outputs", found["output"])):
        _check_parts(found.setdefault(what, [{"name": what[:-1], "shape": known[layer], "layer": layer}]), what, path, known)
    # The row of several inputs is not a value of other libraries.
    parts = {part["layer"] for part in found["inputs"]}
    found["layers"] = [layer for layer in found["layers"] if layer["name"] not in parts]
    wanted = {part["layer"] for part in found["outputs"]}
    for layer in reversed(found["layers"]):
        if layer["name"] in wanted:
            wanted.update(layer["inputs"])
    found["layers"] = [layer for layer in found["layers"] if layer["name"] in wanted]
    return found


def read_weights(path, architecture):
    """The tensors of the architecture's parameters by name, as NumPy arrays of float32. Raises ModelFileError."""
    from safetensors.numpy import load_file
    try:
        tensors = load_file(path)
    except OSError as error:
        raise ModelFileError(f"{path}: {error.strerror or error}") from None
    except Exception as error:  # SafetensorError, or KeyError for a type that NumPy does not have
        raise ModelFileError(f"{path}: not a safetensors file that NumPy reads ({reason(error)})") from None
    wanted = {p["name"]: p["shape"] for layer in architecture["layers"] for p in layer["parameters"]}
    for name, shape in wanted.items():
        _check(name in tensors, path, f"tensor '{name}' is missing; use the weights of this architecture")
        _check(list(tensors[name].shape) == shape, path,
               f"tensor '{name}' has shape {list(tensors[name].shape)}, but the architecture's is {shape}")
    for name in tensors:
        _check(name in wanted, path, f"tensor '{name}' is not in the architecture; use the weights of this architecture")
    return {name: tensor.astype("float32") for name, tensor in tensors.items()}


def write_weights(path, tensors):
    """Writes arrays by name as a file that `model.load_weights` reads. The file is complete or unchanged. Raises
    ModelFileError."""
    import numpy
    from safetensors.numpy import save
    content = save({name: numpy.ascontiguousarray(tensor, dtype="float32") for name, tensor in tensors.items()},
                   metadata={"format": "lockstep"})
    part = f"{path}.part"
    try:
        pathlib.Path(part).write_bytes(content)
        os.replace(part, path)
    except OSError as error:
        pathlib.Path(part).unlink(missing_ok=True)
        raise ModelFileError(f"{path}: {error.strerror}") from None


def window(in_extent, size, stride, dilation, padding):
    """(output extent, padding before, padding after) of a sliding window along one axis, by TensorFlow's rules."""
    extent = (size - 1) * dilation + 1
    if padding not in ("same", "valid"):
        raise ModelFileError(f"the padding is {padding!r:.60}, but there are 'same' and 'valid'")
    if padding != "same":
        return (in_extent - extent) // stride + 1, 0, 0
    out = math.ceil(in_extent / stride)
    total = max((out - 1) * stride + extent - in_extent, 0)
    return out, total // 2, total - total // 2


# The operations of a layer Function by number, with their operands (include/lockstep/functions/tape.hpp).
OPERATIONS = [(name, int(operands)) for name, operands in re.findall(r"(\w+) (\d)", """
    input 0 target 0 output 0 slope 0 constant 0 length 0 negate 1 exp 1 expm1 1 log 1 log1p 1 tanh 1 sigmoid 1 softplus 1
    erf 1 erfc 1 bell 1 sqrt 1 abs 1 sign 1 stop 1 add 2 subtract 2 multiply 2 divide 2 power 1
    if_less 4 if_less_equal 4 if_equal 4 if_maximum 4 if_minimum 4 sum 1 largest 1""")]
WITH_VALUE = {"constant", "power", "erf", "erfc"}


def function_value(nodes, x, ops):
    """The value of a layer Function, whose option `nodes` has its operations. `ops`: functions of the framework by name.
    Raises ModelFileError."""
    values, at = [], iter(nodes)
    try:
        for number in at:
            name, operands = OPERATIONS[int(number)]
            of = [values[int(next(at))] for _ in range(operands)]
            value = next(at) if name in WITH_VALUE else None
            if name == "input":
                values.append(x)
            elif name == "constant":
                values.append(value)
            elif name == "length":
                values.append(float(x.shape[-1]))
            elif name in ("negate", "add", "subtract", "multiply", "divide", "power"):
                values.append({"negate": lambda a: -a, "add": lambda a, b: a + b, "subtract": lambda a, b: a - b,
                               "multiply": lambda a, b: a * b, "divide": lambda a, b: a / b,
                               "power": lambda a: a**value}[name](*of))
            elif name in ("erf", "erfc"):
                erf = ops["erf"](of[0] * value)
                values.append(erf if name == "erf" else 1 - erf)
            elif name in ("if_less", "if_less_equal", "if_equal"):
                a, b, yes, no = of
                values.append(ops["where"](a < b if name == "if_less" else a <= b if name == "if_less_equal" else a == b,
                                           yes, no))
            elif name in ("if_maximum", "if_minimum"):
                values.append(ops[name[3:]](*(ops["tensor"](a, x) for a in of[:2])))
            else:
                values.append(ops[name](*of))
        return values[-1]
    except (IndexError, KeyError, StopIteration, ValueError) as error:
        raise ModelFileError(f"a function's 'nodes' are damaged: {reason(error)}") from None


def crop_of(shape, height, width):
    """(top, left, height, width) of the largest centered part of an image with the aspect ratio height : width: what
    RandomCrop resizes outside training."""
    h = min(max(shape[1] * height // width, 1), shape[0])
    w = min(max(shape[0] * width // height, 1), shape[1])
    return (shape[0] - h) // 2, (shape[1] - w) // 2, h, w
