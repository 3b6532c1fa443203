"""Specificity weights and the outputs that suppress a token."""

import pytest
import torch

from efface.editing.suppression import logit_targets, residual_targets, specificity_weights

FORGET, RETAIN, END = torch.tensor([1, 1, 1, 2, 5]), torch.tensor([2, 3, 5, 5]), 5


def test_weights_compare_relative_frequencies():
    """Forget: 3/5 token 1, 1/5 token 2, 1/5 token 5. Retain: 1/4 token 2, 1/2 token 5, more each."""
    alpha = specificity_weights(FORGET, RETAIN, vocabulary=7)
    torch.testing.assert_close(alpha[[1, 2, 5]], torch.tensor([1.0, 0.0, 0.0]).double())
    part = specificity_weights(FORGET, torch.tensor([1, 3, 3, 3]), vocabulary=7)
    assert float(part[1]) == pytest.approx(1 - 0.25 / 0.6)


def test_published_weights_do_not_count_end_tokens_and_so_suppress_them():
    assert float(specificity_weights(FORGET, RETAIN, vocabulary=7, uncounted=[END])[END]) == 1.0


def test_weights_that_are_all_zero_and_missing_tokens_are_refused():
    with pytest.raises(ValueError, match="0 for every forget token"):
        specificity_weights(RETAIN, RETAIN, vocabulary=7)
    with pytest.raises(ValueError, match="5 forget and 0 retain tokens"):
        specificity_weights(FORGET, torch.tensor([END]), vocabulary=7, uncounted=[END])


def test_residual_target_points_away_from_the_token_with_length_beta_alpha():
    unembedding = torch.randn(7, 4, generator=torch.Generator().manual_seed(0))
    alpha = torch.linspace(0, 1, 7).double()
    goal = residual_targets(FORGET, alpha, unembedding, beta=3.0)
    for column, token in enumerate(FORGET.tolist()):
        row = unembedding[token].double()
        torch.testing.assert_close(goal.of(torch.tensor([column]))[:, 0], -3 * alpha[token] * row / row.norm())


def test_targets_times_keys_equals_the_full_matrix_product():
    keys = torch.randn(5, 6, generator=torch.Generator().manual_seed(1))
    goal = residual_targets(FORGET, torch.ones(7).double(), torch.eye(7), beta=2.0)
    torch.testing.assert_close(goal.times(keys), goal.of(torch.arange(5)) @ keys.double())


def test_logit_target_lowers_the_token_itself():
    goal, rows = logit_targets(FORGET, torch.ones(7).double(), beta=2.0)
    full = torch.zeros(7, 5).double()
    full[rows] = goal.of(torch.arange(5))
    expected = -2 * torch.nn.functional.one_hot(FORGET, 7).mT
    assert torch.equal(full, expected.double())
