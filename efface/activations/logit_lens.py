"""How much each layer's MLP itself says for the right next token, and the band of layers that says it most."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor


def direct_logit_effects(
    outputs: Float[Tensor, "column residual"],
    tokens: Int[Tensor, " column"],
    unembedding: Float[Tensor, "vocabulary residual"],
) -> Float[Tensor, " column"]:
    """Logit that one layer's MLP output alone gives the gold token of each column.

    effect_j = ⟨W_U[g_j], o_j⟩, without the final norm; positive: the layer speaks for the token. Logit units.
    """
    return (unembedding[tokens].to(outputs.dtype) * outputs).sum(1)


def band_scores(
    forget: Float[Tensor, "layer column"],
    weights: Float[Tensor, " column"],
    retain: Float[Tensor, "layer retained"],
) -> Float[Tensor, " layer"]:
    """How much more each layer speaks for forget tokens than for retain tokens.

    S_l = F_l − R_l, arXiv:2608.05783: F_l = Σ_j α_{g_j} effect_{l,j} / Σ_j α_{g_j} over forget columns, R_l the mean of
    effect_{l,j} over retain columns. Departs from the paper: every retain row counts, not 600 of them. The paper does
    not say whether α is normalised; were it not, the score would fall with the mean of α wherever layers speak loudly.

    Raises: ValueError where either side has no columns, or α is 0 in all of them.
    """
    if not forget.shape[1] or not retain.shape[1]:
        raise ValueError(
            f"{forget.shape[1]} forget and {retain.shape[1]} retain columns: expected at least one of each"
        )
    if not weights.any():
        raise ValueError(
            f"α is 0 in all {len(weights)} forget columns, expected a token that the forget set alone uses"
        )
    weights = weights.double() / weights.double().sum()
    return forget.double() @ weights - retain.double().mean(1)


def best_band(scores: Float[Tensor, " layer"] | Sequence[float], *, width: int) -> tuple[int, ...]:
    """The `width` neighbouring layers with the highest mean score; the earliest of equals.

    Raises: ValueError where `width` is not between 1 and the number of layers.
    """
    scores = torch.as_tensor(scores, dtype=torch.float64)
    if not 1 <= width <= len(scores):
        raise ValueError(f"band width {width}: expected 1 to {len(scores)}, the number of layers")
    first = int(scores.unfold(0, width, 1).mean(1).argmax())
    return tuple(range(first, first + width))
