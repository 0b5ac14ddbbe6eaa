#!/usr/bin/env python3
"""The seed step in PyTorch: the tutorials' CNN, SGD(0.001), as a PyTorch user writes it."""

import sys

import support


def add_options(parser):
    parser.add_argument("--channels-last", action="store_true", help="NHWC tensors in memory")
    parser.add_argument("--compile", action="store_true", help="torch.compile the model")


options = support.parse(__doc__, add_options)
try:
    import numpy
    import torch
    from torch import nn
except ImportError as error:
    sys.exit(f"pytorch_mnist: {error}; install the peers with benchmarks/peers/setup.sh")


def batches(count, batch):
    """Index batches of endless shuffled passes; the short rest of a pass is left out."""
    while True:
        order = torch.randperm(count)
        for begin in range(0, count - batch + 1, batch):
            yield order[begin : begin + batch]


def main():
    torch.set_num_threads(options.threads)
    torch.set_num_interop_threads(1)
    torch.manual_seed(1)
    images, labels = support.images_and_labels(numpy)
    x_all = torch.from_numpy(images).unsqueeze(1).float().div_(255)  # [60000, 1, 28, 28]
    y_all = torch.from_numpy(labels)  # [60000]

    model = nn.Sequential(
        nn.Conv2d(1, 32, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(13 * 13 * 32, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )
    if options.channels_last:
        model = model.to(memory_format=torch.channels_last)
        x_all = x_all.to(memory_format=torch.channels_last)
    step_model = torch.compile(model) if options.compile else model
    optimizer = torch.optim.SGD(model.parameters(), lr=support.RATE)
    loss_of = nn.CrossEntropyLoss()

    indices = batches(len(x_all), options.batch)
    chunks = support.Chunks()
    model.train()
    for _ in range((options.warmup + options.steps) // support.CHUNK):
        chunks.begin()
        loss_sum = torch.zeros(())
        correct = torch.zeros((), dtype=torch.int64)
        for _ in range(support.CHUNK):
            index = next(indices)
            x, y = x_all[index], y_all[index]
            optimizer.zero_grad()
            logits = step_model(x)
            loss = loss_of(logits, y)
            loss.backward()
            optimizer.step()
            loss_sum += loss.detach()
            correct += (logits.argmax(1) == y).sum()
        loss_sum.item(), correct.item()
        chunks.end()

    name = "pytorch"
    name += "-channels-last" if options.channels_last else ""
    name += "-compile" if options.compile else ""
    support.report(name, options, chunks, {"torch": torch.__version__})


main()
