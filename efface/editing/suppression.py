"""Token suppression: which answer tokens a forget set alone uses, and the outputs that make them unlikely."""

from collections.abc import Collection

import torch
from jaxtyping import Float, Int
from torch import Tensor

from efface.editing.ridge_edit import Targets

NEGLIGIBLE = 1e-9


def specificity_weights(
    forget: Int[Tensor, " column"],
    retain: Int[Tensor, " retained"],
    *,
    vocabulary: int,
    uncounted: Collection[int] = (),
) -> Float[Tensor, " vocabulary"]:
    """How much more often forget answers use a token than retain answers do, 0 (never suppressed) to 1.

    α_v = clip(1 − rf(v) / (ff(v) + 1e-12), 0, 1), arXiv:2608.05783; ff and rf are relative frequencies of v among gold
    tokens. `uncounted` tokens are left out of rf: the published α counts no end token, so that it too is suppressed.

    Raises: ValueError where a side has no tokens, or α is 0 for every forget token.
    """
    counted = retain[~torch.isin(retain, torch.tensor(sorted(uncounted), dtype=retain.dtype, device=retain.device))]
    if not len(forget) or not len(counted):
        raise ValueError(f"{len(forget)} forget and {len(counted)} retain tokens: expected at least one of each")
    ff = torch.bincount(forget, minlength=vocabulary).double() / len(forget)
    rf = torch.bincount(counted, minlength=vocabulary).double() / len(counted)
    alpha = (1 - rf / (ff + 1e-12)).clamp(0, 1)
    if float(alpha[forget].max()) < NEGLIGIBLE:
        raise ValueError(
            "specificity weights are 0 for every forget token: retain answers use all of them at least as often, so "
            "the edit would change nothing; take other retain rows or a larger forget set"
        )
    return alpha


def residual_targets(
    tokens: Int[Tensor, " column"],
    alpha: Float[Tensor, " vocabulary"],
    unembedding: Float[Tensor, "vocabulary residual"],
    *,
    beta: float,
) -> Targets:
    """Targets of an MLP's down-projection: away from the gold token, in the residual stream.

    D[:, j] = −β α_{g_j} u_{g_j}, u_v = W_U[v] / ‖W_U[v]‖, arXiv:2608.05783; the final norm is ignored.
    """
    distinct, index = tokens.unique(return_inverse=True)
    rows = unembedding[distinct].double()
    directions = rows / rows.norm(dim=1, keepdim=True).clamp_min(1e-8)
    return Targets(directions, index, -beta * alpha.double()[tokens])


def logit_targets(
    tokens: Int[Tensor, " column"], alpha: Float[Tensor, " vocabulary"], *, beta: float
) -> tuple[Targets, Int[Tensor, " row"]]:
    """Targets of the unembedding, D[:, j] = −β α_{g_j} e_{g_j}, within the rows (second value) that it touches."""
    rows, index = tokens.unique(return_inverse=True)
    directions = torch.eye(len(rows), dtype=torch.float64, device=tokens.device)
    return Targets(directions, index, -beta * alpha.double()[tokens]), rows
