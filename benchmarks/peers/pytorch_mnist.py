#!/usr/bin/env python3
"""The peers' workload in PyTorch, as its user writes it: the tutorials' CNN with SGD(0.001), or the MLP
with Adam(0.001)."""

import sys

import support


def add_options(parser):
    support.add_work(parser)
    parser.add_argument("--channels-last", action="store_true", help="NHWC tensors in memory")
    parser.add_argument("--compile", action="store_true", help="torch.compile the model")


options = support.parse(__doc__, add_options)
try:
    import torch
    import pytorch_model
except ImportError as error:
    sys.exit(f"pytorch_mnist: {error}; install the peers with benchmarks/peers/setup.sh")


def main():
    pytorch_model.start(options)
    x_all, y_all = pytorch_model.data()
    is_mlp = options.model == "mlp"
    model = pytorch_model.make_mlp() if is_mlp else pytorch_model.make()
    if options.channels_last:
        model = model.to(memory_format=torch.channels_last)
        x_all = x_all.to(memory_format=torch.channels_last)
    step_model = torch.compile(model) if options.compile else model
    indices = pytorch_model.batches(len(x_all), options.batch)
    chunks = support.Chunks()

    def results(loss_sum, correct):
        loss_sum.item(), correct.item()

    if options.work == "fit":
        optimizer_of = pytorch_model.adam if is_mlp else pytorch_model.sgd
        pytorch_model.train(options, model, step_model, x_all, y_all, indices, chunks, results,
                            optimizer_of)
    else:
        pytorch_model.infer(options, step_model, x_all, y_all, chunks)
    name = "pytorch"
    name += "-channels-last" if options.channels_last else ""
    name += "-compile" if options.compile else ""
    support.report(name, options, chunks, {"torch": torch.__version__})


main()
