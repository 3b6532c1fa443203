"""Rank correlations against scipy and against partial correlation from the inverse correlation matrix."""

import math

import numpy as np
import pytest
from scipy.stats import rankdata, spearmanr

from efface.difficulty.rank_correlation import partial_spearman, spearman, spearman_estimate
from efface.evaluation.aggregate import Resamples, author_resamples

RANDOM = np.random.default_rng(0)
Z = RANDOM.normal(size=(2, 80))
X = Z[0] + 0.5 * Z[1] + RANDOM.normal(size=80)
Y = Z[0] - Z[1] + RANDOM.normal(size=80).round(0)


def test_without_controls_it_is_scipys_spearman_with_ties():
    assert spearman(X, Y) == pytest.approx(spearmanr(X, Y).statistic, abs=1e-12)
    assert spearman([1, 2, 2, 3], [9, 7, 7, 1]) == pytest.approx(-1)


def test_agrees_with_the_inverse_of_the_rank_correlation_matrix():
    """ρ_{xy·z} = −P_xy / √(P_xx P_yy), P the inverse of the correlation matrix of all ranks."""
    precision = np.linalg.inv(np.corrcoef([rankdata(column) for column in (X, Y, *Z)]))
    expected = -precision[0, 1] / math.sqrt(precision[0, 0] * precision[1, 1])
    assert partial_spearman(X, Y, list(Z)) == pytest.approx(expected, abs=1e-10)


def test_one_control_agrees_with_the_textbook_formula():
    xy, xz, yz = spearman(X, Y), spearman(X, Z[0]), spearman(Y, Z[0])
    expected = (xy - xz * yz) / math.sqrt((1 - xz**2) * (1 - yz**2))
    assert partial_spearman(X, Y, [Z[0]]) == pytest.approx(expected, abs=1e-10)


def test_a_control_that_explains_everything_leaves_nothing():
    assert math.isnan(partial_spearman(X, Y, [X]))


def test_a_constant_control_changes_nothing_and_a_constant_column_has_no_correlation():
    assert partial_spearman(X, Y, [np.ones(80)]) == pytest.approx(spearman(X, Y), abs=1e-12)
    assert math.isnan(spearman(X, np.ones(80)))


def test_any_increasing_change_of_scale_leaves_ranks_alone():
    assert partial_spearman(np.exp(X), Y**3, [Z[0] * 7]) == pytest.approx(partial_spearman(X, Y, [Z[0]]), abs=1e-12)


def test_columns_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"columns of \[3, 2\] values: expected one length"):
        spearman([1, 2, 3], [1, 2])
    with pytest.raises(ValueError, match="a value is not finite"):
        spearman([1, 2, math.nan], [1, 2, 3])


AUTHORS = np.arange(80) // 5
RESAMPLES = author_resamples(AUTHORS, draws=60, seed=3)


def literal_draws(x, y, controls, resamples):
    """Rows really repeated, ranked anew, correlated one draw at a time."""
    for counts in resamples.counts.astype(int):
        rows = np.repeat(np.arange(len(counts)), counts)
        yield partial_spearman(x[rows], y[rows], [control[rows] for control in controls])


@pytest.mark.parametrize("controls", [[], list(Z)], ids=["plain", "partial"])
def test_interval_is_that_of_really_repeated_rows(controls):
    found = spearman_estimate(X, Y, RESAMPLES, confidence=0.9, controls=controls)
    low, high = np.quantile(list(literal_draws(X, Y, controls, RESAMPLES)), [0.05, 0.95])
    assert found.value == pytest.approx(partial_spearman(X, Y, controls), abs=1e-12) and found.n == 80
    assert (found.low, found.high) == (pytest.approx(low, abs=1e-9), pytest.approx(high, abs=1e-9))


def test_repeated_rows_without_controls_agree_with_scipy():
    rows = np.repeat(np.arange(80), RESAMPLES.counts[0].astype(int))
    one = Resamples(RESAMPLES.counts[:1], 16)
    found = spearman_estimate(X, Y, one, confidence=0.9)
    assert found.low == pytest.approx(spearmanr(X[rows], Y[rows]).statistic, abs=1e-12)


def test_no_value_where_a_column_is_constant_and_no_interval_from_one_author():
    assert spearman_estimate(X, np.ones(80), RESAMPLES, confidence=0.9).value is None
    alone = author_resamples(np.zeros(80, dtype=int), draws=10, seed=0)
    found = spearman_estimate(X, Y, alone, confidence=0.9)
    assert found.value is not None and found.low is None and found.high is None
