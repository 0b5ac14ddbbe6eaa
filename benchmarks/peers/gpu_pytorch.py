#!/usr/bin/env python3
"""Steps of the tutorials' models in PyTorch on a GPU, in one of the ways in which its users train. The data lies on the
device; the loss and the accuracy become numbers on the host once a chunk. Speaks with gpu.py: see gpu_support.py."""

import sys

import gpu_support

WAYS = ("eager", "graphs", "compile", "compile-graphs")
options = gpu_support.parse(__doc__, WAYS)
try:
    import numpy
    import torch
    from torch.nn import functional as F

    import pytorch_model
    import pytorch_resnet_model
except ImportError as error:
    sys.exit(f"gpu_pytorch: {error}")
if options.device == "cuda" and not torch.cuda.is_available():
    sys.exit("gpu_pytorch: this PyTorch finds no GPU")
if options.device == "cpu" and options.way.endswith("graphs"):
    sys.exit("gpu_pytorch: CUDA graphs need a GPU")


class Work:
    """A model with its data; `run` makes one step on the next examples."""

    def __init__(self):
        torch.manual_seed(1)
        torch.backends.cudnn.benchmark = True
        torch.backends.cudnn.allow_tf32 = options.precision != "float32"
        torch.backends.cuda.matmul.allow_tf32 = options.precision != "float32"
        images, labels = gpu_support.images_and_labels(numpy, options.model)
        self.images = torch.from_numpy(images).to(options.device)
        self.labels = torch.from_numpy(labels).to(options.device)
        if options.model == "cnn":
            self.images = self.images.unsqueeze(1).float().div_(255)
            self.model = pytorch_model.make().to(options.device)
            self.optimizer = pytorch_model.sgd(self.model.parameters())
        else:
            self.model = pytorch_resnet_model.make(options.depth).to(options.device)
            self.optimizer = pytorch_resnet_model.sgd(self.model, 0.1)
        self.model.train()
        self.order = torch.randperm(len(self.labels), device=options.device)
        self.at = 0
        self.index = self.order[: options.batch].clone()
        self.loss = torch.zeros((), device=options.device)
        self.right = torch.zeros((), dtype=torch.int64, device=options.device)
        self.score, self.update = self.compute, self.optimizer.step
        if options.way.startswith("compile"):
            mode = "max-autotune" if options.way == "compile" else "max-autotune-no-cudagraphs"
            self.score = torch.compile(self.compute, mode=mode)
            self.update = torch.compile(self.optimizer.step)
        self.run = self.capture() if options.way.endswith("graphs") else self.step

    def compute(self, x, y):
        if options.model == "resnet":
            x = pytorch_resnet_model.standardized(x)
        with torch.autocast(options.device, torch.bfloat16, options.precision == "bfloat16"):
            logits = self.model(x)
        return F.cross_entropy(logits.float(), y), (logits.argmax(1) == y).sum()

    def step(self):
        if options.way == "compile":
            torch.compiler.cudagraph_mark_step_begin()
        self.optimizer.zero_grad(set_to_none=True)
        loss, right = self.score(self.images[self.index], self.labels[self.index])
        loss.backward()
        self.update()
        self.loss += loss.detach()
        self.right += right

    def capture(self):
        """The whole step as one CUDA graph."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(11):
                self.step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            self.step()
        return graph.replay

    def chunk(self):
        """Mean loss and accuracy of options.chunk steps."""
        self.loss.zero_()
        self.right.zero_()
        for _ in range(options.chunk):
            if self.at + options.batch > len(self.order):
                self.at = 0
            self.index.copy_(self.order[self.at : self.at + options.batch])
            self.at += options.batch
            self.run()
        return (self.loss.item() / options.chunk,
                self.right.item() / (options.chunk * options.batch))


def peak_bytes():
    if options.device == "cpu":
        return {}
    return {"allocated": torch.cuda.max_memory_allocated(),
            "reserved": torch.cuda.max_memory_reserved()}


work = Work()
versions = {"torch": torch.__version__}
if options.device == "cuda":
    versions.update(cuda=torch.version.cuda, cudnn=torch.backends.cudnn.version(),
                    gpu=torch.cuda.get_device_name())
gpu_support.serve(options, work.chunk, peak_bytes, versions)
