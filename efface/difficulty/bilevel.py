"""Bi-level choice of the examples that are hardest, or easiest, to unlearn.

Upper level: relaxed weights of membership w ∈ [0, 1]ᴺ with Σw = m. Lower level: an unlearning run under these weights
by sign-SGD. The sign has zero derivative, so dθ/dw = 0 and the upper gradient needs no differentiation through the run.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from efface.difficulty.cud import ROLES, Role

Unlearn = Callable[[Float[Tensor, " example"]], Float[Tensor, " example"]]


@dataclass(frozen=True)
class BilevelChoice:
    """Chosen places (largest weight first), final relaxed weights, and the losses seen in every epoch."""

    places: Int[Tensor, " chosen"]
    weights: Float[Tensor, " example"]
    losses: Float[Tensor, "epoch example"]


def bilevel_choice(
    unlearn: Unlearn,
    *,
    role: Role,
    count: int,
    size: int,
    epochs: int,
    learning_rate: float,
    penalty: float = 0.0,
    binarise_every: int = 20,
    seed: int = 0,
) -> BilevelChoice:
    """The `size` of `count` examples whose unlearning leaves the lowest loss (hard) or the highest (easy).

    Bi-level objective, arXiv:2403.07362: min_w Σᵢ wᵢ ℓᵢ(θ_u(w)) + γ‖w‖² (hard; easy: max), w ← Π(w ∓ η(ℓ + 2γw)), Π the
    projection on {0 ≤ w ≤ 1, Σw = size}. Every `binarise_every` epochs w becomes its `size` largest entries.

    `unlearn(weights)` starts from the same model every time and returns each example's loss afterwards. The first
    weights are a random choice of `size` examples.

    Raises: ValueError where `size` is not within 1 … count, the role is unknown or a loss is not finite.
    """
    if role not in ROLES or not 0 < size <= count:
        raise ValueError(f"role {role!r}, size {size} of {count}: expected a role of {list(ROLES)}, size 1 to {count}")
    generator = torch.Generator().manual_seed(seed)
    weights = _indicator(torch.randperm(count, generator=generator)[:size], count)
    history = []
    for epoch in range(1, epochs + 1):
        losses = unlearn(weights).double()
        if not torch.isfinite(losses).all():
            raise ValueError(f"bi-level epoch {epoch}: a loss is not finite; lower bilevel.unlearn_learning_rate")
        step = learning_rate * (losses + 2 * penalty * weights)
        weights = capped_simplex_projection(weights + step if role == "easy" else weights - step, size)
        if epoch % binarise_every == 0:
            weights = _indicator(_largest(weights, size), count)
        history.append(losses)
    return BilevelChoice(_largest(weights, size), weights, torch.stack(history))


def capped_simplex_projection(
    point: Float[Tensor, " example"], total: int | float, *, tolerance: float = 1e-12
) -> Float[Tensor, " example"]:
    """The nearest w with 0 ≤ w ≤ 1 and Σw = total: w = clamp(point − μ, 0, 1), μ by bisection.

    Raises: ValueError where `total` is not within 0 … number of entries.
    """
    if not 0 <= total <= len(point):
        raise ValueError(f"total {total}: expected 0 to {len(point)}, the number of weights")
    point = point.double()
    low, high = point.min().item() - 1, point.max().item()
    while high - low > tolerance:
        middle = (low + high) / 2
        if (point - middle).clamp(0, 1).sum() > total:
            low = middle
        else:
            high = middle
    return (point - (low + high) / 2).clamp(0, 1)


@torch.no_grad()
def sign_sgd_step(parameters: Sequence[Tensor], gradients: Sequence[Tensor], *, learning_rate: float) -> None:
    """θ ← θ − lr · sign(∂loss/∂θ), in place."""
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.sub_(gradient.sign(), alpha=learning_rate)


def _indicator(places: Int[Tensor, " chosen"], count: int) -> Float[Tensor, " example"]:
    weights = torch.zeros(count, dtype=torch.float64)
    weights[places] = 1
    return weights


def _largest(weights: Float[Tensor, " example"], size: int) -> Int[Tensor, " chosen"]:
    return torch.argsort(weights, descending=True, stable=True)[:size]
