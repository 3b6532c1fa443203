"""Weights that may be changed for a while and come back bit for bit."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def kept_weights(model: nn.Module) -> Iterator[None]:
    """Copies every parameter back at the end, after an error too. Cost: the memory of one more model."""
    saved = [parameter.detach().clone() for parameter in model.parameters()]
    try:
        yield
    finally:
        with torch.no_grad():
            for parameter, value in zip(model.parameters(), saved, strict=True):
                parameter.copy_(value)
