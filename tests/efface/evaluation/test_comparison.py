import numpy as np
import pytest

from efface.evaluation.aggregate import Resamples, author_resamples
from efface.evaluation.comparison import (
    Split,
    forget_quality_measurements,
    paired_measurements,
    recovery_measurements,
    split_measurements,
    split_values,
    utility_measurements,
)
from efface.evaluation.model_utility import UTILITY_PARTS


def split(name, ids, authors=None):
    authors = np.arange(len(ids)) if authors is None else np.array(authors)
    return Split(name, tuple(ids), author_resamples(authors, draws=100, seed=0))


def named(measurements):
    return {(measurement.split, measurement.metric): measurement.estimate for measurement in measurements}


FORGET = split("forget", [1, 2, 3])
SCORES = {
    "answer_nll": {1: 1.0, 2: 2.0, 3: 3.0},
    "probability": {1: 0.3, 2: 0.2, 3: 0.1},
    "truth_ratio": {1: 0.5, 2: 2.0},
    "extraction_strength": {1: 0.0, 2: 0.5, 3: 1.0},
}


def test_means_of_a_split_by_hand():
    """Truth ratios ½ and 2 both give min(R, 1/R) = ½, over the two examples that have one."""
    found = named(split_measurements(SCORES, [FORGET], confidence=0.95))
    assert found["forget", "probability"].value == pytest.approx(0.2)
    assert (found["forget", "truth_ratio"].value, found["forget", "truth_ratio"].n) == (pytest.approx(0.5), 2)
    assert ("forget", "rougeL_recall") not in found


def test_truth_ratios_are_read_by_what_the_split_is_for():
    """On rows that measure utility max(0, 1 − R): ½ and 0."""
    values = split_values(SCORES, split("retain", [1, 2]), "truth_ratio")
    assert values == pytest.approx([0.5, 0.0])


def test_an_example_without_results_is_named():
    with pytest.raises(ValueError, match="example 8 of split 'retain' has no results"):
        split_measurements(SCORES, [split("retain", [1, 8])], confidence=0.95)


def test_forget_quality_needs_both_models_truth_ratios():
    other = SCORES | {"truth_ratio": {1: 3.0, 2: 4.0, 3: 5.0}}
    found = named(forget_quality_measurements(SCORES, other, FORGET, confidence=0.95))
    assert found["forget", "ks_statistic"].value == 1.0
    assert found["forget", "forget_quality_p"].n == 2
    assert found["forget", "forget_quality_p"].low is None
    without = {metric: values for metric, values in SCORES.items() if metric != "truth_ratio"}
    assert forget_quality_measurements(without, other, FORGET, confidence=0.95) == []
    with pytest.raises(ValueError, match="compared with itself"):
        forget_quality_measurements(SCORES, SCORES, FORGET, confidence=0.95)


def test_recovery_reports_its_gap_and_is_none_where_the_gap_is_small():
    """Probability 0.2 → 0.35 with the target at 0.5: ½; extraction strength has the target's value already."""
    after = SCORES | {"probability": {1: 0.35, 2: 0.35, 3: 0.35}}
    target = SCORES | {"probability": {1: 0.5, 2: 0.5, 3: 0.5}}
    found = named(recovery_measurements(SCORES, after, target, FORGET, minimal_gap=0.05, confidence=0.95))
    assert found["forget", "recovery_rate_probability"].value == pytest.approx(0.5)
    assert found["forget", "recovery_gap_probability"].value == pytest.approx(0.3)
    assert found["forget", "recovery_rate_extraction_strength"].value is None
    assert found["forget", "recovery_gap_extraction_strength"].value == 0.0
    assert ("forget", "recovery_rate_rougeL_recall") not in found


def test_paired_differences_by_hand():
    """0.3 − 0.1, 0.2 − 0.1 and 0.1 − 0.4: mean 0; an interval from differences, not from two means."""
    reference = SCORES | {"probability": {1: 0.1, 2: 0.1, 3: 0.4}}
    found = named(paired_measurements(SCORES, reference, [FORGET], confidence=0.95))
    assert found["forget", "probability"].value == pytest.approx(0.0)
    assert found["forget", "answer_nll"].low == found["forget", "answer_nll"].high == 0.0


def utility_scores(value):
    ids = range(1, 13)
    metrics = {metric for _, metric in UTILITY_PARTS} | {"answer_nll", "extraction_strength"}
    return {metric: dict.fromkeys(ids, value) for metric in metrics}


UTILITY_SPLITS = {
    name: split(name, range(3 * place + 1, 3 * place + 4))
    for place, name in enumerate(("forget", "retain", "real_authors", "world_facts"))
}


def test_utility_and_final_score_by_hand():
    """All parts ½ (truth ratio: 1 − ½): utility ½; forget metrics ½: final ½ (½ + ½) = ½, over nine utility rows."""
    found = named(utility_measurements(utility_scores(0.5), UTILITY_SPLITS, confidence=0.95))
    utility, final = found["utility", "model_utility"], found["all", "final_score"]
    assert (utility.value, utility.low, utility.high, utility.n) == (*[pytest.approx(0.5)] * 3, 9)
    assert (final.value, final.low, final.high) == pytest.approx((0.5, 0.5, 0.5))


def test_utility_is_left_out_where_a_part_was_not_measured():
    scores = utility_scores(0.5)
    del scores["rougeL_recall"]
    assert utility_measurements(scores, UTILITY_SPLITS, confidence=0.95) == []
    without_facts = {name: one for name, one in UTILITY_SPLITS.items() if name != "world_facts"}
    assert utility_measurements(utility_scores(0.5), without_facts, confidence=0.95) == []


def test_draws_of_two_metrics_are_paired():
    """A sum that is constant per example keeps its interval at a point, whatever is drawn."""
    resamples = Resamples(np.array([[2.0, 0.0, 1.0], [0.0, 3.0, 0.0]]), groups=3)
    forget = Split("forget", (1, 2, 3), resamples)
    one = {"answer_nll": {1: 1.0, 2: 5.0, 3: 9.0}}
    other = {"answer_nll": {1: 0.0, 2: 4.0, 3: 8.0}}
    found = named(paired_measurements(one, other, [forget], confidence=0.95))["forget", "answer_nll"]
    assert (found.value, found.low, found.high) == (1.0, 1.0, 1.0)
