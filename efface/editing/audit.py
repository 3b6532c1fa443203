"""The exact influence of each forget example on an edit: what the edit would lack without it, or gain with one more."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from efface.editing.ridge_edit import RidgeEdit, Targets


def influence_factors(
    edit: RidgeEdit, keys: Float[Tensor, "column key"], targets: Targets, columns: Int[Tensor, " chosen"]
) -> tuple[Float[Tensor, "out chosen"], Float[Tensor, "chosen key"]]:
    """Factors of ΔP_i = P* − P*₋ᵢ, the part of the edit that example i, with these columns, accounts for.

    ΔP_i = (D_i − P* X_i) ((s/w_f) I − X_iᵀ A⁻¹ X_i)⁻¹ X_iᵀ A⁻¹ (Sherman–Morrison–Woodbury; arXiv:2608.05783 states that
    such a form exists). Exact for one linear map while s, μ, α and its keys stay as they are. Without the example, s, α
    and the relative μ would change too, and in a sequential band also the keys of later layers: re-solve for those.

    Cost: a t × t system for the example's t columns, and t solves with A's factor.
    """
    own = keys[columns].double()
    inverse_keys = edit.inverse_keys(columns)
    inner = torch.eye(len(columns), dtype=torch.float64, device=keys.device) / edit.weight - own @ inverse_keys
    residual = targets.of(columns) - edit.change @ own.mT
    return torch.linalg.solve(inner, residual, left=False), inverse_keys.mT


def addition_factors(
    edit: RidgeEdit, keys: Float[Tensor, "column key"], targets: Targets
) -> tuple[Float[Tensor, "out column"], Float[Tensor, "column key"]]:
    """Factors of P*₊ᵢ − P*, what one more forget example with these keys and targets adds to the edit.

    (D_i − P* X_i) ((s/w_f) I + X_iᵀ A⁻¹ X_i)⁻¹ X_iᵀ A⁻¹, exact under the same conditions as `influence_factors`, whose
    negative withdraws an example: a deletion request comes or goes without a new pass over the data.
    """
    own = keys.double()
    inverse_keys = edit.inverse(own.mT)
    inner = torch.eye(len(own), dtype=torch.float64, device=keys.device) / edit.weight + own @ inverse_keys
    residual = targets.of(torch.arange(len(own), device=keys.device)) - edit.change @ own.mT
    return torch.linalg.solve(inner, residual, left=False), inverse_keys.mT


def influence_norms(
    edit: RidgeEdit, keys: Float[Tensor, "column key"], targets: Targets, examples: Int[Tensor, " column"]
) -> dict[int, float]:
    """‖ΔP_i‖_F of every example that has columns, by example."""
    norms = {}
    for example in examples.unique().tolist():
        left, right = influence_factors(edit, keys, targets, (examples == example).nonzero().flatten())
        # ‖L R‖² = tr(Lᵀ L R Rᵀ), both t × t.
        norms[example] = float(((left.mT @ left) * (right @ right.mT)).sum().clamp_min(0).sqrt())
    return norms
