#!/usr/bin/env python3
"""Steps of the tutorials' models in JAX on a GPU: one jitted function for the whole step, its arguments donated. Speaks with
gpu.py: see gpu_support.py. Meaning as in pytorch_model.py and pytorch_resnet_model.py."""

import math
import os
import sys

import gpu_support

options = gpu_support.parse(__doc__, ("jit",))
os.environ.setdefault("JAX_PLATFORMS", options.device)
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # the GPU is shared
try:
    import jax
    import numpy
    from jax import lax
    from jax import numpy as jnp
except ImportError as error:
    sys.exit(f"gpu_jax: {error}")

L2 = 2e-4
RATE, MOMENTUM = (0.001, 0.0) if options.model == "cnn" else (0.1, 0.9)
TYPE = jnp.bfloat16 if options.precision == "bfloat16" else jnp.float32
jax.config.update("jax_default_matmul_precision",
                  "highest" if options.precision == "float32" else "tensorfloat32")


class Maker:
    """Draws weights. `penalized` has the names of those with a penalty."""

    def __init__(self):
        self.draws = numpy.random.default_rng(1)
        self.weights, self.statistics, self.penalized = {}, {}, set()

    def affine(self, name, *shape):
        fan = math.prod(shape[:-1])
        scale = math.sqrt(2 / fan) if options.model == "resnet" else 1 / math.sqrt(3 * fan)
        self.weights[name] = jnp.asarray(self.draws.normal(0, scale, shape), jnp.float32)
        self.weights[name + "/bias"] = jnp.zeros(shape[-1])
        self.penalized |= {name, name + "/bias"}

    def norm(self, name, channels):
        self.weights[name + "/gamma"] = jnp.ones(channels)
        self.weights[name + "/beta"] = jnp.zeros(channels)
        self.statistics[name] = jnp.stack([jnp.zeros(channels), jnp.ones(channels)])


