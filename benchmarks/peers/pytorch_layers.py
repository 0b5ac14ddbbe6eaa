#!/usr/bin/env python3
"""PyTorch's ops for the layers of benchmarks/layers.cpp: one line of JSON, microseconds by name.

An op's forward runs without autograd, its backward is torch.autograd.grad of a kept graph. Images
are tried in both of PyTorch's layouts, and the faster one counts.
"""

import argparse
import json
import statistics
import sys
import time

import support

parser = argparse.ArgumentParser(description=__doc__,
                                 formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--threads", type=support.positive, default=1)
parser.add_argument("--seconds", type=float, default=0.1, help="for each figure (0.1)")
options = parser.parse_args()
support.limit_cpus(options.threads, parser.error)
try:
    import torch
    from torch.nn import functional as F
except ImportError as error:
    sys.exit(f"pytorch_layers: {error}; install the peers with benchmarks/peers/setup.sh")

torch.set_num_threads(options.threads)
torch.set_num_interop_threads(1)
torch.manual_seed(1)
BATCH = 64


def microseconds(call):
    """Median time of `call` over --seconds, at least five calls."""
    for _ in range(3):
        call()
    times, started = [], time.perf_counter()
    while len(times) < 5 or time.perf_counter() - started < options.seconds:
        before = time.perf_counter()
        call()
        times.append((time.perf_counter() - before) * 1e6)
    return statistics.median(times)


def both(op, x, weights, wants_dx):
    """Times forward and backward of op(x, *weights)."""
    with torch.no_grad():
        forward = microseconds(lambda: op(x, *weights))
    x = x.clone().requires_grad_(wants_dx)
    inputs = [*([x] if wants_dx else []), *(w.requires_grad_() for w in weights)]
    y = op(x, *weights)
    dy = torch.randn_like(y)
    backward = microseconds(lambda: torch.autograd.grad(y, inputs, dy, retain_graph=True))
    return forward, backward


def best(op, x, weights, wants_dx=True):
    """Times in the faster layout, by the sum of the passes, if x has channels."""
    found = [both(op, x, weights, wants_dx)]
    if x.dim() == 4:
        nhwc = x.to(memory_format=torch.channels_last)
        found.append(both(op, nhwc, [w.detach() for w in weights], wants_dx))
    return min(found, key=sum)


def conv(x, w, b):
    return F.conv2d(x, w, b)


def depthwise(x, w, b):
    return F.conv2d(x, w, b, padding=1, groups=len(w))


def main():
    image, features = torch.randn(BATCH, 1, 28, 28), torch.randn(BATCH, 32, 26, 26)
    kernel, bias = torch.randn(32, 1, 3, 3), torch.randn(32)

    def dense(outputs, inputs):
        return [torch.randn(outputs, inputs) * 0.05, torch.randn(outputs)]

    def same(side, channels):
        return (lambda *a: F.conv2d(*a, padding=1), torch.randn(BATCH, channels, side, side),
                [torch.randn(channels, channels, 3, 3), torch.randn(channels)])

    def recurrent(kind):
        module = kind(64, 128, batch_first=True)
        return (lambda x, *_: module(x)[0][:, -1], torch.randn(BATCH, 100, 64),
                list(module.parameters()))

    layers = {
        "Conv2D": (conv, image, [kernel, bias], False),
        "Conv2D 32x32x16": same(32, 16),
        "Conv2D 16x16x32": same(16, 32),
        "Conv2D 8x8x64": same(8, 64),
        "ReLU": (F.relu, features, []),
        "Conv2D+ReLU": (lambda *a: F.relu(conv(*a)), image, [kernel, bias], False),
        "Conv2D+ReLU+MaxPooling2D": (lambda *a: F.max_pool2d(F.relu(conv(*a)), 2), image,
                                     [kernel, bias], False),
        "MaxPooling2D": (lambda x: F.max_pool2d(x, 2), features, []),
        "AveragePooling2D": (lambda x: F.avg_pool2d(x, 2), features, []),
        "Dense64": (F.linear, torch.randn(BATCH, 5408), dense(64, 5408)),
        "Dense64+ReLU": (lambda *a: F.relu(F.linear(*a)), torch.randn(BATCH, 5408),
                         dense(64, 5408)),
        "Dense512+ReLU": (lambda *a: F.relu(F.linear(*a)), torch.randn(BATCH, 512),
                          dense(512, 512)),
        "Dense10": (F.linear, torch.randn(BATCH, 64), dense(10, 64)),
        "GELU": (F.gelu, features, []),
        "DepthwiseConv2D": (depthwise, torch.randn(BATCH, 128, 56, 56),
                            [torch.randn(128, 1, 3, 3), torch.randn(128)]),
        "SeparableConv2D": (lambda x, a, b, c: F.conv2d(depthwise(x, a, None), b, c),
                            torch.randn(BATCH, 128, 28, 28),
                            [torch.randn(128, 1, 3, 3), torch.randn(128, 128, 1, 1),
                             torch.randn(128)]),
        "Conv2DTranspose": (lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2, padding=1),
                            torch.randn(BATCH, 128, 14, 14),
                            [torch.randn(128, 64, 4, 4), torch.randn(64)]),
        "LSTM128": recurrent(torch.nn.LSTM),
        "GRU128": recurrent(torch.nn.GRU),
        "UpSampling2D": (lambda x: F.interpolate(x, scale_factor=2), features, []),
        "UpSampling2D-bilinear": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
                                  features, []),
    }
    for steps in (64, 256, 1024):
        q, *k_and_v = (torch.randn(4, 12, steps, 64) for _ in range(3))
        layers[f"Attention {steps}"] = F.scaled_dot_product_attention, q, k_and_v
        layers[f"Attention-causal {steps}"] = (
            lambda *a: F.scaled_dot_product_attention(*a, is_causal=True), q, k_and_v)
    result = {}
    for name, layer in layers.items():
        result[f"{name}/forward"], result[f"{name}/backward"] = best(*layer)
    print(json.dumps({"microseconds": result, "torch": torch.__version__}))


main()
