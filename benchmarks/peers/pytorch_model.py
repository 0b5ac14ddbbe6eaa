"""The shared part of the programs of PyTorch: the models, their data, and the loops."""

import numpy
import torch
from torch import nn

import support


def start(options):
    torch.set_num_threads(options.threads)
    torch.set_num_interop_threads(1)
    torch.manual_seed(1)


def data():
    images, labels = support.images_and_labels(numpy)
    x_all = torch.from_numpy(images).unsqueeze(1).float().div_(255)  # [60000, 1, 28, 28]
    return x_all, torch.from_numpy(labels)  # [60000]


def batches(count, batch):
    """Index batches of infinite shuffled passes, without each pass's incomplete last batch."""
    while True:
        order = torch.randperm(count)
        for begin in range(0, count - batch + 1, batch):
            yield order[begin : begin + batch]


def make():
    return nn.Sequential(
        nn.Conv2d(1, 32, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(13 * 13 * 32, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def make_mlp():
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(784, 512),
        nn.ReLU(),
        nn.Linear(512, 512),
        nn.ReLU(),
        nn.Linear(512, 10),
    )


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=support.RATE)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=support.RATE)


def train(options, model, step_model, x_all, y_all, indices, chunks, results, optimizer_of=sgd):
    """`step_model` computes a step, with the parameters of `model`; `results(loss_sum, correct)`
    copies a chunk's results to the host."""
    optimizer = optimizer_of(model.parameters())
    loss_of = nn.CrossEntropyLoss()
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
        results(loss_sum, correct)
        chunks.end()


def infer(options, model, x_all, y_all, chunks):
    """Loss and accuracy, or all outputs, of the first examples, one chunk."""
    loss_of = nn.CrossEntropyLoss()
    model.eval()
    with torch.inference_mode():
        for _ in range((options.warmup + options.steps) // support.CHUNK):
            chunks.begin()
            loss_sum = torch.zeros(())
            correct = torch.zeros((), dtype=torch.int64)
            outputs = []
            for first in range(0, support.CHUNK * options.batch, options.batch):
                logits = model(x_all[first : first + options.batch])
                if options.work == "predict":
                    outputs.append(logits)
                    continue
                y = y_all[first : first + options.batch]
                loss_sum += loss_of(logits, y)
                correct += (logits.argmax(1) == y).sum()
            if options.work == "predict":
                torch.cat(outputs)
            else:
                loss_sum.item(), correct.item()
            chunks.end()
