#!/usr/bin/env python3
"""The seed step in several processes of PyTorch: DistributedDataParallel over Gloo.

The model and the loop of pytorch_mnist.py; --batch is the global batch, divided among the ranks. `--optimizer zero` is Adam in
ZeroRedundancyOptimizer, which divides its state among the ranks; `--hook` compresses gradients.
Loss and accuracy are summed over the ranks once per chunk.
"""

import sys

import support


def add_options(parser):
    parser.add_argument("--optimizer", choices=("sgd", "adam", "zero"), default="sgd")
    parser.add_argument("--hook", choices=("none", "bf16"), default="none")


options = support.parse(__doc__, add_options, workers=2)


def environment_of(rank, addresses):
    """As torchrun sets it."""
    host, port = addresses[0].split(":")
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(options.workers),
        "MASTER_ADDR": host,
        "MASTER_PORT": port,
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": str(options.threads),
    }


rank = support.become_worker(options, environment_of)
try:
    import torch
    from torch import distributed
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel
    import pytorch_model
except ImportError as error:
    sys.exit(f"pytorch_ddp_mnist: {error}; install the peers with benchmarks/peers/setup.sh")


def main():
    pytorch_model.start(options)
    distributed.init_process_group("gloo")
    x_all, y_all = pytorch_model.data()
    model = DistributedDataParallel(pytorch_model.make())
    if options.hook == "bf16":
        model.register_comm_hook(None, default_hooks.bf16_compress_hook)
    optimizers = {
        "sgd": pytorch_model.sgd,
        "adam": pytorch_model.adam,
        "zero": lambda parameters: ZeroRedundancyOptimizer(parameters, torch.optim.Adam, lr=support.RATE),
    }
    local = options.batch // options.workers
    indices = (
        index[rank * local : (rank + 1) * local]
        for index in pytorch_model.batches(len(x_all), options.batch)
    )
    chunks = support.Chunks()

    def results(loss_sum, correct):
        sums = torch.stack([loss_sum / options.workers, correct.float()])
        distributed.all_reduce(sums)
        sums.tolist()

    pytorch_model.train(options, model, model, x_all, y_all, indices, chunks, results, optimizers[options.optimizer])
    if rank == 0:
        support.report("pytorch-ddp", options, chunks, {"torch": torch.__version__})
    distributed.destroy_process_group()


main()
