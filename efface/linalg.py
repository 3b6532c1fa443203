"""Pivoted QR, ridge systems and projections: the linear algebra that editors share, all in float64."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.linalg import get_lapack_funcs, qr
from torch import Tensor

EPSILON = torch.finfo(torch.float64).eps
PROBES = 10
BLOCK = 64


@dataclass(frozen=True)
class PivotedQr:
    """The leading k columns of A Π = Q R; `error_bound` is an upper bound on ‖A − Q Qᵀ A‖₂."""

    q: Float[Tensor, "row k"]
    r: Float[Tensor, "k column"]
    permutation: Int[Tensor, " column"]
    error_bound: float

    @property
    def r_unpermuted(self) -> Float[Tensor, "k column"]:
        """R Πᵀ, its columns in the order of A's."""
        return self.r[:, self.permutation.argsort()]

    def truncated(self, rank: int) -> "PivotedQr":
        """The first `rank` of the k columns; what is dropped goes into the bound."""
        dropped = float(torch.linalg.norm(self.r[rank:]))
        return PivotedQr(self.q[:, :rank], self.r[:rank], self.permutation, math.hypot(self.error_bound, dropped))


def pivoted_qr(matrix: Float[Tensor, "row column"], rank: int | None = None) -> PivotedQr:
    """Column-pivoted QR by LAPACK's geqp3: the leading `rank` columns, fewer where the numerical rank is lower.

    Raises: ValueError where the matrix is not finite or `rank` is not positive.
    Cost: the whole factorisation on the CPU, whatever the rank.
    """
    _check(matrix, rank)
    values = matrix.detach().cpu().double().numpy()
    factored: Any = qr(values, mode="raw", pivoting=True, check_finite=False)
    (packed, tau), r, pivots = factored
    r = torch.from_numpy(r)[: min(matrix.shape)]
    k = min(decay_rank(r.diagonal().abs(), _rounding(matrix)), rank or min(matrix.shape))
    q = _leading_columns(packed, tau, k)
    error = float(torch.linalg.norm(r[k:])) + _rounding(matrix) * float(torch.linalg.norm(r))
    permutation = torch.from_numpy(pivots).long()
    return PivotedQr(q.to(matrix.device), r[:k].to(matrix.device), permutation.to(matrix.device), error)


def randomised_pivoted_qr(
    matrix: Float[Tensor, "row column"], rank: int, *, seed: int, oversampling: int = 10, power: int = 1
) -> PivotedQr:
    """Truncated column-pivoted QR whose pivots come from a sketch of `rank` + `oversampling` rows.

    The sketch is Ω A with Gaussian Ω, or with `power` iterations the part of A in its leading column space; its pivot
    columns name those of A, whose QR gives Q, and R = Qᵀ A Π. The bound is Eq. (4.3), arXiv:0909.4061:
    10 √(2/π) max_i ‖(I − Q Qᵀ) A ω_i‖₂ over 10 Gaussian probes ω_i; it fails with probability 1e-10.

    Raises: ValueError where the matrix is not finite or `rank` is not positive.
    Cost: 2 + 2·power products of A with a thin matrix, and one k × column factorisation; runs where `matrix` is.
    """
    _check(matrix, rank)
    a = matrix.double()
    generator = torch.Generator().manual_seed(seed)
    sketch = _gaussian(min(rank + oversampling, min(a.shape)), a.shape[0], generator, like=a) @ a
    for _ in range(power):
        sketch = _orthonormal_rows(_orthonormal_rows(sketch) @ a.mT) @ a
    pivots = _pivots(sketch, min(rank, *a.shape))
    order = _pivots(torch.linalg.qr(a[:, pivots]).R, len(pivots))
    pivots = pivots[order]
    q, _ = torch.linalg.qr(a[:, pivots])
    rest = torch.ones(a.shape[1], dtype=torch.bool, device=a.device).index_fill(0, pivots, False).nonzero().flatten()
    permutation = torch.cat([pivots, rest])
    r = (q.mT @ a)[:, permutation]
    r[:, : len(pivots)] = r[:, : len(pivots)].triu()
    probes = a @ _gaussian(a.shape[1], PROBES, generator, like=a)
    error = 10 * math.sqrt(2 / math.pi) * float(torch.linalg.norm(project_out(probes, q), dim=0).max())
    return PivotedQr(q, r, permutation, error + _rounding(a) * float(torch.linalg.norm(r)))


