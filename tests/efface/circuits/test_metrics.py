"""Metrics of an answer against sums done by hand."""

import math

import pytest
import torch

from efface.circuits.metrics import METRICS, kl, logit_difference, neg_nll, neg_prob

HALVES = torch.log(torch.tensor([[[0.5, 0.25, 0.25], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6], [1 / 3] * 3]]))
LABELS = torch.tensor([[-100, 0, 1, -100]])


def test_mean_log_probability_and_geometric_mean_probability():
    """Tokens 0 and 1 at the probabilities 1/2 and 4/5: their geometric mean is √0.4."""
    assert neg_nll(HALVES, LABELS).item() == pytest.approx(math.log(0.4) / 2)
    assert neg_prob(HALVES, LABELS).item() == pytest.approx(-math.sqrt(0.4))


def test_margin_over_the_best_other_token():
    """ln(0.5 / 0.25) and ln(0.8 / 0.1)."""
    assert logit_difference(HALVES, LABELS).item() == pytest.approx((math.log(2) + math.log(8)) / 2)


def test_divergence_from_the_clean_run():
    """Uniform instead of (1/2, 1/4, 1/4) and (1/10, 8/10, 1/10), at answers alone."""
    expected = (0.5 * math.log(1.5) + 0.5 * math.log(0.75) + 0.2 * math.log(0.3) + 0.8 * math.log(2.4)) / 2
    assert kl(torch.zeros(1, 4, 3), LABELS, HALVES).item() == pytest.approx(expected)
    assert kl(HALVES, LABELS, HALVES).item() == pytest.approx(0, abs=1e-6)
    with pytest.raises(ValueError, match="logits of the clean run"):
        kl(HALVES, LABELS)


@pytest.mark.parametrize("name", METRICS)
def test_examples_do_not_mix(name):
    generator = torch.Generator().manual_seed(0)
    logits, reference = (torch.randn(2, 4, 5, generator=generator) for _ in range(2))
    labels = torch.tensor([[-100, 2, 4, 1], [-100, -100, 3, -100]])
    both = METRICS[name](logits, labels, reference)
    alone = [METRICS[name](logits[i : i + 1], labels[i : i + 1], reference[i : i + 1])[0] for i in range(2)]
    torch.testing.assert_close(both, torch.stack(alone))
