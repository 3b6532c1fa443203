"""What a model is still good for: the harmonic mean of nine parts, and GROM's final score on top of it."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

Number = Float[np.ndarray, " *draw"] | float
"""A value, or one per bootstrap draw."""

UTILITY_PARTS: tuple[tuple[str, str], ...] = (
    ("retain", "probability"),
    ("retain", "rougeL_recall"),
    ("retain", "truth_ratio"),
    ("real_authors", "probability_among_options"),
    ("real_authors", "rougeL_recall"),
    ("real_authors", "truth_ratio"),
    ("world_facts", "probability_among_options"),
    ("world_facts", "rougeL_recall"),
    ("world_facts", "truth_ratio"),
)


def harmonic_mean(values: Sequence[Number]) -> Number:
    """n / Σ 1/v, elementwise over arrays of draws; 0 as soon as one value is 0.

    Raises: ValueError where there is no value or one is negative.
    """
    stacked = np.stack([np.asarray(value, dtype=np.float64) for value in values]) if len(values) else np.empty(0)
    if stacked.size == 0 or (stacked < 0).any():
        raise ValueError(f"harmonic mean of {list(values)}: expected at least one value and none below 0")
    zero = (stacked == 0).any(axis=0)
    inverse = (1 / np.where(stacked == 0, 1.0, stacked)).sum(axis=0)
    return np.where(zero, 0.0, len(values) / inverse)


def model_utility(parts: Mapping[tuple[str, str], Number]) -> Number:
    """The harmonic mean of the nine parts in [0, 1], arXiv:2401.06121 §2.2.1; higher is better, one zero gives 0.

    Parts are keyed (split, metric) as in UTILITY_PARTS; truth_ratio is the mean of max(0, 1 − R).

    Raises: ValueError naming the parts that are missing.
    """
    missing = [f"{metric} on {split}" for split, metric in UTILITY_PARTS if (split, metric) not in parts]
    if missing:
        raise ValueError(f"model utility without {', '.join(missing)}; expected all nine parts")
    return harmonic_mean([parts[part] for part in UTILITY_PARTS])


def final_score(
    rougeL_recall: Number,
    probability: Number,
    extraction_strength: Number,
    utility: Number,
) -> Number:
    """½ [ mean(1 − ROUGE-L, 1 − probability, 1 − extraction strength) + model utility ] in [0, 1], forget-set means.

    The score of GROM's TOFU tables, arXiv:2608.05783; higher is better. It also rewards forgetting more than a model
    that never saw the forget set: read it beside forget quality.
    """
    forgotten = 1 - (np.asarray(rougeL_recall) + np.asarray(probability) + np.asarray(extraction_strength)) / 3
    return (forgotten + np.asarray(utility)) / 2