def conv(w, name, x, stride=1, padding="SAME"):
    y = lax.conv_general_dilated(x, w[name].astype(TYPE), (stride, stride), padding,
                                 dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return y + w[name + "/bias"].astype(TYPE)


def dense(w, name, x):
    return x @ w[name].astype(TYPE) + w[name + "/bias"].astype(TYPE)


def norm(w, statistics, name, x):
    """Moving averages are written to `statistics`."""
    wide = x.astype(jnp.float32)
    mean = wide.mean((0, 1, 2))
    variance = jnp.maximum((wide * wide).mean((0, 1, 2)) - mean * mean, 0)
    statistics[name] = 0.997 * statistics[name] + 0.003 * jnp.stack([mean, variance])
    scale = w[name + "/gamma"] * lax.rsqrt(variance + 1e-5)
    return (wide * scale + (w[name + "/beta"] - mean * scale)).astype(TYPE)


def cnn(w, statistics, x):
    x = jax.nn.relu(conv(w, "conv", x[..., None].astype(TYPE) / 255, padding="VALID"))
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    x = jax.nn.relu(dense(w, "hidden", x.reshape(len(x), -1)))
    return dense(w, "out", x)


def blocks():
    """Name, channels in and out, stride, whether its first block projects."""
    inputs = 16
    for stage, (filters, stride) in enumerate(((16, 1), (32, 2), (64, 2))):
        for i in range((options.depth - 2) // 6):
            yield f"{stage}/{i}", inputs, filters, stride if i == 0 else 1, i == 0
            inputs = filters


def resnet(w, statistics, x):
    x = x.astype(jnp.float32)
    flat = x.reshape(len(x), -1)
    x = (x - flat.mean(1)[:, None, None, None]) / jnp.maximum(
        flat.std(1), 3072**-0.5)[:, None, None, None]
    x = jax.nn.relu(norm(w, statistics, "norm", conv(w, "conv", x.astype(TYPE))))
    for name, _, _, stride, projects in blocks():
        y = jax.nn.relu(norm(w, statistics, name + "/norm1", conv(w, name + "/conv1", x, stride)))
        y = norm(w, statistics, name + "/norm2", conv(w, name + "/conv2", y))
        if projects:
            x = norm(w, statistics, name + "/norm3", conv(w, name + "/conv3", x, stride))
        x = jax.nn.relu(x + y)
    return dense(w, "out", x.mean((1, 2)))


def make():
    maker = Maker()
    if options.model == "cnn":
        maker.affine("conv", 3, 3, 1, 32)
        maker.affine("hidden", 13 * 13 * 32, 64)
        maker.affine("out", 64, 10)
        maker.penalized = set()
        return maker
    maker.affine("conv", 3, 3, 3, 16)
    maker.norm("norm", 16)
    for name, inputs, filters, _, projects in blocks():
        maker.affine(name + "/conv1", 3, 3, inputs, filters)
        maker.affine(name + "/conv2", 3, 3, filters, filters)
        if projects:
            maker.affine(name + "/conv3", 1, 1, inputs, filters)
        for i in range(3 if projects else 2):
            maker.norm(f"{name}/norm{i + 1}", filters)
    maker.affine("out", 64, 10)
    return maker


maker = make()
penalized = frozenset(maker.penalized)
forward = cnn if options.model == "cnn" else resnet


def loss_of(w, statistics, x, y):
    statistics = dict(statistics)
    logits = forward(w, statistics, x).astype(jnp.float32)
    losses = jax.nn.logsumexp(logits, 1) - jnp.take_along_axis(logits, y[:, None], 1)[:, 0]
    return losses.mean(), (statistics, (logits.argmax(1) == y).sum())


def step(held, images, labels, index):
    w, velocity, statistics, loss_sum, right_sum = held
    found, gradients = jax.value_and_grad(loss_of, has_aux=True)(
        w, statistics, images[index], labels[index])
    loss, (statistics, right) = found
    gradients = {n: g + 2 * L2 * w[n] if n in penalized else g for n, g in gradients.items()}
    if MOMENTUM:
        velocity = {n: MOMENTUM * v - RATE * gradients[n] for n, v in velocity.items()}
        w = {n: w[n] + velocity[n] for n in w}
    else:
        w = {n: w[n] - RATE * gradients[n] for n in w}
    return w, velocity, statistics, loss_sum + loss, right_sum + right


class Work:
    def __init__(self):
        images, labels = gpu_support.images_and_labels(numpy, options.model)
        self.images, self.labels = jnp.asarray(images), jnp.asarray(labels, jnp.int32)
        count = len(labels) // options.batch * options.batch
        order = numpy.random.default_rng(2).permutation(len(labels))[:count]
        self.batches = [jnp.asarray(o) for o in order.reshape(-1, options.batch)]
        self.at = 0
        velocity = {n: jnp.zeros_like(v) for n, v in maker.weights.items()} if MOMENTUM else {}
        self.held = (maker.weights, velocity, maker.statistics, jnp.zeros(()),
                     jnp.zeros((), jnp.int32))
        self.step = jax.jit(step, donate_argnums=0)

    def chunk(self):
        self.held = (*self.held[:3], jnp.zeros(()), jnp.zeros((), jnp.int32))
        for _ in range(options.chunk):
            self.held = self.step(self.held, self.images, self.labels, self.batches[self.at])
            self.at = (self.at + 1) % len(self.batches)
        return (float(self.held[3]) / options.chunk,
                int(self.held[4]) / (options.chunk * options.batch))


def peak_bytes():
    held = jax.devices()[0].memory_stats() or {}
    return {"allocated": held["peak_bytes_in_use"]} if "peak_bytes_in_use" in held else {}


gpu_support.serve(options, Work().chunk, peak_bytes,
                  {"jax": jax.__version__, "device": str(jax.devices()[0])})
