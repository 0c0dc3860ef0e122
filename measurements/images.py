"""The images of an epoch: CIFAR-10's test set through torchvision's own loader, or random ones of that size.

An epoch goes through all of them once, in batches; the last one may be smaller. Source of the data:
https://www.cs.toronto.edu/~kriz/cifar.html (10,000 test images of 32x32, 10 classes), resized.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Subset

from measurements.records import MeasurementError

Batch = tuple[Tensor, Tensor]


class DataError(MeasurementError):
    """Images that cannot be had: one sentence that names what to change."""


def sizes(images: int, batch: int) -> list[int]:
    """Images of each batch of an epoch."""
    full, rest = divmod(images, batch)
    return [batch] * full + [rest] * bool(rest)


def of_an_epoch(
    data: str, root: str, images: int, batch: int, shape: tuple[int, ...], classes: int
) -> Iterator[Batch]:
    """The batches of `synthetic` or of `cifar10`."""
    if data == "cifar10":
        return cifar10(images, batch, shape, Path(root))
    return synthetic(images, batch, shape, classes)


def synthetic(images: int, batch: int, shape: tuple[int, ...], classes: int) -> Iterator[Batch]:
    """Batches of random images and classes, on the CPU as a loader gives them."""
    for size in sizes(images, batch):
        yield torch.rand(size, *shape), torch.randint(classes, (size,))


def cifar10(images: int, batch: int, shape: tuple[int, ...], root: Path) -> Iterator[Batch]:
    """Batches of CIFAR-10's test images, resized to CxHxW, in the order of the file; downloaded if need be.

    Raises: DataError where they can neither be found nor downloaded, or are fewer, or C is not 3.
    """
    from torchvision import datasets, transforms

    if len(shape) != 3 or shape[0] != 3:
        sizes = "x".join(map(str, shape))
        raise DataError(f"cifar10 has images of 3 x height x width, not {sizes}; give --data synthetic")
    transform = transforms.Compose([transforms.Resize(shape[1:]), transforms.ToTensor()])
    try:
        data = datasets.CIFAR10(root, train=False, transform=transform)
    except RuntimeError:  # "Dataset not found or corrupted"
        try:
            data = datasets.CIFAR10(root, train=False, transform=transform, download=True)
        except Exception as error:
            raise DataError(
                f"cifar10 is not in {root} and cannot be downloaded ({type(error).__name__}: {error}); "
                "give --data-root with the folder of cifar-10-batches-py, or --data synthetic"
            ) from error
    if images > len(data):
        raise DataError(f"cifar10 has {len(data):,} test images, not {images:,}; give fewer --epoch-images")
    return iter(DataLoader(Subset(data, range(images)), batch_size=batch))