def pivoted_qr_of_product(
    left: Float[Tensor, "row rank"], right: Float[Tensor, "rank column"], rank: int | None = None
) -> PivotedQr:
    """Column-pivoted QR of left · right, with the same pivots, without forming the product.

    With left = Q₁ R₁, the columns of R₁ · right have the lengths of the product's: its pivoted QR is Q₁ times that one.
    """
    basis, triangle = torch.linalg.qr(left.double())
    small = pivoted_qr(triangle @ right.double(), rank)
    return PivotedQr(basis @ small.q, small.r, small.permutation, small.error_bound)


def svd_of_product(
    left: Float[Tensor, "row rank"], right: Float[Tensor, "rank column"]
) -> tuple[Float[Tensor, "row k"], Float[Tensor, " k"], Float[Tensor, "k column"]]:
    """U, S, Vᵀ of left · right without forming it; k is its numerical rank."""
    (q_left, r_left), (q_right, r_right) = torch.linalg.qr(left.double()), torch.linalg.qr(right.double().mT)
    u, s, vt = torch.linalg.svd(r_left @ r_right.mT)
    k = decay_rank(s, max(left.shape[0], right.shape[1]) * EPSILON)
    return (q_left @ u)[:, :k], s[:k], (vt @ q_right.mT)[:k]


def energy_rank(energies: Float[Tensor, " k"], share: float) -> int:
    """The fewest leading entries that hold `share` (0 to 1) of the sum; 0 where the sum is 0."""
    total = energies.double().cumsum(0)
    if not len(total) or total[-1] == 0:
        return 0
    return int((total < share * total[-1] * (1 - EPSILON * len(total))).sum()) + 1


def decay_rank(diagonal: Float[Tensor, " k"], ratio: float) -> int:
    """How many leading entries stay above `ratio` times the first, up to the first that does not."""
    if not len(diagonal) or diagonal[0] == 0:
        return 0
    return int((diagonal > ratio * diagonal[0]).int().cumprod(0).sum())


def project_out(vectors: Float[Tensor, "row column"], basis: Float[Tensor, "row k"]) -> Float[Tensor, "row column"]:
    """(I − Q Qᵀ) V for orthonormal columns Q, applied twice so that Qᵀ of the result is zero to rounding."""
    for _ in range(2):
        vectors = vectors - basis @ (basis.mT @ vectors)
    return vectors


@dataclass(frozen=True)
class PrimalRidge:
    """A = G + μ I, factored in the space of keys (n × n)."""

    factor: Float[Tensor, "key key"]

    def solve(self, right: Float[Tensor, "key column"]) -> Float[Tensor, "key column"]:
        """A⁻¹ B."""
        return torch.cholesky_solve(right, self.factor)


@dataclass(frozen=True)
class DualRidge:
    """A = C Cᵀ + μ I, factored in the space of samples (q × q), for fewer samples than key dimensions."""

    columns: Float[Tensor, "key sample"]
    factor: Float[Tensor, "sample sample"]

    def solve(self, coefficients: Float[Tensor, "sample column"]) -> Float[Tensor, "key column"]:
        """A⁻¹ C K = C (CᵀC + μ I)⁻¹ K: what primal `solve` gives for B = C K, however small μ is."""
        return self.columns @ torch.cholesky_solve(coefficients, self.factor)


