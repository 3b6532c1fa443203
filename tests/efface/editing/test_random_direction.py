"""One direction for every forget key."""

import pytest
import torch

from efface.activations.key_statistics import Keys
from efface.editing.grom import Grom
from efface.editing.random_direction import corruption_targets

KEYS = Keys(torch.randn(10, 24), torch.arange(10) % 5, torch.arange(10) // 3)
RETAIN, UNEMBEDDING, ALPHA = torch.randn(40, 24), torch.randn(12, 16), torch.ones(12).double()


def test_every_column_is_the_same_direction_of_the_asked_length():
    columns = corruption_targets(5, 16, strength=3.0, seed=1).of(torch.arange(5))
    torch.testing.assert_close(columns.norm(dim=0), torch.full((5,), 3.0).double())
    assert torch.equal(columns, columns[:, :1].expand(-1, 5))


def test_direction_is_fixed_by_its_seed():
    first, again, other = (corruption_targets(1, 16, strength=1.0, seed=seed).directions for seed in (0, 0, 1))
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_edit_has_rank_one_and_does_not_look_at_tokens():
    edit = Grom(target="corruption", beta=3.0, layers=(0,))
    change = edit.residual_edit(KEYS, RETAIN, alpha=ALPHA, unembedding=UNEMBEDDING).change
    assert int(torch.linalg.matrix_rank(change)) == 1
    elsewhere = Keys(KEYS.values, torch.zeros_like(KEYS.tokens), KEYS.examples)
    assert torch.equal(change, edit.residual_edit(elsewhere, RETAIN, alpha=ALPHA, unembedding=UNEMBEDDING).change)


def test_corruption_of_the_unembedding_is_refused():
    with pytest.raises(ValueError, match=r"head_beta 2\.0: corruption has no targets at the unembedding"):
        Grom(target="corruption", head_beta=2.0)
