"""Rank correlation, and what is left of it when other quantities are held fixed."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Shaped
from scipy.stats import rankdata

Values = Sequence[int | float] | Shaped[np.ndarray, " example"]


def spearman(x: Values, y: Values) -> float:
    """Spearman's ρ: Pearson's correlation of average ranks, −1 … 1; NaN where either is constant."""
    return partial_spearman(x, y, [])


def partial_spearman(x: Values, y: Values, controls: Sequence[Values]) -> float:
    """Spearman's ρ of x and y given controls: Pearson's correlation of what regression on the controls' ranks leaves.

    NaN where x or y is constant or determined by the controls. Constant controls change nothing.

    Raises: ValueError where lengths differ, or a value is not finite.
    """
    columns = [np.asarray(column, dtype=np.float64) for column in (x, y, *controls)]
    if len({len(column) for column in columns}) != 1:
        raise ValueError(f"columns of {[len(column) for column in columns]} values: expected one length for all")
    if not all(np.isfinite(column).all() for column in columns):
        raise ValueError("a value is not finite; drop its example from every column first")
    ranks = [rankdata(column) for column in columns]
    design = np.column_stack([np.ones(len(ranks[0])), *ranks[2:]])
    return _pearson(_residuals(ranks[0], design), _residuals(ranks[1], design))


def _residuals(values: np.ndarray, design: np.ndarray) -> np.ndarray:
    return values - design @ np.linalg.lstsq(design, values, rcond=None)[0]


def _pearson(x: np.ndarray, y: np.ndarray) -> float:
    """Correlation of two centred columns; NaN where one has vanished but for rounding."""
    smallest = 1e-9 * len(x)
    norms = float(np.linalg.norm(x)), float(np.linalg.norm(y))
    return float(np.clip(x @ y / (norms[0] * norms[1]), -1, 1)) if min(norms) > smallest else float("nan")
