"""The two small convolutional networks of the backward/forward study.

Source: "What's the backward-forward FLOP ratio for neural networks?", appendix A.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ConvNet(nn.Module):
    """Two convolutions and a classifier: the update is negligible at every batch."""

    def __init__(self, classes: int = 10) -> None:
        """Two convolutions of 7x7 and `classes` outputs."""
        super().__init__()
        self.conv1 = nn.Conv2d(3, 32, kernel_size=7, stride=2, padding=3, bias=False)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        self.conv2 = nn.Conv2d(32, 64, kernel_size=7, stride=2, padding=3, bias=False)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc1 = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits, one row a sample."""
        x = self.maxpool(self.relu(self.conv1(x)))
        x = self.maxpool(self.relu(self.conv2(x)))
        x = self.avgpool(x)
        x = torch.flatten(x, 1)
        x = self.fc1(x)
        return x


class DeeperConvNet(nn.Module):
    """One convolution applied n times between two others: depth without more weights.

    As the study prints it, maxpool is built and never called.
    """

    def __init__(self, n: int = 100, classes: int = 10) -> None:
        """The middle convolution applied n times, and `classes` outputs."""
        super().__init__()
        self.n = n
        self.first_layer = nn.Sequential(
            nn.Conv2d(3, 32, kernel_size=7, stride=2, padding=3, bias=False),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=3, stride=2),
        )
        self.conv_layer = nn.Sequential(
            nn.Conv2d(32, 32, kernel_size=3, stride=1, padding=1, bias=False),
            nn.ReLU(inplace=True),
        )
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        self.convN = nn.Conv2d(32, 64, kernel_size=7, stride=2, padding=3, bias=False)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc1 = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits, one row a sample."""
        x = self.first_layer(x)
        for _ in range(self.n):
            x = self.conv_layer(x)
        x = self.relu(self.convN(x))
        x = self.avgpool(x)
        x = torch.flatten(x, 1)
        x = self.fc1(x)
        return x


def build(name: str, classes: int = 10) -> nn.Module:
    """The convolutional network of that name; the number that ends `deeper_conv_net_N` is its n."""
    if name == "conv_net":
        return ConvNet(classes)
    n = name.removeprefix("deeper_conv_net").removeprefix("_")
    return DeeperConvNet(int(n), classes) if n else DeeperConvNet(classes=classes)
