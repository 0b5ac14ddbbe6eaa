#!/usr/bin/env python3
"""Numbers of "five steps of a graph" in tests/unit/model/shared.cpp, by PyTorch's automatic differentiation in float64: a graph with
two inputs, two outputs, a frozen BatchNormalization, two calls of Dense and of another BatchNormalization, and a table that the
last product uses again. Needs torch.
Usage: make_graph.py"""
import numpy
import torch

torch.set_default_dtype(torch.float64)
EPSILON = float(numpy.float32(1e-3))  # as lockstep's layer has it


def values(function, *shape):
    return torch.tensor([function(i) for i in range(int(numpy.prod(shape)))]).reshape(shape)


def main():
    shapes = [(3, 4), (4,), (9, 4), (4, 4), (4,), (4,), (4,), (8, 1), (1,)]
    parameters, first = [], 1
    for shape in shapes:
        begin = first
        parameters.append(values(lambda i: 0.5 * float(numpy.sin(begin + i)), *shape).requires_grad_())
        first += int(numpy.prod(shape))
    kernel, bias, table, mix, mix_bias, gamma, beta, out, out_bias = parameters
    numbers = values(lambda i: float(numpy.cos(0.7 * i)), 40, 3)
    words = values(lambda i: (i * i + 3 * i) % 9, 40, 4).long()
    targets = values(lambda i: float(numpy.sin(0.3 * i)), 40, 10)
    places = torch.arange(4.0)
    held = {"gamma": 1 + places / 4, "beta": places / 8, "mean": 0.25 - places / 8, "variance": 0.5 + places / 4}
    mean, variance = torch.zeros(4), torch.ones(4)
    velocity = [torch.zeros_like(p) for p in parameters]
    for step in range(5):
        part = slice(8 * step, 8 * step + 8)
        w = table[words[part]].mean(1)
        h = torch.tanh(numbers[part] @ kernel + bias)
        h = (h - held["mean"]) / torch.sqrt(held["variance"] + EPSILON) * held["gamma"] + held["beta"] + w
        for _ in range(2):
            h = torch.tanh(h @ mix + mix_bias)
            m, v = h.mean(0), h.var(0, unbiased=False)
            h = (h - m) / torch.sqrt(v + EPSILON) * gamma + beta
            mean, variance = (0.99 * mean + 0.01 * m.detach()), (0.99 * variance + 0.01 * v.detach())
        y = torch.cat([torch.cat([h, w], 1) @ out + out_bias, h @ table.T], 1)
        loss = ((y - targets[part]) ** 2).mean()
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for p, v, g in zip(parameters, velocity, gradients):
                v.mul_(0.9).sub_(0.3 * g)
                p.add_(v)
    for value in (loss, (kernel ** 2).sum(), (table ** 2).sum(), table[5, 2], (mix ** 2).sum(), mix_bias[1], gamma[3],
                  mean[0], variance[2], out[6, 0]):
        print(f"{value.item():.17g}")


if __name__ == "__main__":
    main()
