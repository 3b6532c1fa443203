"""Means over examples with bootstrap intervals that respect who the examples are about."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

UNDEFINED_DRAWS = 0.05


@dataclass(frozen=True)
class Resamples:
    """How often each example is drawn in each bootstrap draw, and how many independent groups were drawn from."""

    counts: Float[np.ndarray, "draw example"]
    groups: int


@dataclass(frozen=True)
class Estimate:
    """A number over `n` examples and its percentile interval; None where it is undefined."""

    value: float | None
    n: int
    low: float | None
    high: float | None


def author_resamples(authors: Int[np.ndarray, " example"], *, draws: int, seed: int | Sequence[int]) -> Resamples:
    """Draws of authors with replacement; all examples of an author enter together, author −1 means one of its own.

    The draws depend on `authors`, `draws` and `seed` only, so quantities over the same examples are paired.

    Raises: ValueError where there is no example or no draw.
    """
    if len(authors) == 0 or draws < 1:
        raise ValueError(f"{len(authors)} examples, {draws} draws: expected at least one of each")
    alone = authors < 0
    keys = np.where(alone, np.arange(len(authors)) + authors.max(initial=0) + 1, authors)
    _, group = np.unique(keys, return_inverse=True)
    groups = int(group.max()) + 1
    generator = np.random.default_rng(seed)
    drawn = generator.multinomial(groups, np.full(groups, 1 / groups), size=draws)
    return Resamples(drawn[:, group].astype(np.float64), groups)


def resampled_means(values: Float[np.ndarray, " example"], resamples: Resamples) -> Float[np.ndarray, " draw"]:
    """The mean of `values` in each draw; NaN values do not count, a draw without any other is NaN."""
    present = ~np.isnan(values)
    counts = resamples.counts if present.all() else resamples.counts[:, present]
    totals = counts.sum(axis=1)
    return np.where(totals > 0, counts @ values[present] / np.where(totals > 0, totals, 1), np.nan)


def mean_estimate(values: Float[np.ndarray, " example"], resamples: Resamples, *, confidence: float) -> Estimate:
    """The mean of `values` with its interval; NaN values do not count."""
    present = values[~np.isnan(values)]
    if len(present) == 0:
        return Estimate(None, 0, None, None)
    low, high = interval(resampled_means(values, resamples), groups=resamples.groups, confidence=confidence)
    return Estimate(float(present.mean()), len(present), low, high)


def interval(
    draws: Float[np.ndarray, " draw"], *, groups: int, confidence: float
) -> tuple[float, float] | tuple[None, None]:
    """The percentile interval of bootstrap draws.

    None where fewer than two groups were drawn from, or more than 5 % of the draws are undefined (NaN).
    """
    defined = draws[~np.isnan(draws)]
    if groups < 2 or len(defined) < (1 - UNDEFINED_DRAWS) * len(draws):
        return None, None
    low, high = np.quantile(defined, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)
