"""AlphaEdit's change does nothing to keys of the corpus, and equals the published solve."""

import pytest
import torch
from fact_models import CORPUS, STRONG, TEMPLATES, fact_losses, knowing_model, tokenizer

from efface.corpora.facts import FABRICATED_FACTS
from efface.editing.alpha_edit import AlphaEdit, alpha_edit_change, null_space
from efface.editing.delta import apply_delta, dense
from efface.editing.subject_keys import key_grams, second_moment

FACTS = FABRICATED_FACTS[:2]


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


KEYS, RESIDUALS, KEPT = random(3, 9), random(3, 5, seed=1), random(4, 9, seed=2)
COVARIANCE = KEPT.mT @ KEPT / 4


def test_basis_spans_the_null_space():
    """P is symmetric, idempotent, kills every kept key and keeps everything orthogonal to them."""
    free = null_space(COVARIANCE, threshold=1e-9)
    projector = free @ free.mT
    assert free.shape == (9, 5)
    torch.testing.assert_close(projector @ projector, projector)
    torch.testing.assert_close(KEPT @ projector, torch.zeros_like(KEPT), atol=1e-10, rtol=0)
    torch.testing.assert_close(projector + torch.linalg.pinv(KEPT) @ KEPT, torch.eye(9).double())


def test_change_vanishes_on_kept_keys_and_meets_the_residuals_without_ridge():
    change = alpha_edit_change(KEYS, RESIDUALS, null_space(COVARIANCE, threshold=1e-9), ridge=1e-9).dense().double()
    torch.testing.assert_close(KEPT @ change.mT, torch.zeros(4, 5).double(), atol=1e-5, rtol=0)
    torch.testing.assert_close(KEYS @ change.mT, RESIDUALS, atol=1e-4, rtol=1e-4)


def test_change_equals_the_published_solve():
    """ΔWᵀ = solve(P K Kᵀ + L2 I, P K Rᵀ), P from the singular vectors of C below the threshold."""
    vectors, energies, _ = torch.linalg.svd(COVARIANCE)
    small = vectors[:, energies < 0.3]
    projector = small @ small.mT
    system = projector @ KEYS.mT @ KEYS + 2 * torch.eye(9).double()
    expected = torch.linalg.solve(system, projector @ KEYS.mT @ RESIDUALS).mT
    change = alpha_edit_change(KEYS, RESIDUALS, null_space(COVARIANCE, threshold=0.3), ridge=2.0)
    assert change.left.shape == (5, 3)
    torch.testing.assert_close(change.dense().double(), expected, atol=1e-6, rtol=1e-5)


def test_impossible_null_spaces_are_refused():
    full = COVARIANCE + torch.eye(9)
    with pytest.raises(ValueError, match=r"threshold 0\.02: expected above 1, the least eigenvalue.*raise"):
        null_space(full, threshold=0.02)
    with pytest.raises(ValueError, match="second moment of keys is not finite"):
        null_space(full * torch.nan, threshold=0.02)
    with pytest.raises(ValueError, match="singular"):
        alpha_edit_change(torch.cat([KEYS, KEYS]), torch.cat([RESIDUALS, RESIDUALS]), torch.eye(9).double(), ridge=0.0)
    with pytest.raises(ValueError, match=r"ridge -1.0: expected 0 or more"):
        AlphaEdit(ridge=-1.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_erasing_raises_the_loss_and_keeps_model_and_calls_apart(dtype):
    """A second call gives the first one's change: no keys are remembered."""
    model = knowing_model(dtype=dtype)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    grams, losses = key_grams(model, tokenizer(), CORPUS, layers=(0, 1)), fact_losses(model)
    threshold = float(torch.linalg.eigvalsh(second_moment(grams, 0))[40])
    edit = AlphaEdit(layers=(0, 1), nullspace_threshold=threshold, ridge=1e-3, value=STRONG)
    delta = edit.delta(model, tokenizer(), FACTS, grams=grams, templates=TEMPLATES)
    again = edit.delta(model, tokenizer(), FACTS, grams=grams, templates=TEMPLATES)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(torch.equal(dense(delta[name]), dense(again[name])) for name in delta)
    apply_delta(model, delta)
    assert bool((fact_losses(model)[:2] > 20 * losses[:2]).all())
