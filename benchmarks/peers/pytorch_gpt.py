#!/usr/bin/env python3
"""One step of GPT-2 in PyTorch, as its user writes it: scaled_dot_product_attention, AdamW, in
float32, with torch.compile, or with bfloat16 autocast. Prints one line of JSON.

The program `gpt` counts a step in the same way: from one step's end to the next, with the batch's
tokens taken from an array and the loss as a number on the host.
"""

import argparse
import json
import platform
import sys
import time

import support

SIZES = {  # layers, features, heads, words
    "tiny": (2, 64, 4, 256),
    "124m": (12, 768, 12, 50_257),
}
POSITIONS = 1_024

parser = argparse.ArgumentParser(description=__doc__,
                                 formatter_class=argparse.RawDescriptionHelpFormatter)
add = parser.add_argument
add("--threads", type=support.positive, default=1, help="threads and CPUs to use")
add("--size", choices=SIZES, default="124m")
add("--batch", type=support.positive, default=4)
add("--context", type=support.positive, default=64, help="tokens of an example")
add("--steps", type=support.positive, default=12, help="steps; the first half are not timed")
add("--compile", action="store_true", help="torch.compile")
add("--bfloat16", action="store_true", help="autocast")
options = parser.parse_args()
support.limit_cpus(options.threads, parser.error)
try:
    import torch
    from torch import nn
    from torch.nn import functional as F
except ImportError as error:
    sys.exit(f"pytorch_gpt: {error}; install the peers with benchmarks/peers/setup.sh")

LAYERS, FEATURES, HEADS, WORDS = SIZES[options.size]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(FEATURES), nn.LayerNorm(FEATURES)
        self.qkv = nn.Linear(FEATURES, 3 * FEATURES)
        self.attention_output = nn.Linear(FEATURES, FEATURES)
        self.up, self.down = nn.Linear(FEATURES, 4 * FEATURES), nn.Linear(4 * FEATURES, FEATURES)

    def forward(self, x):
        n, steps, _ = x.shape
        q, k, v = (part.view(n, steps, HEADS, -1).transpose(1, 2)
                   for part in self.qkv(self.norm1(x)).split(FEATURES, dim=2))
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attention_output(o.transpose(1, 2).reshape(n, steps, FEATURES))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.positions = nn.Embedding(WORDS, FEATURES), nn.Embedding(POSITIONS, FEATURES)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(FEATURES)
        nn.init.normal_(self.words.weight, std=0.02)

    def forward(self, tokens):
        x = self.words(tokens) + self.positions.weight[:tokens.shape[1]]
        return self.norm(self.blocks(x)) @ self.words.weight.T


def main():
    imported = support.resident_bytes()
    torch.set_num_threads(options.threads)
    torch.set_num_interop_threads(1)
    torch.manual_seed(1)
    text = torch.randint(0, WORDS, (100_000,))
    model = Gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    forward = torch.compile(model) if options.compile else model
    milliseconds = []
    for _ in range(options.steps):
        started = time.perf_counter()
        first = torch.randint(0, len(text) - options.context, (options.batch, 1))
        window = text[first + torch.arange(options.context + 1)]
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=options.bfloat16):
            logits = forward(window[:, :-1])
            loss = F.cross_entropy(logits.reshape(-1, WORDS), window[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        loss.item()
        milliseconds.append((time.perf_counter() - started) * 1000)
    result = {
        "program": "pytorch" + ("-compile" if options.compile else "") +
                   ("-bfloat16" if options.bfloat16 else ""),
        "parameters": sum(p.numel() for p in model.parameters()),
        "step_ms": support.summary(milliseconds[options.steps // 2 :]),
        "resident_bytes": support.resident_bytes(),
        "imported_bytes": imported,
        "versions": {"torch": torch.__version__, "python": platform.python_version()},
    }
    print(json.dumps(result), flush=True)


main()
