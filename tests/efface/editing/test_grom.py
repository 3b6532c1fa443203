"""GROM's parameters, and edits of one map from given keys."""

import pytest
import torch

from efface.activations.key_statistics import Keys
from efface.editing.grom import Grom

N, OUT, VOCABULARY = 24, 16, 12


def random(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


KEYS = Keys(random(10, N, seed=0), torch.arange(10) % 5, torch.arange(10) // 3)
RETAIN, UNEMBEDDING, ALPHA = random(40, N, seed=1), random(VOCABULARY, OUT, seed=2), torch.ones(VOCABULARY).double()


def test_edit_of_one_layer_is_linear_in_beta():
    one, two = (Grom(beta=b).residual_edit(KEYS, RETAIN, alpha=ALPHA, unembedding=UNEMBEDDING) for b in (3.0, 6.0))
    torch.testing.assert_close(two.change, 2 * one.change)
    assert two.influence == pytest.approx({key: 2 * value for key, value in one.influence.items()})


def test_edit_pushes_outputs_of_forget_keys_away_from_their_tokens():
    change = Grom(beta=3.0).residual_edit(KEYS, RETAIN, alpha=ALPHA, unembedding=UNEMBEDDING).change
    moved = (UNEMBEDDING[KEYS.tokens] * (KEYS.values @ change.mT)).sum(1)
    assert (moved < 0).all()


def test_head_edit_changes_the_rows_of_suppressed_tokens_only():
    alpha = ALPHA.clone().index_fill(0, torch.tensor([3]), 0.0)
    change = Grom(head_beta=3.0).head_edit(KEYS, RETAIN, alpha=alpha).change
    assert change.shape == (VOCABULARY, N)
    changed = change.abs().sum(1).nonzero().flatten().tolist()
    assert changed == [0, 1, 2, 4]


def test_influence_covers_every_example_and_can_be_left_out():
    with_audit = Grom().residual_edit(KEYS, RETAIN, alpha=ALPHA, unembedding=UNEMBEDDING)
    assert set(with_audit.influence) == {0, 1, 2, 3} and all(norm > 0 for norm in with_audit.influence.values())
    assert not Grom(influence=False).residual_edit(KEYS, RETAIN, alpha=ALPHA, unembedding=UNEMBEDDING).influence


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"beta": -1.0}, "beta -1.0: expected 0 or more"),
        ({"ridge": float("nan")}, "ridge nan: expected 0 or more"),
        ({"width": 0}, "width 0: expected at least 1"),
        ({"retain_columns": 0}, "retain_columns 0: expected at least 1"),
        ({"beta": 0.0}, "nothing to edit"),
        ({"layers": ()}, "nothing to edit"),
    ],
)
def test_parameters_out_of_range_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        Grom(**values)