def primal_ridge(gram: Float[Tensor, "key key"], *, mu: float) -> PrimalRidge:
    """The ridge system of a Gram matrix G.

    Raises: ValueError where G + μ I is singular or not finite.
    """
    return PrimalRidge(
        cholesky_factor(gram.double() + mu * torch.eye(len(gram), dtype=torch.float64, device=gram.device))
    )


def dual_ridge(columns: Float[Tensor, "key sample"], *, mu: float) -> DualRidge:
    """The ridge system of the samples C themselves.

    Raises: ValueError where μ is not positive (A would be singular) or CᵀC + μ I is not finite.
    """
    columns = columns.double()
    if not mu > 0:
        raise ValueError(f"ridge mu={mu}: expected > 0 with fewer samples than key dimensions; raise the ridge")
    inner = columns.mT @ columns
    return DualRidge(columns, cholesky_factor(inner + mu * torch.eye(len(inner)).to(inner)))


def cholesky_factor(matrix: Float[Tensor, "key key"]) -> Float[Tensor, "key key"]:
    """Lower triangle L with L Lᵀ = A, in float64.

    Raises: ValueError where A is not finite, or singular to working precision.
    """
    if not torch.isfinite(matrix).all():
        raise ValueError("the Gram matrix is not finite: some key is NaN or infinite; load the model in float32")
    factor, failed = torch.linalg.cholesky_ex(matrix.double())
    diagonal = matrix.diagonal()
    threshold = len(matrix) * EPSILON * float(diagonal.max())
    if failed or float(factor.diagonal().min()) ** 2 <= threshold:
        raise ValueError(
            f"the Gram matrix of {len(matrix)} key dimensions is singular: expected every pivot above {threshold:.3g}; "
            "raise the ridge above 0 or give more keys"
        )
    return factor


def _check(matrix: Tensor, rank: int | None) -> None:
    if not torch.isfinite(matrix).all():
        raise ValueError(f"matrix of shape {tuple(matrix.shape)} is not finite; expected no NaN and no infinity")
    if rank is not None and rank < 1:
        raise ValueError(f"rank {rank}: expected at least 1")


def _rounding(matrix: Tensor) -> float:
    return max(matrix.shape) * EPSILON


def _leading_columns(packed: np.ndarray, tau: np.ndarray, k: int) -> Float[Tensor, "row k"]:
    """The first k columns of Q from LAPACK's Householder vectors."""
    if k == 0:
        return torch.zeros(len(packed), 0, dtype=torch.float64)
    (orgqr,) = get_lapack_funcs(("orgqr",), (packed,))
    return torch.from_numpy(orgqr(packed[:, :k], tau[:k], lwork=BLOCK * k)[0])


def _gaussian(rows: int, columns: int, generator: torch.Generator, *, like: Tensor) -> Tensor:
    return torch.randn(rows, columns, dtype=torch.float64, generator=generator).to(like.device)


def _orthonormal_rows(matrix: Tensor) -> Tensor:
    return torch.linalg.qr(matrix.mT).Q.mT


def _pivots(matrix: Float[Tensor, "row column"], count: int) -> Int[Tensor, " k"]:
    """The first `count` pivot columns by greedy residual length, fewer where the rest is rounding."""
    residual, chosen = matrix.clone(), []
    if not matrix.numel():
        return torch.zeros(0, dtype=torch.long, device=matrix.device)
    floor = (_rounding(matrix) * float(torch.linalg.norm(matrix, dim=0).max())) ** 2
    for _ in range(count):
        lengths = residual.square().sum(0)
        pivot = lengths.argmax()
        if lengths[pivot] <= floor:
            break
        chosen.append(pivot)
        direction = residual[:, pivot] / lengths[pivot].sqrt()
        residual -= torch.outer(direction, direction @ residual)
        residual[:, pivot] = 0
    return torch.stack(chosen) if chosen else torch.zeros(0, dtype=torch.long, device=matrix.device)
