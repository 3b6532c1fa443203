"""Subspace removal: the forget set's weight change, less what lies in the retain set's subspace, is subtracted."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from efface.editing.delta import Delta, LowRank
from efface.linalg import decay_rank, energy_rank, pivoted_qr_of_product, project_out, svd_of_product

Side = Literal["left", "right"]


@dataclass(frozen=True)
class QrErase:
    """QR-Erase, arXiv:2608.01422: pivoted QR of both task matrices, per module.

    Ranks are the fewest columns that hold `energy` (0 to 1) of ‖T‖²_F, at most `rank`, and only while |R_kk| stays
    above `decay` · |R_11|. `side` chooses which space of T_r is spared: outputs (left, the paper's) or inputs (right).
    `strength` is λ in W − λ T̃_f. `localised` edits only layers with E_l ≥ 1/|L|.
    """

    method: Literal["qr_erase"] = "qr_erase"
    side: Side = "left"
    energy: float = 0.99
    rank: int | None = None
    decay: float = 0.0
    strength: float = 1.0
    localised: bool = False

    def __post_init__(self) -> None:
        _check(self.energy, self.rank, self.decay)

    def delta(self, forget: Mapping[str, LowRank], retain: Mapping[str, LowRank]) -> Delta:
        """The change of every module's weight, by parameter name."""
        return _delta(self, forget, retain, _qr_factors)


@dataclass(frozen=True)
class UnlearnSvd:
    """UNLEARN, arXiv:2408.04140: the same removal with singular vectors, by default in the space of inputs."""

    method: Literal["unlearn_svd"] = "unlearn_svd"
    side: Side = "right"
    energy: float = 0.99
    rank: int | None = None
    decay: float = 0.0
    strength: float = 1.0
    localised: bool = False

    def __post_init__(self) -> None:
        _check(self.energy, self.rank, self.decay)

    def delta(self, forget: Mapping[str, LowRank], retain: Mapping[str, LowRank]) -> Delta:
        """The change of every module's weight, by parameter name."""
        return _delta(self, forget, retain, _svd_factors)


def removal(
    forget: tuple[Float[Tensor, "out k"], Float[Tensor, "k in"]], spared: Float[Tensor, "space r"], *, side: Side
) -> tuple[Float[Tensor, "out k"], Float[Tensor, "k in"]]:
    """Factors of T̃_f, the part of T_f = left · right outside the retain set's subspace.

    T̃_f = (I − P_r) Q_f R_f Πᵀ (left) or Q_f R_f Πᵀ (I − V_r V_rᵀ) (right), arXiv:2608.01422; the columns of `spared`
    are an orthonormal basis of that subspace. Between orthonormal vectors UNLEARN's Gram–Schmidt is this projection.

    Raises: ValueError where the subspace is the whole space.
    """
    if spared.shape[0] == spared.shape[1]:
        raise ValueError(
            f"the retain task matrix has full rank {spared.shape[1]}: nothing lies outside its subspace, so nothing "
            "would be erased; truncate it (lower `energy`, or set `rank` or `decay`)"
        )
    left, right = forget
    return (project_out(left, spared), right) if side == "left" else (left, project_out(right.mT, spared).mT)


def frobenius_norm(matrix: LowRank) -> float:
    """‖left · right‖_F without forming the product."""
    return float(torch.linalg.norm(torch.linalg.qr(matrix.left.double()).R @ matrix.right.double()))


def _delta(edit: QrErase | UnlearnSvd, forget: Mapping[str, LowRank], retain: Mapping[str, LowRank], factors) -> Delta:
    if set(forget) != set(retain):
        odd = sorted(set(forget) ^ set(retain))
        raise ValueError(f"modules {odd} have a task matrix on one side only; build both anew (build_task_matrices)")
    if not any(frobenius_norm(matrix) for matrix in forget.values()):
        raise ValueError(
            f"the forget task matrices of {len(forget)} modules are all zero, expected a weight change to remove; "
            "train them longer (build_task_matrices: epochs, learning_rate)"
        )
    delta: Delta = {}
    for name, matrix in forget.items():
        spared, other = retain[name], (retain[name].right.mT, retain[name].left.mT)
        basis, _ = factors(*((spared.left, spared.right) if edit.side == "left" else other), edit)
        try:
            left, right = removal(factors(matrix.left, matrix.right, edit), basis, side=edit.side)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        delta[f"{name}.weight"] = LowRank((-edit.strength * left).float(), right.float())
    return delta


def _qr_factors(left: Tensor, right: Tensor, edit: QrErase | UnlearnSvd) -> tuple[Tensor, Tensor]:
    """Q and R Πᵀ of left · right at the edit's rank."""
    found = pivoted_qr_of_product(left, right)
    kept = found.truncated(_rank(found.r.square().sum(1), found.r.diagonal().abs(), edit))
    return kept.q, kept.r_unpermuted


def _svd_factors(left: Tensor, right: Tensor, edit: QrErase | UnlearnSvd) -> tuple[Tensor, Tensor]:
    """U and S Vᵀ of left · right at the edit's rank."""
    u, s, vt = svd_of_product(left, right)
    k = _rank(s.square(), s, edit)
    return u[:, :k], s[:k, None] * vt[:k]


def _rank(energies: Tensor, diagonal: Tensor, edit: QrErase | UnlearnSvd) -> int:
    limits = [energy_rank(energies, edit.energy), decay_rank(diagonal, edit.decay)]
    return min([*limits, edit.rank] if edit.rank is not None else limits)


def _check(energy: float, rank: int | None, decay: float) -> None:
    if not 0 < energy <= 1:
        raise ValueError(f"energy {energy}: expected above 0 and at most 1")
    if rank is not None and rank < 1:
        raise ValueError(f"rank {rank}: expected at least 1")
    if not 0 <= decay < 1:
        raise ValueError(f"decay {decay}: expected 0 or more and below 1")
