#!/usr/bin/env python3
"""Time of one example a call, in lockstep's Predictor, PyTorch and ONNX Runtime, on one thread.

Each round runs lockstep's program (build/release/bin/one_example), then each peer, so that a change
of the machine's load meets all of them. The peers are called as their users call them, from Python:
a call's interpreter time is part of theirs (about 1 us of ONNX Runtime's with bound buffers). Prints
the smallest and the median time of a call over all rounds. The outputs of all are compared first:
ONNX Runtime and PyTorch compute with the weights of lockstep's ONNX files.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
REPOSITORY = Path(__file__).resolve().parent.parent.parent
NETS = ("dense_8", "dense_32", "dense_64", "cnn")

try:
    import numpy
    import onnx
    import onnxruntime
    import torch
    from onnx import numpy_helper
except ImportError as error:
    sys.exit(f"one_example: {error}; install torch, onnx and onnxruntime with pip")


def times_of(call, chunks, calls):
    """Microseconds of a call, one figure for each chunk of calls."""
    for _ in range(calls):
        call()
    found = []
    for _ in range(chunks):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        found.append((time.perf_counter() - start) / calls * 1e6)
    return found


def input_of(name):
    shape = (1, 28, 28, 1) if name == "cnn" else (1, int(name.split("_")[1]))
    return ((numpy.arange(numpy.prod(shape)) % 7) * 0.125).astype("float32").reshape(shape)


def torch_model(name, path):
    """The network with the weights of the ONNX file, channels first."""
    values = [numpy_helper.to_array(v) for v in onnx.load(path).graph.initializer]
    values = [torch.from_numpy(v.copy()) for v in values if v.dtype == numpy.float32]
    nn = torch.nn
    if name == "cnn":
        model = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(5408, 64),
                              nn.ReLU(), nn.Linear(64, 10))
    else:
        units = int(name.split("_")[1])
        model = nn.Sequential(nn.Linear(units, units), nn.ReLU(), nn.Linear(units, units), nn.ReLU(),
                              nn.Linear(units, units))
    for parameter in model.parameters():
        size = parameter.numel()
        at = next(i for i, v in enumerate(values) if v.numel() == size)
        value = values.pop(at)
        if parameter.dim() == 4 and value.shape != parameter.shape:  # HWIO
            value = value.permute(3, 2, 0, 1)
        if parameter.dim() == 2:
            value = value.reshape(parameter.shape[1], parameter.shape[0])  # (inputs, units)
            if size == 5408 * 64:  # the inputs are pixels of 32 channels: channels first
                value = value.reshape(13, 13, 32, 64).permute(2, 0, 1, 3).reshape(5408, 64)
            value = value.T
        parameter.data.copy_(value.reshape(parameter.shape))
    return model.eval()


def calls_of(name, folder):
    """The peers' calls, by name, and a function that returns their outputs."""
    path = folder / f"{name}.onnx"
    x = input_of(name)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    binding.bind_cpu_input("input", x)
    out = numpy.empty(session.run(["output"], {"input": x})[0].shape, "float32")
    binding.bind_output("output", "cpu", 0, numpy.float32, out.shape, out.ctypes.data)
    model = torch_model(name, path)
    tensor = torch.from_numpy(x.transpose(0, 3, 1, 2).copy() if name == "cnn" else x)
    with torch.inference_mode():
        frozen = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.trace(model, tensor)))
    calls = {
        "onnxruntime": (lambda: session.run(["output"], {"input": x})[0]),
        "onnxruntime, bound": (lambda: session.run_with_iobinding(binding) or out),
        "pytorch": (lambda: model(tensor)),
        "pytorch, frozen": (lambda: frozen(tensor)),
    }
    return calls


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ours", type=Path, default=REPOSITORY / "build/release/bin/one_example")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary, torch.inference_mode():
        folder = Path(temporary)
        subprocess.run([options.ours, "--export", folder, "--chunks", "5"], check=True, stdout=subprocess.DEVNULL)
        peers = {name: calls_of(name, folder) for name in NETS}
        for name, calls in peers.items():
            ours = numpy.loadtxt(folder / f"{name}.txt")
            for peer, call in calls.items():
                difference = numpy.abs(numpy.asarray(call()).ravel() - ours).max()
                if difference > 1e-4:
                    sys.exit(f"one_example: {name}: {peer} differs from lockstep by {difference}")
        times = {(name, "lockstep"): ([], []) for name in [*NETS, "reading"]}
        for _ in range(options.rounds):
            lines = subprocess.run([options.ours, "--chunks", "50"], check=True, capture_output=True, text=True).stdout
            for line in lines.splitlines():
                name, _, least, _, median, _ = line.split()
                times[name, "lockstep"][0].append(float(least))
                times[name, "lockstep"][1].append(float(median))
            for name, calls in peers.items():
                for peer, call in calls.items():
                    found = times_of(call, 20, 500)
                    least, medians = times.setdefault((name, peer), ([], []))
                    least.append(min(found))
                    medians.append(statistics.median(found))
    print(f"torch {torch.__version__}, onnxruntime {onnxruntime.__version__}, load {os.getloadavg()[0]:.1f}")
    print("| net | program | min, us | median, us | min / lockstep's |\n|---|---|---|---|---|")
    for name in [*NETS, "reading"]:  # the last: what reading the weights of the CNN takes
        base = min(times[name, "lockstep"][0])
        for (net, program), (least, medians) in times.items():
            if net == name:
                print(f"| {name} | {program} | {min(least):.3f} | {statistics.median(medians):.3f} "
                      f"| {min(least) / base:.1f} |")


main()
