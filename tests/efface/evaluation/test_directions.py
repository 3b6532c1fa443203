import pytest

from efface.evaluation.comparison import RECOVERABLE
from efface.evaluation.directions import EXAMPLE_METRICS, MODEL_METRICS, direction
from efface.evaluation.model_utility import UTILITY_PARTS


def test_knowing_is_bad_on_the_forget_set_and_good_elsewhere():
    for metric in ("probability", "rougeL_recall", "extraction_strength", "exact_memorization"):
        assert direction(metric, "forget") == "lower_is_better"
        assert direction(metric, "retain") == "higher_is_better"
    assert direction("answer_nll", "forget") == "higher_is_better"
    assert direction("truth_ratio", "forget") == "closer_to_reference"
    assert direction("probability", "holdout") == "none"


def test_every_metric_that_is_measured_has_a_direction():
    assert {metric for _, metric in UTILITY_PARTS} <= EXAMPLE_METRICS.keys()
    assert {
        f"{kind}_{metric}" for metric in RECOVERABLE for kind in ("recovery_rate", "recovery_gap")
    } <= MODEL_METRICS.keys()


def test_an_unknown_metric_is_named():
    with pytest.raises(ValueError, match="'forget_quality' has no direction"):
        direction("forget_quality", "forget")
