"""Whether a model and one that never saw the forget set can be told apart by their truth ratios."""

import warnings
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float
from scipy.stats import ks_2samp

Method = Literal["auto", "exact", "asymp"]
LARGEST_EXACT = 10_000


@dataclass(frozen=True)
class ForgetQuality:
    """A two-sided Kolmogorov–Smirnov test: a high p means not told apart; `method` is the one that was used."""

    p: float
    log10_p: float
    statistic: float
    method: Literal["exact", "asymp"]
    n_model: int
    n_retained: int


def forget_quality(
    model: Float[np.ndarray, " example"], retained: Float[np.ndarray, " other"], *, method: Method = "auto"
) -> ForgetQuality:
    """The KS test between raw truth ratios on the forget set, arXiv:2401.06121 §2.2.2; invariant to R ↔ 1/R.

    `auto` is exact up to 10,000 examples a side, as in scipy. With disjoint samples of n each, p = 2 / C(2n, n), the
    smallest that n allows.

    Raises: ValueError where a side is empty or holds a value that is not finite; where both sides are the same numbers,
    which means that a model was compared with itself.
    """
    _check(model, retained)
    if method == "auto":
        method = "exact" if max(len(model), len(retained)) <= LARGEST_EXACT else "asymp"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        statistic, p = map(float, ks_2samp(model, retained, alternative="two-sided", method=method))
    switched = any("Switching to" in str(warning.message) for warning in caught)
    return ForgetQuality(
        p=p,
        log10_p=_log10_p(p, statistic, len(model), len(retained)),
        statistic=statistic,
        method="asymp" if switched else method,
        n_model=len(model),
        n_retained=len(retained),
    )


def resampled_ks_statistics(
    model: Float[np.ndarray, " example"],
    retained: Float[np.ndarray, " example"],
    counts: Float[np.ndarray, "draw example"],
) -> Float[np.ndarray, " draw"]:
    """D = max_x |F₁(x) − F₂(x)| in each bootstrap draw, the same examples on both sides; NaN where none was drawn.

    Departs from the paper: which gives no interval. D is never below 0, so its draws lie somewhat above the D they
    surround; p has no interval because its draws are not draws of p.
    """
    points = np.concatenate([model, retained])
    difference = (model <= points[:, None]).astype(np.float64) - (retained <= points[:, None])
    drawn = counts.sum(axis=1)
    largest = np.abs(counts @ difference.T).max(axis=1)
    return np.where(drawn > 0, largest / np.where(drawn > 0, drawn, 1), np.nan)


def _log10_p(p: float, statistic: float, n_model: int, n_retained: int) -> float:
    """log₁₀ p; where p is below the smallest float, the leading term 2·exp(−2 n D²), n = n₁n₂ / (n₁ + n₂)."""
    if p > 0:
        return float(np.log10(p))
    effective = n_model * n_retained / (n_model + n_retained)
    return float((np.log(2) - 2 * effective * statistic**2) / np.log(10))


def _check(model: Float[np.ndarray, " example"], retained: Float[np.ndarray, " other"]) -> None:
    for name, ratios in (("model", model), ("retained model", retained)):
        if len(ratios) == 0:
            raise ValueError(f"forget quality: no truth ratios of the {name}; expected at least one")
        if not np.isfinite(ratios).all():
            raise ValueError(f"forget quality: a truth ratio of the {name} is not finite")
    if np.array_equal(model, retained):
        raise ValueError(
            f"forget quality: all {len(model)} truth ratios of the model equal the retained model's, so it is compared "
            "with itself; name another retained model"
        )
