"""How much of what a model forgot comes back when its weights are quantized."""

import numpy as np
from jaxtyping import Float

from efface.evaluation.aggregate import Estimate, Resamples, interval, resampled_means


def recovery_rate(before: float, after: float, target: float, *, minimal_gap: float) -> float | None:
    """(after − before) / (target − before): 0 nothing came back, 1 all that quantization left of the target's.

    `before` and `after` are a forgetting model's forget-set means without and with quantization, `target` that of the
    equally quantized target, arXiv:2410.16454. Negative: quantization made the model forget more. None where the gap
    |target − before| is below `minimal_gap`, because nothing was forgotten that could come back.
    """
    gap = target - before
    return (after - before) / gap if abs(gap) >= minimal_gap else None


def recovery_estimate(
    before: Float[np.ndarray, " example"],
    after: Float[np.ndarray, " example"],
    target: Float[np.ndarray, " example"],
    resamples: Resamples,
    *,
    minimal_gap: float,
    confidence: float,
) -> Estimate:
    """The recovery rate of means over the same examples, resampled together; undefined draws count as NaN."""
    n = len(before)
    value = recovery_rate(before.mean(), after.mean(), target.mean(), minimal_gap=minimal_gap)
    if value is None:
        return Estimate(None, n, None, None)
    low_draws, high_draws, target_draws = (resampled_means(values, resamples) for values in (before, after, target))
    gaps = target_draws - low_draws
    rates = np.where(np.abs(gaps) >= minimal_gap, (high_draws - low_draws) / np.where(gaps == 0, 1, gaps), np.nan)
    low, high = interval(rates, groups=resamples.groups, confidence=confidence)
    return Estimate(float(value), n, low, high)
