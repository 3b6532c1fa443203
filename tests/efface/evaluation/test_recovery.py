import numpy as np
import pytest

from efface.evaluation.aggregate import author_resamples
from efface.evaluation.recovery import recovery_estimate, recovery_rate


def test_rate_by_hand():
    """From 0.1 up to 0.4, where the quantized target has 0.7: (0.4 − 0.1) / (0.7 − 0.1) = ½."""
    assert recovery_rate(0.1, 0.4, 0.7, minimal_gap=0.05) == pytest.approx(0.5)
    assert recovery_rate(0.4, 0.1, 0.7, minimal_gap=0.05) == pytest.approx(-1.0)


def test_undefined_where_nothing_was_forgotten():
    assert recovery_rate(0.68, 0.7, 0.7, minimal_gap=0.05) is None


def test_published_case():
    """arXiv:2410.16454, GA_KLR on MUSE Books, verbatim memorization: 13.0 to 75.6, the 4-bit target at 85.3."""
    assert recovery_rate(13.0, 75.6, 85.3, minimal_gap=0.05) == pytest.approx(62.6 / 72.3)


def test_the_interval_resamples_the_three_together():
    """After is halfway between before and target on every example, so every draw has rate ½."""
    before, target = np.array([0.0, 0.1, 0.2, 0.3]), np.array([0.9, 0.6, 0.8, 1.0])
    resamples = author_resamples(np.arange(4), draws=200, seed=0)
    estimate = recovery_estimate(before, (before + target) / 2, target, resamples, minimal_gap=0.05, confidence=0.95)
    assert (estimate.value, estimate.low, estimate.high) == pytest.approx((0.5, 0.5, 0.5))


def test_no_interval_where_the_gap_vanishes_in_many_draws():
    """One of four examples carries the whole gap: a third of the draws miss it."""
    before, target = np.zeros(4), np.array([1.0, 0.0, 0.0, 0.0])
    resamples = author_resamples(np.arange(4), draws=500, seed=0)
    estimate = recovery_estimate(before, target / 2, target, resamples, minimal_gap=0.05, confidence=0.95)
    assert (estimate.value, estimate.low, estimate.high) == (0.5, None, None)


def test_an_undefined_rate_has_no_interval():
    resamples = author_resamples(np.arange(3), draws=20, seed=0)
    same = np.array([0.5, 0.6, 0.7])
    estimate = recovery_estimate(same, same, same, resamples, minimal_gap=0.05, confidence=0.95)
    assert (estimate.value, estimate.n, estimate.low, estimate.high) == (None, 3, None, None)
