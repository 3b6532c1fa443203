"""Cliff's δ against a double loop, and its interval against authors that are really drawn."""

import numpy as np
import pytest

from efface.difficulty.effect_size import cliffs_delta, cliffs_delta_estimate
from efface.evaluation.aggregate import author_resamples

RANDOM = np.random.default_rng(1)
LOWER, UPPER = RANDOM.integers(0, 9, 18).astype(float), RANDOM.integers(2, 11, 12).astype(float)
AUTHORS = (np.arange(18) // 3, np.arange(12) // 2)


def literal_delta(lower, upper):
    wins = sum(int(b > a) - int(b < a) for a in lower for b in upper)
    return wins / (len(lower) * len(upper))


def test_agrees_with_a_double_loop_over_pairs():
    assert cliffs_delta(LOWER, UPPER) == pytest.approx(literal_delta(LOWER, UPPER), abs=1e-12)
    assert cliffs_delta(UPPER, LOWER) == pytest.approx(-cliffs_delta(LOWER, UPPER), abs=1e-12)


def test_bounds_and_equal_groups():
    assert cliffs_delta(np.zeros(3), np.ones(4)) == 1 and cliffs_delta(np.ones(4), np.zeros(3)) == -1
    assert cliffs_delta(LOWER, LOWER) == 0


def test_interval_is_that_of_really_drawn_authors():
    found = cliffs_delta_estimate(LOWER, UPPER, authors=AUTHORS, draws=80, confidence=0.9, seed=5)
    counts = author_resamples(np.concatenate(AUTHORS), draws=80, seed=5).counts.astype(int)
    draws = [
        literal_delta(np.repeat(LOWER, row[:18]), np.repeat(UPPER, row[18:]))
        for row in counts
        if row[:18].any() and row[18:].any()
    ]
    low, high = np.quantile(draws, [0.05, 0.95])
    assert found.value == pytest.approx(cliffs_delta(LOWER, UPPER)) and found.n == 30
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))


def test_an_empty_group_is_refused():
    with pytest.raises(ValueError, match="groups of 0 and 12 examples"):
        cliffs_delta_estimate(
            LOWER[:0], UPPER, authors=(AUTHORS[0][:0], AUTHORS[1]), draws=5, confidence=0.9, seed=0
        )  # fmt: skip
