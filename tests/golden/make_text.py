#!/usr/bin/env python3
"""Numbers of tests/unit/inference: greedy texts of two small language models, each token from a whole window, by PyTorch in
float64 (text_generator.cpp), and draws of a sampler with Philox4x32-10 in Python (sampler.cpp). Needs torch.
Usage: make_text.py"""
import math

import torch
from torch.nn.functional import embedding, gelu, layer_norm, linear, scaled_dot_product_attention, silu

torch.set_default_dtype(torch.float64)


def single(number):
    """A number as lockstep's layers have it."""
    return float(torch.tensor(number, dtype=torch.float32))


class Parameters:
    """sin(1), sin(4), sin(9), ... in the order of the layers."""

    def __init__(self):
        self.first = 1

    def next_values(self, *shape):
        count = math.prod(shape)
        values = torch.tensor([math.sin((self.first + i) ** 2) for i in range(count)])
        self.first += count
        return values.reshape(shape)


def attention(q, k, v):
    """(heads, steps, size)"""
    return scaled_dot_product_attention(q, k, v, is_causal=True)


def gpt(tokens, vocabulary=13, features=6, context=9, heads=2, size=3):
    p = Parameters()
    table, places = p.next_values(vocabulary, features), p.next_values(context, features)
    x = embedding(tokens, table) + places[:len(tokens)]
    for _ in range(2):
        h = layer_norm(x, (features,), p.next_values(features), p.next_values(features), single(1e-3))
        q, k, v = (torch.einsum("sf,fhd->hsd", h, p.next_values(features, heads, size)) + p.next_values(heads, size)[:, None]
                   for _ in range(3))
        x = x + torch.einsum("hsd,hdf->sf", attention(q, k, v), p.next_values(heads, size, features)) + p.next_values(features)
        h = layer_norm(x, (features,), p.next_values(features), p.next_values(features), single(1e-3))
        h = gelu(h @ p.next_values(features, 24) + p.next_values(24))
        x = x + h @ p.next_values(24, features) + p.next_values(features)
    x = layer_norm(x, (features,), p.next_values(features), p.next_values(features), single(1e-3))
    return linear(x, table)


def rms(x, scale):
    return scale * x / torch.sqrt((x * x).mean(-1, keepdim=True) + single(1e-6))


def rotated(x):
    """(heads, steps, size): elements i and i + size / 2 are a pair."""
    half = x.shape[-1] // 2
    angles = torch.arange(x.shape[1])[:, None] * 10000.0 ** (-torch.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * torch.cos(angles) - b * torch.sin(angles), b * torch.cos(angles) + a * torch.sin(angles)], -1)


def llama(tokens, vocabulary=17, features=10, heads=4, groups=2, size=6):
    p = Parameters()
    x = embedding(tokens, p.next_values(vocabulary, features))
    for _ in range(2):
        h = rms(x, p.next_values(features))
        q, k, v = (torch.einsum("sf,fhd->hsd", h, p.next_values(features, n, size)) for n in (heads, groups, groups))
        k, v = (part.repeat_interleave(heads // groups, 0) for part in (rotated(k), v))
        x = x + torch.einsum("hsd,hdf->sf", attention(rotated(q), k, v), p.next_values(heads, size, features))
        h = rms(x, p.next_values(features))
        gate = silu(h @ p.next_values(features, 12) + p.next_values(12))
        x = x + (gate * (h @ p.next_values(features, 12) + p.next_values(12))) @ p.next_values(12, features)
    return rms(x, p.next_values(features)) @ p.next_values(features, vocabulary)


def greedy(network, context, prompt, count):
    """nanoGPT's generate: the last tokens of the context, without a cache."""
    tokens = list(prompt)
    for _ in range(count):
        logits = network(torch.tensor(tokens[-context:]))[-1]
        two = torch.topk(logits, 2).values
        assert two[0] - two[1] > 1e-6, "the choice depends on rounding"
        tokens.append(int(logits.argmax()))
    return tokens[len(prompt):], logits


def philox(counter, key):
    mask = 0xFFFFFFFF
    for _ in range(10):
        a, b = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [(b >> 32) ^ counter[1] ^ key[0], b & mask, (a >> 32) ^ counter[3] ^ key[1], a & mask]
        key = [(key[0] + 0x9E3779B9) & mask, (key[1] + 0xBB67AE85) & mask]
    return counter


def mix(a, b):
    mask = 0xFFFFFFFFFFFFFFFF
    z = (a + 0x9E3779B97F4A7C15 * (b + 1)) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


def hash_name(name):
    h = 14695981039346656037
    for c in name.encode():
        h = ((h ^ c) * 1099511628211) & 0xFFFFFFFFFFFFFFFF
    return h


def samples(logits, temperature, seed, count):
    key = mix(seed, hash_name("sampler"))
    weights = [math.exp((x - max(logits)) / temperature) for x in logits]
    for draw in range(count):
        words = philox([draw // 2, 0, 0, 0], [key & 0xFFFFFFFF, key >> 32])[draw % 2 * 2:][:2]
        mark = ((words[0] << 21) ^ (words[1] >> 11)) * 2.0 ** -53 * sum(weights)
        yield next(i for i in range(len(weights)) if sum(weights[:i + 1]) > mark)


def main():
    for name, network, context in (("gpt", gpt, 9), ("llama", llama, 8)):
        tokens, _ = greedy(network, context, [4, 0, 9], 16)
        _, logits = greedy(network, context, [4, 0, 9], context - 2)  # of a full context
        print(name, ", ".join(map(str, tokens)))
        print(", ".join(f"{x:.17g}" for x in logits.tolist()))
    print("samples", ", ".join(map(str, samples([math.sin(3.0 * i) for i in range(10)], single(0.7), 7, 12))))


if __name__ == "__main__":
    main()
