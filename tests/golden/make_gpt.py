#!/usr/bin/env python3
"""Writes data/gpt.safetensors: ten steps of two small language models in float64, by PyTorch, for lockstep to reproduce.

`gpt2/` is GPT-2's architecture: learned positions, LayerNormalization before each block, causal attention, GELU by tanh, a head
tied to the table of the tokens. `llama/` is Llama's: RMSNormalization, rotary positions, SwiGLU, no biases, and the same head.
Both are trained by AdamW with a limit on the global norm, no decay of vectors, and a cosine schedule with a warm-up. Stored for
each run: init/ = initial weights, grad/ = gradients of the first step, final/ = final weights, loss and accuracy of each step
before its update; and `tokens`, whose windows of six are the examples, each with the next tokens as labels.

    python3 -m venv venv && venv/bin/pip install torch numpy safetensors
    venv/bin/python make_gpt.py data
"""

import json
import math
import pathlib
import sys

import numpy
import torch
from safetensors.numpy import save
from torch.nn import functional as F

LAYERS, WIDTH, HEADS, POSITIONS, CONTEXT, VOCABULARY, GATED = 2, 8, 2, 7, 6, 11, 12
BATCH, STEPS, RATE, WARM_UP, CLIP, DECAY, BETAS = 4, 10, 0.02, 3, 2.5, 0.1, (0.9, 0.95)
EPSILON = float(numpy.float32(1e-5))  # as lockstep's layers have it


def shapes(style):
    """The parameters by lockstep's names, in its order."""
    head = WIDTH // HEADS
    vectors = ("gamma", "beta") if style == "gpt2" else ("scale",)
    norm = "layer_normalization" if style == "gpt2" else "rms_normalization"
    result, count = {"embedding/embeddings": (VOCABULARY, WIDTH)}, {}

    def add(layer, parameters):
        number = count[layer] = count.get(layer, -1) + 1
        for name, shape in parameters.items():
            result[f"{layer}_{number}/{name}" if number else f"{layer}/{name}"] = shape

    def dense(inputs, units):
        add("dense", {"kernel": (inputs, units)} | ({"bias": (units,)} if style == "gpt2" else {}))

    if style == "gpt2":
        add("position_embedding", {"embeddings": (POSITIONS, WIDTH)})
    for _ in range(LAYERS):
        add(norm, {name: (WIDTH,) for name in vectors})
        attention = {}
        for name in ("query", "key", "value"):
            attention[f"{name}/kernel"] = (WIDTH, HEADS, head)
            if style == "gpt2":
                attention[f"{name}/bias"] = (HEADS, head)
        attention["attention_output/kernel"] = (HEADS, head, WIDTH)
        if style == "gpt2":
            attention["attention_output/bias"] = (WIDTH,)
        add("multi_head_attention", attention)
        add(norm, {name: (WIDTH,) for name in vectors})
        if style == "gpt2":
            dense(WIDTH, 4 * WIDTH)
            dense(4 * WIDTH, WIDTH)
        else:
            dense(WIDTH, GATED)
            dense(WIDTH, GATED)
            dense(GATED, WIDTH)
    add(norm, {name: (WIDTH,) for name in vectors})
    return result


def rotated(x):
    """(batch, heads, steps, size): elements i and i + size / 2 turn by the angle step 10000^(-2 i / size)."""
    half = x.shape[-1] // 2
    angles = torch.arange(x.shape[-2])[:, None] * 10000.0 ** (-torch.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)


