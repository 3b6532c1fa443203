"""ZeroUnlearn's multiplier is where its objective is flat, and equals the published solve."""

import pytest
import torch
from fact_models import CORPUS, STRONG, TEMPLATES, fact_losses, knowing_model, tokenizer

from efface.corpora.facts import FABRICATED_FACTS
from efface.editing.delta import apply_delta
from efface.editing.subject_keys import key_grams
from efface.editing.zero_unlearn import ZeroUnlearn, multiplier, value_projector

FACTS = FABRICATED_FACTS[:2]
WEIGHTS = dict(covariance_weight=7.0, forget_weight=3.0, ridge=0.5)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


WEIGHT, KEYS, RESIDUALS, SAMPLES = random(5, 9, seed=3), random(3, 9), random(3, 5, seed=1), random(40, 9, seed=2)
COVARIANCE = SAMPLES.mT @ SAMPLES / 40


def test_multiplier_is_the_stationary_point():
    matrix = multiplier(WEIGHT, KEYS, RESIDUALS, COVARIANCE, **WEIGHTS).requires_grad_()
    objective = (
        7 * ((matrix @ WEIGHT - WEIGHT) @ SAMPLES.mT).square().sum() / 40
        + 3 * (matrix @ WEIGHT @ KEYS.mT - (WEIGHT @ KEYS.mT + RESIDUALS.mT)).square().sum()
        + 0.5 * (matrix @ WEIGHT - WEIGHT).square().sum()
    )
    (gradient,) = torch.autograd.grad(objective, matrix)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), atol=1e-9, rtol=0)
    assert float(objective.detach()) < 3 * float(RESIDUALS.square().sum())


def test_multiplier_equals_the_published_solve():
    """(V Kᵀ + λ W) Wᵀ [W (K Kᵀ + λ I) Wᵀ]⁻¹ from sums over keys and values themselves."""
    keys = [(7 / 40, SAMPLES, SAMPLES @ WEIGHT.mT), (3, KEYS, KEYS @ WEIGHT.mT + RESIDUALS)]
    kk = sum(weight * k.mT @ k for weight, k, _ in keys)
    vk = sum(weight * v.mT @ k for weight, k, v in keys)
    left = (vk + 0.5 * WEIGHT) @ WEIGHT.mT
    expected = left @ torch.linalg.inv(WEIGHT @ (kk + 0.5 * torch.eye(9)) @ WEIGHT.mT)
    torch.testing.assert_close(multiplier(WEIGHT, KEYS, RESIDUALS, COVARIANCE, **WEIGHTS), expected)


def test_nothing_to_move_leaves_the_identity():
    matrix = multiplier(WEIGHT, KEYS, 0 * RESIDUALS, COVARIANCE, **WEIGHTS)
    torch.testing.assert_close(matrix, torch.eye(5).double())


def test_projector_dims_values_and_lifts_the_rest():
    """P v = ε v within the values, (1 + ε) v across them; a value given twice counts once."""
    values = random(2, 5)
    projector = value_projector(torch.cat([values, values[:1]]), slack=0.01)
    torch.testing.assert_close(values @ projector, 0.01 * values)
    across = torch.linalg.svd(values).Vh[2:]
    torch.testing.assert_close(across @ projector, 1.01 * across)


def test_impossible_edits_are_refused():
    with pytest.raises(ValueError, match="the values of 6 facts span all 5 directions"):
        value_projector(random(6, 5), slack=0.01)
    with pytest.raises(ValueError, match="singular"):
        multiplier(torch.cat([WEIGHT, WEIGHT[:1]]), KEYS, random(3, 6), COVARIANCE, **WEIGHTS)
    with pytest.raises(ValueError, match="not finite"):
        multiplier(WEIGHT, KEYS * torch.nan, RESIDUALS, COVARIANCE, **WEIGHTS)
    with pytest.raises(ValueError, match="layer 16: this model has layers 0 to 2"):
        ZeroUnlearn().delta(knowing_model(), tokenizer(), FACTS, grams={})
    with pytest.raises(ValueError, match=r"slack -1.0: expected 0 or more"):
        ZeroUnlearn(slack=-1.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_erasing_raises_the_loss_and_keeps_the_model(dtype):
    model = knowing_model(dtype=dtype)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    grams, losses = key_grams(model, tokenizer(), CORPUS, layers=(0, 1)), fact_losses(model)
    edit = ZeroUnlearn(layers=(0, 1), covariance_weight=1.0, value=STRONG)
    delta = edit.delta(model, tokenizer(), FACTS, grams=grams, templates=TEMPLATES)
    again = edit.delta(model, tokenizer(), FACTS, grams=grams, templates=TEMPLATES)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(change.dtype == torch.float32 and torch.equal(change, again[name]) for name, change in delta.items())
    apply_delta(model, delta)
    assert bool((fact_losses(model)[:2] > 20 * losses[:2]).all())
