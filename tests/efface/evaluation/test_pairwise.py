"""Differences of pairs by hand, and Holm's correction beside its definition."""

import numpy as np
import pytest

from efface.evaluation.aggregate import author_resamples
from efface.evaluation.comparison import Split
from efface.evaluation.pairwise import holm, p_value, pairwise_differences

AUTHORS = np.arange(12)


def splits():
    return {
        name: Split(name, tuple(range(start, start + 12)), author_resamples(AUTHORS, draws=500, seed=0))
        for start, name in ((0, "forget"), (12, "retain"))
    }


def scores(*, seed: int, shift: float) -> dict[str, dict[int, float]]:
    noise = np.random.default_rng(seed).normal(0, 0.01, 24)
    values = {place: 0.5 + shift * (place < 12) + noise[place] for place in range(24)}
    return {metric: values for metric in ("answer_nll", "probability")}


def test_a_shift_is_found_and_its_absence_is_not():
    models = {"a": scores(seed=0, shift=0.0), "b": scores(seed=1, shift=0.3), "c": scores(seed=2, shift=0.0)}
    found = {(one.first, one.second, one.split): one for one in pairwise_differences(models, splits(), confidence=0.95)}
    assert set(found) == {
        (*pair, split) for pair in (("a", "b"), ("a", "c"), ("b", "c")) for split in ("forget", "retain")
    }
    apart, same = found["a", "b", "forget"], found["a", "c", "forget"]
    assert apart.estimate.value == pytest.approx(-0.3, abs=0.02) and apart.p_holm < 1e-6
    assert same.p > 0.01 and same.p_holm >= same.p and found["a", "b", "retain"].p_holm > 0.05
    assert apart.estimate.low is not None and apart.estimate.high is not None
    assert apart.estimate.low < -0.3 + 0.02 and apart.estimate.high < 0


def test_p_is_that_of_a_paired_t_test_up_to_the_bootstrap():
    """Without clusters the bootstrap standard error is that of the mean with n in place of n − 1."""
    scipy_stats = pytest.importorskip("scipy.stats")
    differences = np.random.default_rng(3).normal(0.02, 0.05, 12)
    resamples = author_resamples(AUTHORS, draws=20_000, seed=1)
    draws = resamples.counts @ differences / 12
    exact = scipy_stats.t.sf(abs(differences.mean()) / (differences.std() / 12**0.5), 11) * 2
    assert p_value(float(differences.mean()), draws, groups=12) == pytest.approx(exact, rel=0.05)


def test_p_at_its_ends():
    assert p_value(0.0, np.zeros(9), groups=5) == 1.0
    assert p_value(0.1, np.full(9, 0.1), groups=5) == 0.0
    assert p_value(0.1, np.linspace(0, 1, 9), groups=1) == 1.0


def test_holm_by_hand():
    """0.01 × 4, 0.02 × 3, 0.03 × 2, 0.04 × 1, never falling: 0.04, 0.06, 0.06, 0.06; in the order given; at most 1."""
    assert holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0] and holm([]) == [] and holm([0.2]) == [0.2]
