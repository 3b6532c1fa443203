"""Rank correlation, what is left of it when other quantities are held fixed, and intervals from resampled authors."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Shaped

from efface.evaluation.aggregate import Estimate, Resamples, interval

Values = Sequence[int | float] | Shaped[np.ndarray, " example"]
VANISHED = 1e-9


def spearman(x: Values, y: Values) -> float:
    """Spearman's ρ: Pearson's correlation of average ranks, −1 … 1; NaN where either is constant."""
    return partial_spearman(x, y, [])


def partial_spearman(x: Values, y: Values, controls: Sequence[Values]) -> float:
    """Spearman's ρ of x and y given controls: Pearson's correlation of what regression on the controls' ranks leaves.

    NaN where x or y is constant or determined by the controls. Constant controls change nothing.

    Raises: ValueError where lengths differ, or a value is not finite.
    """
    columns = _columns(x, y, controls)
    return float(_weighted_correlation(columns, np.ones((1, columns.shape[1])))[0])


def spearman_estimate(
    x: Values, y: Values, resamples: Resamples, *, confidence: float, controls: Sequence[Values] = ()
) -> Estimate:
    """`partial_spearman` with its percentile interval; ranks are taken anew in every draw.

    Raises: ValueError where lengths differ, or a value is not finite.
    """
    columns = _columns(x, y, controls)
    draws = _weighted_correlation(columns, resamples.counts)
    low, high = interval(draws, groups=resamples.groups, confidence=confidence)
    value = partial_spearman(x, y, controls)
    return Estimate(None if np.isnan(value) else value, columns.shape[1], low, high)


def _columns(x: Values, y: Values, controls: Sequence[Values]) -> Float[np.ndarray, "column example"]:
    columns = [np.asarray(column, dtype=np.float64) for column in (x, y, *controls)]
    if len({len(column) for column in columns}) != 1:
        raise ValueError(f"columns of {[len(column) for column in columns]} values: expected one length for all")
    if not all(np.isfinite(column).all() for column in columns):
        raise ValueError("a value is not finite; drop its example from every column first")
    return np.stack(columns)


def _weighted_correlation(
    columns: Float[np.ndarray, "column example"], counts: Float[np.ndarray, "draw example"]
) -> Float[np.ndarray, " draw"]:
    """Correlation of the first two columns' ranks given the others, every example taken `counts` times.

    From the covariances C of all ranks: C_xy − C_xz C_zz⁺ C_zy, over the roots of its own diagonal.
    """
    ranks = np.stack([_weighted_ranks(column, counts) for column in columns], axis=1)
    weights = counts[:, None, :]
    centred = ranks - (weights * ranks).sum(-1, keepdims=True) / weights.sum(-1, keepdims=True)
    covariance = np.einsum("dn,din,djn->dij", counts, centred, centred, optimize=True)
    cross = covariance[:, :2, 2:]
    left = covariance[:, :2, :2] - cross @ np.linalg.pinv(covariance[:, 2:, 2:], hermitian=True) @ cross.mT
    own, whole = (np.diagonal(matrix[:, :2, :2], axis1=1, axis2=2) for matrix in (left, covariance))
    defined = (own > VANISHED * np.maximum(whole, 1)).all(1)
    scale = np.sqrt(np.where(defined, own[:, 0] * own[:, 1], 1))
    return np.where(defined, np.clip(left[:, 0, 1] / scale, -1, 1), np.nan)


def _weighted_ranks(
    values: Float[np.ndarray, " example"], counts: Float[np.ndarray, "draw example"]
) -> Float[np.ndarray, "draw example"]:
    """Average rank of each example among all examples of a draw: those below, and half of its equals and one."""
    _, group = np.unique(values, return_inverse=True)
    sizes = counts @ np.eye(group.max() + 1)[group]
    return (sizes.cumsum(axis=1) - (sizes - 1) / 2)[:, group]
