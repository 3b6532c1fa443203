"""Representation corruption: every forget key is sent in one random direction, whatever token it predicts."""

import torch

from efface.editing.ridge_edit import Targets


def corruption_targets(columns: int, width: int, *, strength: float, seed: int) -> Targets:
    """D = c u 1ᵀ of shape width × columns, arXiv:2608.05783; u is a unit Gaussian direction fixed by the seed."""
    direction = torch.randn(1, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    ones = torch.ones(columns, dtype=torch.float64)
    return Targets(direction / direction.norm(), torch.zeros(columns, dtype=torch.long), strength * ones)
