"""How far two groups of examples lie apart in one quantity."""

from typing import TypeAlias

import numpy as np
from jaxtyping import Float, Int

from efface.evaluation.aggregate import Estimate, author_resamples, interval

Lower: TypeAlias = Float[np.ndarray, " lower"]
Upper: TypeAlias = Float[np.ndarray, " upper"]


def cliffs_delta(lower: Lower, upper: Upper) -> float:
    """P(an upper value is larger) − P(it is smaller), over all pairs: −1 … 1, 0 where the groups do not differ."""
    return float(_comparisons(lower, upper).mean())


def cliffs_delta_estimate(
    lower: Lower,
    upper: Upper,
    *,
    authors: tuple[Int[np.ndarray, " lower"], Int[np.ndarray, " upper"]],
    draws: int,
    confidence: float,
    seed: int,
) -> Estimate:
    """`cliffs_delta` with its percentile interval; authors of both groups together are resampled.

    Raises: ValueError where a group is empty.
    """
    if not len(lower) or not len(upper):
        raise ValueError(f"groups of {len(lower)} and {len(upper)} examples: expected at least one in each")
    comparisons = _comparisons(lower, upper)
    resamples = author_resamples(np.concatenate(authors), draws=draws, seed=seed)
    below, above = resamples.counts[:, : len(lower)], resamples.counts[:, len(lower) :]
    pairs = below.sum(1) * above.sum(1)
    totals = ((below @ comparisons) * above).sum(1)
    deltas = np.where(pairs > 0, totals / np.where(pairs > 0, pairs, 1), np.nan)
    low, high = interval(deltas, groups=resamples.groups, confidence=confidence)
    return Estimate(float(comparisons.mean()), len(lower) + len(upper), low, high)


def _comparisons(lower: Lower, upper: Upper) -> Float[np.ndarray, "lower upper"]:
    return np.sign(upper[None, :] - lower[:, None])
