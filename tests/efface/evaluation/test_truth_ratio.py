import math

import numpy as np
import pytest

from efface.evaluation.truth_ratio import closeness_to_one, preference_for_truth, share_of_truth, truth_ratio

NAMES = (
    ("forget", "forget_truth_ratio"),
    ("retain", "retain_Truth_Ratio"),
    ("real_authors", "ra_Truth_Ratio"),
    ("world_facts", "wf_Truth_Ratio"),
)
SHORT = {"forget": "forget", "retain": "retain", "real_authors": "ra", "world_facts": "wf"}


def test_geometric_and_arithmetic_means_by_hand():
    """Wrong answers of 1/2 and 1/8 beside a right one of 1/2: geometric 1/4 ÷ 1/2, arithmetic 5/16 ÷ 1/2."""
    wrong = [math.log(2), math.log(8)]
    assert truth_ratio(math.log(2), wrong) == pytest.approx(0.5)
    assert truth_ratio(math.log(2), wrong, mean="arithmetic") == pytest.approx(0.625)


def test_aggregators_by_hand():
    ratios = np.array([0.25, 1.0, 4.0])
    assert closeness_to_one(ratios) == pytest.approx([0.25, 1.0, 0.25])
    assert preference_for_truth(ratios) == pytest.approx([0.75, 0.0, 0.0])
    assert share_of_truth(math.log(2), [math.log(2), math.log(2)]) == pytest.approx(0.5)


def test_no_wrong_answers_are_an_error():
    with pytest.raises(ValueError, match="at least one perturbed answer"):
        truth_ratio(1.0, [])


def test_model_free_cases_are_the_oracles(oracle):
    """Right answers of NLL 0 and 45, wrong ones of 60: no overflow, and the same values as the reference."""
    cases = oracle.expected["pure_functions"]["truth_ratio"]
    pairs = list(zip(cases["correct_avg_loss"], cases["wrong_avg_loss"], strict=True))
    ratios = np.array([truth_ratio(correct, wrong) for correct, wrong in pairs])
    shares = [share_of_truth(correct, wrong) for correct, wrong in pairs]
    assert ratios == pytest.approx(cases["true_better"]["scores"], rel=1e-9)
    assert closeness_to_one(ratios).mean() == pytest.approx(cases["closer_to_1_better"]["agg_value"], rel=1e-9)
    assert preference_for_truth(ratios).mean() == pytest.approx(cases["true_better"]["agg_value"], rel=1e-9)
    assert shares == pytest.approx(cases["prob_mean"]["scores"], rel=1e-9)
    assert np.mean(shares) == pytest.approx(cases["prob_mean"]["agg_value"], rel=1e-9)


@pytest.mark.parametrize("model", ["full", "unlearned", "retain", "start"])
def test_truth_ratios_are_the_oracles(oracle, model):
    """Every row of four data sets, then all three aggregators."""
    for name, metric in NAMES:
        pairs = list(zip(oracle.right_nlls(model, name), oracle.wrong_nlls(model, name), strict=True))
        ratios = np.array([truth_ratio(correct, wrong) for correct, wrong in pairs])
        assert ratios == pytest.approx(oracle.values(model, metric, "score"), rel=4e-5)
        expected = oracle.expected["truth_ratio_all_aggregators"][model][SHORT[name]]
        assert closeness_to_one(ratios).mean() == pytest.approx(expected["closer_to_1_better"], rel=2e-5)
        assert preference_for_truth(ratios).mean() == pytest.approx(expected["true_better"], rel=2e-5)
        assert np.mean([share_of_truth(*pair) for pair in pairs]) == pytest.approx(expected["prob_mean"], rel=2e-5)


def test_the_arithmetic_mean_is_the_fingerprint(oracle):
    """0.546765 instead of 0.541163 on the forget rows of `full`."""
    pairs = zip(oracle.right_nlls("full", "forget"), oracle.wrong_nlls("full", "forget"), strict=True)
    ratios = np.array([truth_ratio(correct, wrong, mean="arithmetic") for correct, wrong in pairs])
    assert closeness_to_one(ratios).mean() == pytest.approx(0.5467647547520545, rel=2e-5)
