"""Emphasis by rank of CUD."""

import torch

from efface.difficulty.emphasis import difficulty_emphasis


def test_ranks_are_spread_evenly_and_the_mean_is_one():
    found = difficulty_emphasis(torch.tensor([0.5, 0.1, 0.9, 0.50001, 0.2]), gain=0.5)
    torch.testing.assert_close(found, torch.tensor([1.0, 0.5, 1.5, 1.25, 0.75]).double())


def test_equal_scores_share_their_mean_rank():
    found = difficulty_emphasis(torch.tensor([0.5, 0.5, 0.9]), gain=1.0)
    torch.testing.assert_close(found, torch.tensor([0.5, 0.5, 2.0]).double())
    assert torch.equal(difficulty_emphasis(torch.full((4,), 0.5), gain=1.0), torch.ones(4).double())


def test_no_gain_and_one_example_change_nothing():
    assert torch.equal(difficulty_emphasis(torch.tensor([0.1, 0.9]), gain=0.0), torch.ones(2).double())
    assert torch.equal(difficulty_emphasis(torch.tensor([0.1]), gain=1.0), torch.ones(1).double())
