import json
from math import comb, log10

import numpy as np
import pytest
from scipy.stats import ks_2samp

from efface.evaluation.forget_quality import forget_quality, resampled_ks_statistics
from efface.evaluation.truth_ratio import truth_ratio


@pytest.mark.parametrize("n", [3, 40, 200, 400])
def test_disjoint_samples_reach_the_analytic_floor(n):
    """Two of the C(2n, n) equally likely orders keep the samples apart: p = 2 / C(2n, n), D = 1."""
    quality = forget_quality(np.arange(n) / n, 2 + np.arange(n) / n)
    assert (quality.statistic, quality.method) == (1.0, "exact")
    assert quality.p == pytest.approx(2 / comb(2 * n, n), rel=1e-9)
    assert quality.log10_p == pytest.approx(log10(2) - log10(comb(2 * n, n)), rel=1e-9)


def test_published_floor():
    """GradAscent on forget05 and forget10 in open-unlearning's table: 1.94e-119 and 1.06e-239."""
    assert forget_quality(np.arange(200.0), np.arange(200.0) + 1e3).p == pytest.approx(1.942643e-119, rel=1e-6)
    assert forget_quality(np.arange(400.0), np.arange(400.0) + 1e3).p == pytest.approx(1.063590e-239, rel=1e-6)


def test_statistic_by_hand():
    """F₁ reaches 1 at 3, where F₂ of {2, 4, 6} is 1/3: D = 2/3."""
    first, second = np.array([1.0, 2.5, 3.0]), np.array([2.0, 4.0, 6.0])
    assert forget_quality(first, second).statistic == pytest.approx(2 / 3)


def test_model_free_cases_are_the_oracles(oracle):
    for case in oracle.expected["pure_functions"]["ks_test"]:
        model, retained = np.array(case["model"]), np.array(case["retain"])
        if np.array_equal(model, retained):
            continue
        assert forget_quality(model, retained).p == pytest.approx(case["pvalue"], rel=1e-9)


@pytest.mark.parametrize("model", ["full", "unlearned", "start"])
def test_forget_quality_is_the_oracles(oracle, model):
    ratios = [
        np.array([truth_ratio(*pair) for pair in zip(*of_model, strict=True)])
        for of_model in (
            (oracle.right_nlls(name, "forget"), oracle.wrong_nlls(name, "forget")) for name in (model, "retain")
        )
    ]
    quality = forget_quality(*ratios)
    assert quality.p == pytest.approx(oracle.metric(model, "forget_quality")["agg_value"], rel=1e-9)
    assert (quality.method, quality.n_model, quality.n_retained) == ("exact", 20, 20)
    inverse = forget_quality(*(1 / of_model for of_model in ratios))
    assert inverse.p == pytest.approx(quality.p, rel=1e-12)


@pytest.mark.parametrize(
    ("retained", "statistic", "p"),
    [("retain90", 0.396667, 1.834066e-21), ("retain95", 0.38, 6.504459e-16), ("retain99", 0.428333, 2.345177e-06)],
)
def test_published_logs(shared_folder, retained, statistic, p):
    """Llama-2-7B TOFU logs, full against retained: a check of the test, not a TOFU result (their rows differ)."""
    folder = shared_folder / "data/published_results/tofu_llama2"
    ratios = []
    for name in ("full", retained):
        log = json.loads((folder / f"{name}_wd0.01_eval_log_aggregated.json").read_text())["eval_log_forget.json"]
        pairs = zip(log["avg_paraphrased_loss"].values(), log["average_perturb_loss"].values(), strict=True)
        ratios.append(np.array([truth_ratio(*pair) for pair in pairs]))
    quality = forget_quality(*ratios)
    assert quality.statistic == pytest.approx(statistic, abs=1e-6)
    assert quality.p == pytest.approx(p, rel=1e-6)


def test_a_model_compared_with_itself_is_refused():
    ratios = np.array([0.3, 0.9, 1.2])
    with pytest.raises(ValueError, match="compared with itself"):
        forget_quality(ratios, ratios.copy())


@pytest.mark.parametrize("broken", [np.array([]), np.array([1.0, np.nan])])
def test_missing_and_broken_ratios_are_refused(broken):
    with pytest.raises(ValueError, match="retained model"):
        forget_quality(np.array([1.0, 2.0]), broken)


def test_the_method_is_recorded_and_a_tiny_p_keeps_its_logarithm():
    """12,000 disjoint values: asymptotic, p underflows to 0, log₁₀ p = (ln 2 − 2 · 6000) / ln 10."""
    quality = forget_quality(np.arange(12_000.0), np.arange(12_000.0) + 1e6)
    assert (quality.p, quality.method) == (0.0, "asymp")
    assert quality.log10_p == pytest.approx((np.log(2) - 12_000) / np.log(10))
    assert forget_quality(np.arange(9.0), np.arange(9.0) + 0.5, method="asymp").method == "asymp"


def test_resampled_statistics_are_scipys_on_repeated_examples():
    """Counts say how often an example stands on both sides; a draw of nothing is undefined."""
    draw = np.random.default_rng(0)
    model, retained = draw.normal(size=12).round(1), draw.normal(loc=0.5, size=12).round(1)
    counts = draw.multinomial(12, np.full(12, 1 / 12), size=20).astype(float)
    expected = [ks_2samp(np.repeat(model, row), np.repeat(retained, row)).statistic for row in counts.astype(int)]
    assert resampled_ks_statistics(model, retained, counts) == pytest.approx(expected, abs=1e-12)
    assert np.isnan(resampled_ks_statistics(model, retained, np.zeros((1, 12)))).all()
