"""How much harder an edit should push an example that is foretold to be hard to unlearn."""

import torch
from jaxtyping import Float
from torch import Tensor


def difficulty_emphasis(cud: Float[Tensor, " example"], *, gain: float) -> Float[Tensor, " example"]:
    """1 + gain · rank, the rank of CUD among these examples spread evenly from −1 (easiest) to 1 (hardest); mean 1.

    Ranks, because CUD has no unit that carries over from one pool to another. Equal scores share their mean rank.
    """
    if len(cud) < 2:
        return torch.ones(len(cud), dtype=torch.float64)
    less, equal = ((operator(cud[:, None], cud[None, :])).sum(1).double() for operator in (torch.gt, torch.eq))
    ranks = less + (equal - 1) / 2
    return 1 + gain * (2 * ranks / (len(cud) - 1) - 1)