def logits(style, w, x):
    count = {}

    def next_of(layer):
        number = count[layer] = count.get(layer, -1) + 1
        return f"{layer}_{number}/" if number else f"{layer}/"

    def norm(h):
        if style == "gpt2":
            name = next_of("layer_normalization")
            return F.layer_norm(h, (WIDTH,), w[name + "gamma"], w[name + "beta"], EPSILON)
        return F.rms_norm(h, (WIDTH,), w[next_of("rms_normalization") + "scale"], EPSILON)

    def dense(h):
        name = next_of("dense")
        return h @ w[name + "kernel"] + w.get(name + "bias", 0)

    def attention(h):
        name = next_of("multi_head_attention")
        q, k, v = (torch.einsum("btd,dnh->bnth", h, w[name + part + "/kernel"]) + w.get(name + part + "/bias", torch.zeros(1, 1))[:, None]
                   for part in ("query", "key", "value"))
        if style == "llama":
            q, k = rotated(q), rotated(k)
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return torch.einsum("bnth,nhd->btd", o, w[name + "attention_output/kernel"]) + w.get(name + "attention_output/bias", 0)

    def feed_forward(h):
        if style == "gpt2":
            return dense(F.gelu(dense(h), approximate="tanh"))
        return dense(F.silu(dense(h)) * dense(h))

    h = w["embedding/embeddings"][x]
    if style == "gpt2":
        h = h + w["position_embedding/embeddings"][:CONTEXT]
    for _ in range(LAYERS):
        h = h + attention(norm(h))
        h = h + feed_forward(norm(h))
    return norm(h) @ w["embedding/embeddings"].T


def rate(step):
    if step < WARM_UP:
        return RATE / 10 + (RATE - RATE / 10) * step / WARM_UP
    return RATE * (0.9 * (1 + math.cos(math.pi * (step - WARM_UP) / (STEPS - WARM_UP))) / 2 + 0.1)


def run(style, seed, tokens, tensors):
    random = numpy.random.default_rng(seed)
    w = {}
    for name, shape in shapes(style).items():
        center = 1 if name.endswith(("gamma", "scale")) else 0
        w[name] = torch.tensor(center + random.normal(0, 0.4, shape)).requires_grad_()

    def store(kind, values):
        for name, value in values.items():
            tensors[f"{style}/{kind}/{name}"] = numpy.ascontiguousarray(value.detach().numpy().copy())

    store("init", w)
    matrices = [p for name, p in w.items() if name.endswith(("kernel", "embeddings"))]
    vectors = [p for name, p in w.items() if not name.endswith(("kernel", "embeddings"))]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": DECAY}, {"params": vectors, "weight_decay": 0.0}], betas=BETAS)
    losses, accuracies, clipped = [], [], 0
    for step in range(STEPS):
        first = step * BATCH * CONTEXT
        x = torch.tensor(tokens[first : first + BATCH * CONTEXT]).reshape(BATCH, CONTEXT)
        y = torch.tensor(tokens[first + 1 : first + 1 + BATCH * CONTEXT]).reshape(BATCH, CONTEXT)
        found = logits(style, w, x)
        loss = F.cross_entropy(found.reshape(-1, VOCABULARY), y.reshape(-1))
        losses.append(loss.item())
        accuracies.append((found.argmax(-1) == y).double().mean().item())
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            store("grad", {name: p.grad for name, p in w.items()})
        norm = math.sqrt(sum((p.grad**2).sum().item() for p in w.values()))
        clipped += norm > CLIP
        for p in w.values():
            p.grad *= min(1, CLIP / norm)
        for group in optimizer.param_groups:
            # Keras adds epsilon before the correction of the second moment, PyTorch after it.
            group.update(lr=rate(step), eps=1e-8 / math.sqrt(1 - BETAS[1] ** (step + 1)))
        optimizer.step()
    assert 0 < clipped < STEPS, clipped
    store("final", w)
    tensors[f"{style}/loss"] = numpy.array(losses)
    tensors[f"{style}/accuracy"] = numpy.array(accuracies)


def main(folder):
    torch.set_default_dtype(torch.float64)
    tokens = numpy.random.default_rng(5).integers(0, VOCABULARY, STEPS * BATCH * CONTEXT + 1)
    tensors = {"tokens": tokens.astype(numpy.int32)}
    for seed, style in enumerate(("gpt2", "llama"), 21):
        run(style, seed, tokens, tensors)
    case = {"optimizer": "AdamW", "batch": BATCH, "steps": STEPS, "made_with": f"torch {torch.__version__}, float64"}
    (pathlib.Path(folder) / "gpt.safetensors").write_bytes(save(tensors, {"case": json.dumps(case)}))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: make_gpt.py FOLDER")
    main(sys.argv[1])
