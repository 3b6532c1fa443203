import math

import numpy as np
import pytest

from efface.evaluation.probability import answer_probability, probability_among_options

NAMES = (("forget", "forget"), ("retain", "retain"), ("real_authors", "ra"), ("world_facts", "wf"))


def test_probability_is_a_geometric_mean():
    """Tokens of probability 1/2 and 1/8: √(1/16) = 1/4."""
    assert answer_probability((math.log(2) + math.log(8)) / 2) == pytest.approx(0.25)


def test_share_among_options_by_hand():
    """1/2 against 1/4 and 1/4: 0.5 / 1 = 0.5."""
    assert probability_among_options(math.log(2), [math.log(4), math.log(4)]) == pytest.approx(0.5)


def test_no_options_is_an_error():
    with pytest.raises(ValueError, match="at least one"):
        probability_among_options(1.0, [])


def test_model_free_cases_are_the_oracles(oracle):
    cases, losses = (oracle.expected["pure_functions"][name] for name in ("probability_w_options", "truth_ratio"))
    pairs = zip(losses["correct_avg_loss"], losses["wrong_avg_loss"], strict=True)
    found = [probability_among_options(correct, wrong) for correct, wrong in pairs]
    assert found == pytest.approx(cases["prob"], rel=1e-9)
    assert np.mean(found) == pytest.approx(cases["agg_value"], rel=1e-9)


@pytest.mark.parametrize("model", ["full", "unlearned", "retain", "start"])
def test_probabilities_are_the_oracles(oracle, model):
    for name, short in NAMES:
        found = [answer_probability(score.nll) for score in oracle.answers(model, name)]
        assert found == pytest.approx(oracle.values(model, f"{short}_Q_A_Prob", "prob"), rel=2e-5)
        assert np.mean(found) == pytest.approx(oracle.metric(model, f"{short}_Q_A_Prob")["agg_value"], rel=2e-5)


@pytest.mark.parametrize("model", ["full", "unlearned", "retain", "start"])
def test_shares_among_options_are_the_oracles(oracle, model):
    for name, short in NAMES[2:]:
        rows = zip(oracle.answers(model, name), oracle.wrong_nlls(model, name), strict=True)
        found = [probability_among_options(answer.nll, wrong) for answer, wrong in rows]
        assert found == pytest.approx(oracle.values(model, f"{short}_Q_A_Prob_normalised", "prob"), rel=4e-5)
        expected = oracle.metric(model, f"{short}_Q_A_Prob_normalised")["agg_value"]
        assert np.mean(found) == pytest.approx(expected, rel=2e-5)
