"""The two linear networks of the backward/forward study: the first layer is most of it, or next to nothing.

Source: "What's the backward-forward FLOP ratio for neural networks?", appendix A.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class LinearNet(nn.Module):
    """A large first layer and small later ones: backward/forward falls from 2:1 to 1:1 with the batch."""

    inputs = 224 * 224 * 3

    def __init__(self, classes: int = 10) -> None:
        """Three layers, the last of `classes` outputs."""
        super().__init__()
        self.fc1 = nn.Linear(self.inputs, 4096)
        self.fc2 = nn.Linear(4096, 128)
        self.fc3 = nn.Linear(128, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits, one row a sample."""
        x = torch.flatten(x, 1)
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        x = self.fc3(x)
        return x


class OneNet(LinearNet):
    """The same layers behind a single input: backward/forward falls from 3:1 to 2:1 with the batch."""

    inputs = 1


def build(name: str, classes: int = 10) -> nn.Module:
    """The linear network of that name."""
    return {"linear_net": LinearNet, "one_net": OneNet}[name](classes)
