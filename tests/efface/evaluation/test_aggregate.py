import numpy as np
import pytest

from efface.evaluation.aggregate import Resamples, author_resamples, interval, mean_estimate, resampled_means


def test_authors_are_drawn_whole():
    """Two authors with two and three examples: an author's examples are drawn equally often, two authors in all."""
    counts = author_resamples(np.array([4, 4, 9, 9, 9]), draws=50, seed=0).counts
    assert (counts[:, 0] == counts[:, 1]).all() and (counts[:, 2:] == counts[:, 2:3]).all()
    assert (counts[:, 0] + counts[:, 2] == 2).all()


def test_examples_without_author_are_drawn_alone():
    resamples = author_resamples(np.array([-1, -1, 3, 3]), draws=200, seed=0)
    assert resamples.groups == 3
    assert (resamples.counts[:, 0] != resamples.counts[:, 1]).any()
    assert (resamples.counts[:, 2] == resamples.counts[:, 3]).all()


def test_draws_depend_on_authors_and_seed_only():
    authors = np.array([0, 0, 1, 2])
    one, again, other = (author_resamples(authors, draws=20, seed=seed) for seed in ([1, 2], [1, 2], [1, 3]))
    assert (one.counts == again.counts).all()
    assert (one.counts != other.counts).any()


def test_resampled_means_by_hand():
    """Draws (2, 0, 1) and (0, 3, 0) of 1, 4, 7: (1 + 1 + 7) / 3 = 3 and 4; a draw of missing values only is missing."""
    resamples = Resamples(np.array([[2.0, 0.0, 1.0], [0.0, 3.0, 0.0]]), groups=3)
    assert resampled_means(np.array([1.0, 4.0, 7.0]), resamples) == pytest.approx([3.0, 4.0])
    assert resampled_means(np.array([1.0, np.nan, 7.0]), resamples) == pytest.approx([3.0, np.nan], nan_ok=True)


def test_the_interval_widens_with_the_spread_between_authors():
    """The same eight values; as four authors whose pairs agree they say less than as eight single examples."""
    values = np.array([0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0])
    pairs = mean_estimate(values, author_resamples(np.arange(8) // 2, draws=2000, seed=0), confidence=0.95)
    single = mean_estimate(values, author_resamples(np.arange(8), draws=2000, seed=0), confidence=0.95)
    assert pairs.value == single.value == 0.5
    assert None not in (pairs.low, pairs.high, single.low, single.high)
    assert pairs.high - pairs.low > single.high - single.low  # pyright: ignore[reportOptionalOperand]


def test_the_interval_covers_the_true_mean_as_often_as_it_says():
    """400 samples of 40 normal values: the 90 % interval holds the true mean in 83 to 95 % (percentile, n = 40)."""
    generator = np.random.default_rng(0)
    hits = 0
    resamples = author_resamples(np.arange(40), draws=400, seed=1)
    for _ in range(400):
        estimate = mean_estimate(generator.normal(size=40), resamples, confidence=0.9)
        hits += estimate.low <= 0 <= estimate.high
    assert 0.83 <= hits / 400 <= 0.95


def test_no_interval_from_one_author_or_from_undefined_draws():
    resamples = author_resamples(np.array([5, 5, 5]), draws=10, seed=0)
    estimate = mean_estimate(np.array([1.0, 2.0, 3.0]), resamples, confidence=0.95)
    assert (estimate.value, estimate.n, estimate.low, estimate.high) == (2.0, 3, None, None)
    assert interval(np.array([1.0, np.nan]), groups=9, confidence=0.95) == (None, None)


def test_missing_values_do_not_count():
    resamples = author_resamples(np.array([0, 1, 2]), draws=10, seed=0)
    estimate = mean_estimate(np.array([1.0, np.nan, 3.0]), resamples, confidence=0.95)
    assert (estimate.value, estimate.n) == (2.0, 2)
    assert mean_estimate(np.full(3, np.nan), resamples, confidence=0.95).value is None


def test_nothing_to_draw_from_is_an_error():
    with pytest.raises(ValueError, match="at least one"):
        author_resamples(np.array([], dtype=int), draws=10, seed=0)
