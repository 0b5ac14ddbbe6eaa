"""The CIFAR-10 tutorial's ResNet in PyTorch, with Keras' meaning: TensorFlow's padding of strided
convolutions, He-normal kernels, zero biases, and L2(2e-4) as weight decay 4e-4 (the gradient of
l2*w*w is 2*l2*w) on kernels and biases of convolutions and of the dense layer only."""

import math

import torch
from torch import nn
from torch.nn import functional as F

L2 = 2e-4


class Conv(nn.Conv2d):
    """Same padding: a 3x3 kernel with stride 2 on an even side pads below and right only."""

    def __init__(self, inputs, filters, kernel, stride=1):
        self.uneven = kernel == 3 and stride == 2
        super().__init__(inputs, filters, kernel, stride,
                         padding=0 if self.uneven else kernel // 2)
        scale = math.sqrt(2 / (inputs * kernel * kernel)) / 0.87962566103423978
        nn.init.trunc_normal_(self.weight, 0, scale, -2 * scale, 2 * scale)
        nn.init.zeros_(self.bias)

    def forward(self, x):
        return super().forward(F.pad(x, (0, 1, 0, 1)) if self.uneven else x)


def norm(filters):
    return nn.BatchNorm2d(filters, eps=1e-5, momentum=0.003)


class Block(nn.Module):
    def __init__(self, inputs, filters, stride, project):
        super().__init__()
        self.main = nn.Sequential(Conv(inputs, filters, 3, stride), norm(filters), nn.ReLU(),
                                  Conv(filters, filters, 3), norm(filters))
        self.skip = (nn.Sequential(Conv(inputs, filters, 1, stride), norm(filters))
                     if project else nn.Identity())

    def forward(self, x):
        return F.relu(self.main(x) + self.skip(x))


def make(depth):
    """ResNet-20 or ResNet-56 with channels-last weights; 10 logits of (3, 32, 32)."""
    layers, inputs = [Conv(3, 16, 3), norm(16), nn.ReLU()], 16
    for filters, stride in ((16, 1), (32, 2), (64, 2)):
        for i in range((depth - 2) // 6):
            layers.append(Block(inputs, filters, stride if i == 0 else 1, i == 0))
            inputs = filters
    dense = nn.Linear(64, 10)
    nn.init.xavier_uniform_(dense.weight)
    nn.init.zeros_(dense.bias)
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), dense)
    return model.to(memory_format=torch.channels_last)


def decayed(model):
    """The parameters with an L2 penalty."""
    return [p for m in model.modules() if isinstance(m, (nn.Conv2d, nn.Linear))
            for p in m.parameters()]


def sgd(model, rate):
    """The tutorial's optimizer, with as few passes over the parameters as PyTorch allows."""
    penalized = decayed(model)
    known = {id(p) for p in penalized}
    others = [p for p in model.parameters() if id(p) not in known]
    groups = [{"params": penalized, "weight_decay": 2 * L2}, {"params": others}]
    return torch.optim.SGD(groups, lr=rate, momentum=0.9, foreach=True)


def penalty(model):
    with torch.no_grad():
        return L2 * sum(float((p.detach() ** 2).sum()) for p in decayed(model))


def standardized(images):
    """Standardizes images [N, 32, 32, 3] of bytes: (x - mean) / max(std, 1/sqrt(3072)). Returns
    [N, 3, 32, 32] with channels-last memory."""
    x = images.float().reshape(len(images), -1)
    std = x.std(1, unbiased=False, keepdim=True).clamp_min(3072**-0.5)
    x = (x - x.mean(1, keepdim=True)) / std
    return x.reshape(images.shape).permute(0, 3, 1, 2)
