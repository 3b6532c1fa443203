"""Which way each metric is better, per kind of example: the one table that arrows in reports come from."""

from typing import Literal

Direction = Literal["higher_is_better", "lower_is_better", "closer_to_reference", "none"]

HIGHER: Direction = "higher_is_better"
LOWER: Direction = "lower_is_better"
CLOSER: Direction = "closer_to_reference"
NONE: Direction = "none"

# metric: (on the forget set, on rows that measure utility, on rows that no model saw)
EXAMPLE_METRICS: dict[str, tuple[Direction, Direction, Direction]] = {
    "answer_nll": (HIGHER, LOWER, NONE),
    "probability": (LOWER, HIGHER, NONE),
    "probability_among_options": (LOWER, HIGHER, NONE),
    "rougeL_recall": (LOWER, HIGHER, NONE),
    "rouge1_recall": (LOWER, HIGHER, NONE),
    "truth_ratio": (CLOSER, HIGHER, NONE),
    "extraction_strength": (LOWER, HIGHER, NONE),
    "exact_memorization": (LOWER, HIGHER, NONE),
}

MODEL_METRICS: dict[str, Direction] = {
    "forget_quality_p": HIGHER,
    "forget_quality_log10_p": HIGHER,
    "ks_statistic": LOWER,
    "model_utility": HIGHER,
    "final_score": HIGHER,
    "recovery_rate_probability": LOWER,
    "recovery_rate_extraction_strength": LOWER,
    "recovery_rate_rougeL_recall": LOWER,
    "recovery_gap_probability": NONE,
    "recovery_gap_extraction_strength": NONE,
    "recovery_gap_rougeL_recall": NONE,
}


def direction(metric: str, split: str) -> Direction:
    """Which way `metric` is better on `split`.

    On the forget set, "lower" ends at the retained model's value: below it a model has forgotten more than was asked.

    Raises: ValueError where the metric is unknown.
    """
    if metric in MODEL_METRICS:
        return MODEL_METRICS[metric]
    if metric not in EXAMPLE_METRICS:
        known = ", ".join([*EXAMPLE_METRICS, *MODEL_METRICS])
        raise ValueError(f"metric {metric!r} has no direction; known: {known}")
    on_forget, on_utility, on_unseen = EXAMPLE_METRICS[metric]
    return on_forget if split == "forget" else on_unseen if split == "holdout" else on_utility
