"""FLAT's loss against the reference's formulas written out, its bound against known divergences, its direction."""

import re

import pytest
import torch
from torch import Tensor

from efface.unlearning.divergence import VARIATIONAL, Flat, flat_loss, mean_probabilities


def literal_probabilities(logits: Tensor, labels: Tensor) -> tuple[list[float], float]:
    """Token by token: the mean over each answer, and the reference's mean over every shifted position of the batch."""
    means, everywhere = [], []
    for row, ids in zip(logits.softmax(-1).tolist(), labels.tolist(), strict=True):
        scored = [row[place][ids[place + 1]] for place in range(len(ids) - 1) if ids[place + 1] != -100]
        means.append(sum(scored) / len(scored))
        everywhere.append(sum(scored) / (len(ids) - 1))
    return means, sum(everywhere) / len(everywhere)


@pytest.fixture
def batches() -> list[tuple[Tensor, Tensor]]:
    """Refusals and forget answers of different lengths, with prompt and padding."""
    generator = torch.Generator().manual_seed(0)
    labels = [
        torch.tensor([[-100, -100, 3, 4, 5], [-100, 2, 6, -100, -100]]),
        torch.tensor([[-100, 1, 1, 2, 0, 5], [-100, -100, -100, 4, -100, -100]]),
    ]
    return [(3 * torch.randn(2, part.shape[1], 7, generator=generator), part) for part in labels]


def test_mean_probabilities_are_those_of_the_scored_tokens(batches):
    for logits, labels in batches:
        means, everywhere = literal_probabilities(logits, labels)
        assert mean_probabilities(logits, labels).tolist() == pytest.approx(means, rel=1e-6)
        assert mean_probabilities(logits, labels, published_mean=True).tolist() == pytest.approx(
            [everywhere] * 2, rel=1e-6
        )


@pytest.mark.parametrize("published_mean", [False, True])
def test_losses_are_the_references_formulas(batches, published_mean):
    """Those whose g rises in the reference: total variation, KL, Pearson, Jensen–Shannon, Jeffrey."""
    literal = {
        "total_variation": lambda e, f: -e.tanh() / 2 + f.tanh() / 2,
        "kl": lambda e, f: -e + (f - 1).exp(),
        "pearson": lambda e, f: -e + f * f / 4 + f,
        "jensen_shannon": lambda e, f: (
            (1 + (-e).exp()).log() - torch.tensor(2.0).log() + f + (1 + (-f).exp()).log() - torch.tensor(2.0).log()
        ),
        "jeffrey": lambda e, f: -e + f + f * f / 4 + f * f * f / 16,
    }
    means = [mean_probabilities(*batch, published_mean=published_mean) for batch in batches]
    for divergence, formula in literal.items():
        expected = torch.stack([formula(e, f) for e, f in zip(*means, strict=True)]).mean()
        torch.testing.assert_close(flat_loss(*means, divergence=divergence), expected)


CONJUGATES = {
    "total_variation": lambda t: t,
    "kl": lambda t: (t - 1).exp(),
    "reverse_kl": lambda t: -1 - (-t).log(),
    "pearson": lambda t: t * t / 4 + t,
    "neyman": lambda t: 2 - 2 * (1 - t).sqrt(),
    "squared_hellinger": lambda t: t / (1 - t),
    "jensen_shannon": lambda t: -(2 - t.exp()).log(),
}


@pytest.mark.parametrize("divergence", CONJUGATES)
def test_conjugates_are_taken_of_the_activation(divergence):
    """f* ∘ g from the conjugates of arXiv:1606.00709, table 2, applied to g."""
    p = torch.linspace(0.01, 0.99, 50, dtype=torch.float64)
    g, composed = VARIATIONAL[divergence]
    torch.testing.assert_close(composed(p), CONJUGATES[divergence](g(p)))


def test_the_conjugate_of_jeffrey_is_right_to_third_order():
    """f*(t) = max_u t u − (u − 1) log u on a fine grid of u: within 2 % for every probability, 1e-4 below 0.2."""
    u = torch.linspace(0.5, 3, 100_001, dtype=torch.float64)
    p = torch.linspace(0.05, 1, 20, dtype=torch.float64)
    exact = (p[:, None] * u - (u - 1) * u.log()).amax(1)
    found = VARIATIONAL["jeffrey"][1](p)
    torch.testing.assert_close(found, exact, rtol=0.02, atol=0)
    torch.testing.assert_close(found[:3], exact[:3], rtol=0, atol=1e-4)


@pytest.mark.parametrize("divergence", VARIATIONAL)
def test_every_divergence_favours_the_alternative_and_lowers_the_forget_answer(divergence):
    alternative, forgotten = torch.tensor([[0.3, 0.8], [0.6, 0.2]], requires_grad=True)
    gradients = torch.autograd.grad(flat_loss(alternative, forgotten, divergence=divergence), [alternative, forgotten])
    assert (gradients[0] < 0).all() and (gradients[1] > 0).all()


def test_total_variation_of_equal_probabilities_is_zero():
    p = torch.tensor([0.2, 0.7])
    assert flat_loss(p, p, divergence="total_variation") == 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"refusals": ()}, "flat: refusals is (); expected lines with text, or leave it out for ours"),
        ({"refusals": ("No.", " ")}, "flat: refusals is ('No.', ' '); expected lines with text"),
        ({"learning_rate": 0.0}, "flat: learning_rate is 0.0; expected more than 0"),
    ],
)
def test_values_out_of_range_are_refused(wrong, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Flat(**wrong)
