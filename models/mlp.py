"""The network with two hidden layers that the theory is first written down for.

Source: "What's the backward-forward FLOP ratio for neural networks?", its first table:
A1 = W1 @ X, ReLU, A2 = W2 @ A1R, ReLU, A3 = W3 @ A2R, ReLU, loss.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F


class MLP(nn.Module):
    """Three layers without bias, each with a ReLU behind it, the last included."""

    def __init__(self, inputs: int = 24, hidden1: int = 16, hidden2: int = 12, outputs: int = 10) -> None:
        """Sizes of the three layers; the defaults are unequal, so that no two rows of the table agree."""
        super().__init__()
        self.fc1 = nn.Linear(inputs, hidden1, bias=False)
        self.fc2 = nn.Linear(hidden1, hidden2, bias=False)
        self.fc3 = nn.Linear(hidden2, outputs, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Outputs of 0 and above, one row a sample."""
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        x = F.relu(self.fc3(x))
        return x


def build(name: str, classes: int = 10) -> nn.Module:
    """The network with `classes` outputs and the default sizes."""
    return MLP(outputs=classes)
