"""Compares the runs of lockstep with Keras, with each other, and with ONNX Runtime."""
import math

import numpy as np

import tensors
import draw

LIMIT, ONNX_LIMIT, CPU_LIMIT = 1e-9, 1e-5, 1e-4


def error(found, expected):
    """The largest difference, relative to the largest value; infinite for other sizes or values that are not finite."""
    found, expected = np.ravel(found), np.ravel(expected)
    if found.shape != expected.shape or not np.isfinite(found).all():
        return math.inf
    return float(np.abs(found - expected).max() / max(np.abs(expected).max(), 1e-6))


def with_keras(found, expected):
    """(largest error, its name) of losses, predictions, weights and states. Keras logs no loss of a single output."""
    missing = [name for name in expected if name not in found]
    extra = [name for name in found if name not in expected and not name.endswith("_loss")]
    if missing or extra:
        return math.inf, f"names: missing {missing}, extra {extra}"
    return max((error(found[name], expected[name]), name) for name in expected)


def parts_of(network, x):
    """The inputs by name, in float32."""
    given, at = {}, 0
    for name, shape in network["graph"]["inputs"]:
        size = math.prod(shape)
        given[name] = x[:, at:at + size].reshape(-1, *shape).astype(np.float32)
        at += size
    return given


def with_tool(tool, network, prefix, found, x):
    """The predictions of the network in Keras or PyTorch by tools/exchange."""
    given, heads = parts_of(network, x), network["graph"]["heads"]
    if tool == "keras_model":
        import keras_model
        call = keras_model.load(f"{prefix}.json", f"{prefix}.safetensors")
        values = call(given if len(given) > 1 else given.popitem()[1], training=False)
        numpy = keras_model.keras.ops.convert_to_numpy
    else:
        import torch
        import torch_model
        call = torch_model.load(f"{prefix}.json", f"{prefix}.safetensors")
        tensors_of = {name: torch.from_numpy(value) for name, value in given.items()}
        values = call(tensors_of if len(given) > 1 else tensors_of.popitem()[1])
        numpy = lambda value: value.detach().numpy()  # noqa: E731
    values = [values[head["output"]] for head in heads] if len(heads) > 1 else [values]
    return error(np.concatenate([numpy(value).reshape(len(x), -1) for value in values], 1), found["predict"]), ""


def with_onnx(network, prefix, found, x):
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(f"{prefix}.onnx", options, providers=["CPUExecutionProvider"])
    graph, rows, given = network["graph"], found["predict"].reshape(len(x), -1), parts_of(network, x)
    names = [head["output"] for head in graph["heads"]]
    if {i.name for i in session.get_inputs()} != set(given) or [o.name for o in session.get_outputs()] != names:
        return math.inf, f"names {[i.name for i in session.get_inputs()]}, {[o.name for o in session.get_outputs()]}"
    worst = (0.0, "")
    for count in (len(x), 1):  # the batch is free
        values, at = session.run(names, {name: value[:count] for name, value in given.items()}), 0
        for head, value in zip(graph["heads"], values):
            size = math.prod(head["shape"])
            if value.shape != (count, *head["shape"]):
                return math.inf, f"{head['output']} has shape {value.shape}"
            worst = max(worst, (error(value, rows[:count, at:at + size]), head["output"]))
            at += size
    return worst


def compare(network, prefix):
    """(what, whether it holds, error, name) of all comparisons of a network."""
    def of(run):
        return tensors.load(prefix.with_name(f"{prefix.name}.{run}.out"))
    data, keras = tensors.load(prefix.with_suffix(".data")), tensors.load(prefix.with_suffix(".keras"))
    one = of("one")
    rows = [("one device, Keras", LIMIT, *with_keras(one, keras))]

    def same_bits(run, as_run):
        found, expected = of(run), of(as_run)
        differing = [name for name in expected if name not in found or found[name].tobytes() != expected[name].tobytes()]
        rows.append((f"{run}, bits of {as_run}", 0.0, float(bool(differing)), ", ".join(differing)))
    if not draw.communicates(network):
        same_bits("mirrored", "slices")
    same_bits("job", "mirrored")
    if network["synchronized"] or not draw.has_statistics(network):  # else the statistics are those of slices
        rows.append(("two replicas, Keras", LIMIT, *with_keras(of("mirrored"), keras)))
    if prefix.with_name(f"{prefix.name}.cpu.out").exists():
        rows.append(("Cpu, Reference<double>", CPU_LIMIT, *with_keras(of("cpu"), one)))
    if not draw.is_exported(network):
        return verdicts(rows)
    rows.append(("ONNX Runtime", ONNX_LIMIT, *with_onnx(network, prefix, one, data["x0"])))
    for tool in ("keras_model", "torch_model"):
        try:
            rows.append((tool, ONNX_LIMIT, *with_tool(tool, network, prefix, one, data["x0"])))
        except Exception as fault:  # of Keras, PyTorch or the tool
            rows.append((tool, ONNX_LIMIT, math.inf, " ".join(str(fault).split())))
    return verdicts(rows)


def verdicts(rows):
    return [(what, found <= limit, found, name) for what, limit, found, name in rows]
