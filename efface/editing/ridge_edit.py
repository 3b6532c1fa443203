"""The closed form: the smallest weight change that sends forget keys to their targets and leaves retain keys alone."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from efface.activations.key_statistics import KeyGram
from efface.linalg import dual_ridge, primal_ridge


@dataclass(frozen=True)
class Targets:
    """D, what the change should add to the output of each forget key, never formed whole.

    D[:, j] = scale_j · directions[index_j]: many columns share few directions.
    """

    directions: Float[Tensor, "direction out"]
    index: Int[Tensor, " column"]
    scale: Float[Tensor, " column"]

    def scaled(self, factors: Float[Tensor, " column"]) -> "Targets":
        """D with every column multiplied by its factor."""
        return Targets(self.directions, self.index, self.scale * factors.to(self.scale))

    def of(self, columns: Int[Tensor, " chosen"]) -> Float[Tensor, "out chosen"]:
        """The chosen columns of D."""
        return self.directions[self.index[columns]].mT * self.scale[columns]

    def times(self, keys: Float[Tensor, "column key"]) -> Float[Tensor, "out key"]:
        """D Xᵀ: keys summed by direction first, so that no out × column matrix exists."""
        sums = torch.zeros(len(self.directions), keys.shape[1], dtype=torch.float64, device=keys.device)
        sums.index_add_(0, self.index, keys.double() * self.scale[:, None])
        return self.directions.mT @ sums


@dataclass(frozen=True)
class RidgeEdit:
    """The change P of one linear map; `weight` is w_f / s, `mu` the absolute ridge μ.

    `inverse_keys` gives chosen columns of A⁻¹ X_f, `inverse` A⁻¹ times any columns: what an audit needs.
    """

    change: Float[Tensor, "out key"]
    weight: float
    mu: float
    inverse_keys: Callable[[Int[Tensor, " chosen"]], Float[Tensor, "key chosen"]]
    inverse: Callable[[Float[Tensor, "key column"]], Float[Tensor, "key column"]]


def ridge_edit(
    keys: Float[Tensor, "column key"],
    targets: Targets,
    retain: KeyGram | Float[Tensor, "retained key"],
    *,
    retain_weight: float,
    forget_weight: float = 1.0,
    ridge: float,
) -> RidgeEdit:
    """The change that minimises (w_r/r)‖P X_r‖² + (w_f/s)‖P X_f − D‖² + μ‖P‖² (Frobenius norms), in float64.

    arXiv:2608.05783: P* = (w_f/s) D X_fᵀ A⁻¹ with A = (w_r/r) X_r X_rᵀ + (w_f/s) X_f X_fᵀ + μ I and μ = ρ tr(A₀)/n,
    where A₀ is A without its last term and ρ is `ridge`. P is linear in D. Keys are rows here, columns there.

    Raises: ValueError where either side has no keys, a key is not finite, or A is singular.
    Cost: n³/3 for n key dimensions; with retain keys given themselves, and fewer of them all than n, their number³/3.
    """
    s, r = len(keys), retain.count if isinstance(retain, KeyGram) else len(retain)
    if not s or not r:
        raise ValueError(f"{s} forget keys and {r} retain keys: expected at least one of each; give both sets rows")
    retained = retain.gram if isinstance(retain, KeyGram) else retain
    if not torch.isfinite(keys).all() or not torch.isfinite(retained).all():
        raise ValueError("some key is NaN or infinite; load the model in float32 or check its weights")
    weights = {"weight": forget_weight / s, "retain_weight": retain_weight / r, "ridge": ridge}
    if isinstance(retain, KeyGram):
        return _primal_edit(keys.double(), targets, retain.gram, **weights)
    if s + r < keys.shape[1]:
        return _dual_edit(keys.double(), targets, retain.double(), **weights)
    return _primal_edit(keys.double(), targets, retain.double().mT @ retain.double(), **weights)


def _primal_edit(
    keys: Tensor, targets: Targets, gram: Tensor, *, weight: float, retain_weight: float, ridge: float
) -> RidgeEdit:
    """Solves in the space of keys, n × n."""
    system = retain_weight * gram + weight * (keys.mT @ keys)
    mu = ridge * float(system.trace()) / len(system)
    factored = primal_ridge(system, mu=mu)
    change = factored.solve(weight * targets.times(keys).mT).mT
    return RidgeEdit(change, weight, mu, lambda columns: factored.solve(keys[columns].mT), factored.solve)


def _dual_edit(
    keys: Tensor, targets: Targets, retained: Tensor, *, weight: float, retain_weight: float, ridge: float
) -> RidgeEdit:
    """Solves in the space of samples C = [√(w_r/r) X_r, √(w_f/s) X_f]: A⁻¹ X_f = C (CᵀC + μ I)⁻¹ E_f / √(w_f/s)."""
    samples = torch.cat([retain_weight**0.5 * retained, weight**0.5 * keys]).mT
    mu = ridge * float(samples.square().sum()) / len(samples)
    forget_samples = torch.eye(samples.shape[1], dtype=samples.dtype, device=samples.device)[:, len(retained) :]
    factored = dual_ridge(samples, mu=mu)
    own = factored.solve(forget_samples) / weight**0.5

    def inverse(right: Tensor) -> Tensor:
        """(C Cᵀ + μ I)⁻¹ B = (B − C (CᵀC + μ I)⁻¹ CᵀB) / μ."""
        return (right - factored.solve(samples.mT @ right)) / mu

    return RidgeEdit(weight * targets.times(own.mT), weight, mu, lambda columns: own[:, columns], inverse)
