"""GROM's parameters, and edits of one map from given keys."""

import pytest
import torch

from efface.activations.key_statistics import Keys
from efface.editing.grom import Grom
from efface.editing.strength import StrengthSearch
from efface.editing.suppression import logit_targets, residual_targets

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


def test_emphasis_scales_the_targets_of_its_examples():
    """The edit is linear in the targets: doubling all of them doubles it, and one example's share adds."""
    ones = torch.ones(4).double()
    plain, doubled = (
        Grom(beta=3.0).residual_edit(KEYS, RETAIN, alpha=ALPHA, unembedding=UNEMBEDDING, emphasis=factor * ones).change
        for factor in (1.0, 2.0)
    )
    torch.testing.assert_close(doubled, 2 * plain)
    shares = [
        Grom(beta=3.0).residual_edit(KEYS, RETAIN, alpha=ALPHA, unembedding=UNEMBEDDING, emphasis=one).change
        for one in torch.eye(4).double()
    ]
    torch.testing.assert_close(sum(shares), plain)


@pytest.mark.parametrize("map_edited", ["down_projection", "head"])
def test_withdrawal_equals_solving_again_without_the_examples(map_edited):
    """Examples 1 and 3 together, with s, μ and D as they were: the literal closed form on the other columns."""
    edit, withdrawn = Grom(beta=3.0, head_beta=3.0, retain_weight=5.0), torch.tensor([False, True, False, True])

    def solved(withdrawn):
        if map_edited == "head":
            return edit.head_edit(KEYS, RETAIN, alpha=ALPHA, withdrawn=withdrawn)
        return edit.residual_edit(KEYS, RETAIN, alpha=ALPHA, unembedding=UNEMBEDDING, withdrawn=withdrawn)

    whole, less = solved(None), solved(withdrawn)
    assert torch.equal(less.change, whole.change) and less.influence == whole.influence
    targets = (
        residual_targets(KEYS.tokens, ALPHA, UNEMBEDDING, beta=3.0) if map_edited == "down_projection"
        else logit_targets(KEYS.tokens, ALPHA, beta=3.0)[0]
    )  # fmt: skip
    kept = (~withdrawn[KEYS.examples]).nonzero().flatten()
    keys, retain = KEYS.values[kept].double(), RETAIN.double()
    system = 5.0 / len(retain) * retain.mT @ retain + keys.mT @ keys / len(KEYS) + whole.mu * torch.eye(N).double()
    expected = targets.of(kept).double() @ keys / len(KEYS) @ torch.linalg.inv(system)
    found = less.without_withdrawn().change
    if map_edited == "head":
        rows = found.abs().sum(1).nonzero().flatten()
        found, expected = found[rows], expected[expected.abs().sum(1) > 1e-12]
    torch.testing.assert_close(found.double(), expected, atol=1e-6 * float(expected.norm()), rtol=0)
    assert whole.without_withdrawn() is whole
    torch.testing.assert_close(less.scaled(2.0).without_withdrawn().change, 2 * less.without_withdrawn().change)


def test_withdrawing_every_example_leaves_nothing():
    less = Grom().residual_edit(
        KEYS, RETAIN, alpha=ALPHA, unembedding=UNEMBEDDING, withdrawn=torch.ones(4, dtype=torch.bool)
    )
    assert less.without_withdrawn().change.norm() < 1e-5 * less.change.norm()


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
        ({"difficulty_gain": 1.5}, "difficulty_gain 1.5: expected 0 to 1"),
        ({"search": StrengthSearch()}, "search with a sequential band of 2 maps"),
        ({"search": StrengthSearch(), "layers": (0,), "head_beta": 1.0}, "search with a sequential band of 2 maps"),
    ],
)
def test_parameters_out_of_range_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        Grom(**values)
