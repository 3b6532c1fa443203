"""One model beside its references: every number of a comparison, from per-example scores joined by example id."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from efface.evaluation.aggregate import Estimate, Resamples, interval, mean_estimate, resampled_means
from efface.evaluation.directions import EXAMPLE_METRICS
from efface.evaluation.forget_quality import forget_quality, resampled_ks_statistics
from efface.evaluation.model_utility import UTILITY_PARTS, Number, final_score, model_utility
from efface.evaluation.recovery import recovery_estimate
from efface.evaluation.truth_ratio import closeness_to_one, preference_for_truth

Scores = Mapping[str, Mapping[int, float]]
"""Metric → example id → value, of one model at one quantization."""

FORGOTTEN = ("rougeL_recall", "probability", "extraction_strength")
RECOVERABLE = ("probability", "extraction_strength", "rougeL_recall")
CLOSENESS_SPLITS = ("forget", "holdout")


@dataclass(frozen=True)
class Split:
    """Examples that are averaged together, and their bootstrap draws."""

    name: str
    ids: tuple[int, ...]
    resamples: Resamples


@dataclass(frozen=True)
class Measurement:
    """One metric of one split."""

    split: str
    metric: str
    estimate: Estimate


@dataclass(frozen=True)
class UtilityDraws:
    """A score made of many means: its value, and what it is in each bootstrap draw."""

    split: str
    metric: str
    value: float
    draws: Float[np.ndarray, " draw"]
    n: int
    groups: int


def split_values(scores: Scores, split: Split, metric: str) -> Float[np.ndarray, " example"]:
    """Values in the order of the split's ids, NaN where an example has no such metric.

    Truth ratios are min(R, 1/R) on the forget set and the holdout, max(0, 1 − R) on rows that measure utility.

    Raises: ValueError naming the example that was not evaluated at all.
    """
    evaluated = scores.get("answer_nll", {})
    for example in split.ids:
        if example not in evaluated:
            raise ValueError(f"example {example} of split {split.name!r} has no results; evaluate the model again")
    values = _raw_values(scores, split, metric)
    if metric != "truth_ratio":
        return values
    return closeness_to_one(values) if split.name in CLOSENESS_SPLITS else preference_for_truth(values)


def split_measurements(scores: Scores, splits: Iterable[Split], *, confidence: float) -> list[Measurement]:
    """The mean of every per-example metric on every split that has it."""
    found = [
        Measurement(split.name, metric, _mean(scores, split, metric, confidence))
        for split in splits
        for metric in EXAMPLE_METRICS
    ]
    return [measurement for measurement in found if measurement.estimate.n > 0]


def utility_measurements(scores: Scores, splits: Mapping[str, Split], *, confidence: float) -> list[Measurement]:
    """Model utility and, from it, the final score; nothing where a part is missing, as ROUGE without generation."""
    found = []
    for score in utility_draws(scores, splits):
        low, high = interval(score.draws, groups=score.groups, confidence=confidence)
        found.append(Measurement(score.split, score.metric, Estimate(score.value, score.n, low, high)))
    return found


def utility_draws(scores: Scores, splits: Mapping[str, Split]) -> list[UtilityDraws]:
    """Model utility and final score with their bootstrap draws; nothing where a part is missing.

    Splits are resampled independently of each other, so that the draws vary with all parts at once; those of two models
    on the same splits are paired.
    """
    needed = [*UTILITY_PARTS, *(("forget", metric) for metric in FORGOTTEN)]
    if any(split not in splits or metric not in scores for split, metric in needed):
        return []
    values = {part: split_values(scores, splits[part[0]], part[1]) for part in needed}
    if any(np.isnan(part).all() for part in values.values()):
        return []
    means = {part: float(np.nanmean(of_part)) for part, of_part in values.items()}
    draws = {part: resampled_means(of_part, splits[part[0]].resamples) for part, of_part in values.items()}
    groups = min(splits[split].resamples.groups for split, _ in needed)
    n = sum(len(splits[split].ids) for split in dict.fromkeys(split for split, _ in UTILITY_PARTS))

    def final(parts: Mapping[tuple[str, str], Number]) -> Number:
        rouge, probability, extraction = (parts["forget", metric] for metric in FORGOTTEN)
        return final_score(rouge, probability, extraction, model_utility(parts))

    return [
        UtilityDraws(split, metric, float(score(means)), np.asarray(score(draws)), n, groups)
        for metric, split, score in (("model_utility", "utility", model_utility), ("final_score", "all", final))
    ]


def forget_quality_measurements(
    scores: Scores, retained: Scores, forget: Split, *, confidence: float
) -> list[Measurement]:
    """p, log₁₀ p and the statistic of the KS test between two models' truth ratios; an interval for the statistic only.

    Raises: ValueError where both models have the same truth ratios.
    """
    model_ratios, retained_ratios = (_raw_values(of, forget, "truth_ratio") for of in (scores, retained))
    present = ~(np.isnan(model_ratios) | np.isnan(retained_ratios))
    if not present.any():
        return []
    model_ratios, retained_ratios = model_ratios[present], retained_ratios[present]
    quality, n = forget_quality(model_ratios, retained_ratios), len(model_ratios)
    draws = resampled_ks_statistics(model_ratios, retained_ratios, forget.resamples.counts[:, present])
    low, high = interval(draws, groups=forget.resamples.groups, confidence=confidence)
    estimates = {
        "forget_quality_p": Estimate(quality.p, n, None, None),
        "forget_quality_log10_p": Estimate(quality.log10_p, n, None, None),
        "ks_statistic": Estimate(quality.statistic, n, low, high),
    }
    return [Measurement("forget", metric, estimate) for metric, estimate in estimates.items()]


def recovery_measurements(
    before: Scores, after: Scores, target: Scores, forget: Split, *, minimal_gap: float, confidence: float
) -> list[Measurement]:
    """Recovery rate of each metric that was measured, followed by its gap, which is the reason where a rate is None."""
    found = []
    for metric in RECOVERABLE:
        if not all(metric in scores for scores in (before, after, target)):
            continue
        start, end, goal = (split_values(scores, forget, metric) for scores in (before, after, target))
        rate = recovery_estimate(start, end, goal, forget.resamples, minimal_gap=minimal_gap, confidence=confidence)
        gap = mean_estimate(goal - start, forget.resamples, confidence=confidence)
        found.append(Measurement("forget", f"recovery_rate_{metric}", rate))
        found.append(Measurement("forget", f"recovery_gap_{metric}", gap))
    return found


def paired_measurements(
    scores: Scores, reference: Scores, splits: Iterable[Split], *, confidence: float
) -> list[Measurement]:
    """The mean over examples of this model's value minus the reference's on the same example, for every metric."""
    found = []
    for split in splits:
        for metric in EXAMPLE_METRICS:
            difference = split_values(scores, split, metric) - split_values(reference, split, metric)
            found.append(
                Measurement(split.name, metric, mean_estimate(difference, split.resamples, confidence=confidence))
            )
    return [measurement for measurement in found if measurement.estimate.n > 0]


def _mean(scores: Scores, split: Split, metric: str, confidence: float) -> Estimate:
    return mean_estimate(split_values(scores, split, metric), split.resamples, confidence=confidence)


def _raw_values(scores: Scores, split: Split, metric: str) -> Float[np.ndarray, " example"]:
    of_metric = scores.get(metric, {})
    return np.array([of_metric.get(example, np.nan) for example in split.ids], dtype=np.float64)
