"""MEMIT's change solves its normal equations; its band reaches the values."""

import pytest
import torch
from fact_models import CORPUS, STRONG, TEMPLATES, fact_losses, knowing_model, tokenizer

from efface.corpora.facts import FABRICATED_FACTS
from efface.editing.delta import apply_delta, dense
from efface.editing.memit import Memit, memit_change, spread_delta
from efface.editing.subject_keys import key_grams, subject_keys, subject_prompt, subject_states
from efface.editing.value_optimisation import ValueOptimisation

FACTS = FABRICATED_FACTS[:2]


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


KEYS, RESIDUALS, SAMPLES = random(3, 9), random(3, 5, seed=1), random(40, 9, seed=2)
COVARIANCE = SAMPLES.mT @ SAMPLES / 40


def test_change_solves_the_normal_equations():
    """ΔW (λ C + K Kᵀ) = R Kᵀ."""
    change = memit_change(KEYS, RESIDUALS, COVARIANCE, weight=7.0)
    assert change.left.shape == (5, 3) and change.right.shape == (3, 9)
    left = change.dense().double() @ (7 * COVARIANCE + KEYS.mT @ KEYS)
    torch.testing.assert_close(left, RESIDUALS.mT @ KEYS, atol=1e-4, rtol=1e-4)


def test_change_equals_stacked_least_squares():
    """min ‖[√(λ/n) X; K] ΔWᵀ − [0; R]‖² by a solver that knows nothing of Gram matrices."""
    stacked = torch.cat([(7 / 40) ** 0.5 * SAMPLES, KEYS])
    expected = torch.linalg.lstsq(stacked, torch.cat([torch.zeros(40, 5).double(), RESIDUALS])).solution.mT
    change = memit_change(KEYS, RESIDUALS, COVARIANCE, weight=7.0).dense().double()
    torch.testing.assert_close(change, expected, atol=1e-5, rtol=1e-4)


def test_small_weight_of_the_corpus_meets_the_residuals():
    change = memit_change(KEYS, RESIDUALS, COVARIANCE, weight=1e-7).dense().double()
    torch.testing.assert_close(KEYS @ change.mT, RESIDUALS, atol=1e-4, rtol=1e-4)
    assert not memit_change(KEYS, 0 * RESIDUALS, COVARIANCE, weight=1.0).dense().any()


def test_singular_or_broken_systems_are_refused():
    with pytest.raises(ValueError, match="Gram matrix of 9 key dimensions is singular"):
        memit_change(KEYS, RESIDUALS, COVARIANCE, weight=0.0)
    with pytest.raises(ValueError, match="some key is NaN or infinite"):
        memit_change(KEYS * torch.nan, RESIDUALS, COVARIANCE, weight=1.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_erasing_raises_the_loss_and_keeps_the_model(dtype):
    model = knowing_model(dtype=dtype)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    grams, losses = key_grams(model, tokenizer(), CORPUS, layers=(0, 1)), fact_losses(model)
    edit = Memit(layers=(0, 1), covariance_weight=1.0, value=STRONG)
    delta = edit.delta(model, tokenizer(), FACTS, grams=grams, templates=TEMPLATES)
    again = edit.delta(model, tokenizer(), FACTS, grams=grams, templates=TEMPLATES)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert list(delta) == [f"model.layers.{layer}.mlp.down_proj.weight" for layer in (0, 1)]
    assert all(torch.equal(dense(delta[name]), dense(again[name])) for name in delta)
    apply_delta(model, delta)
    assert bool((fact_losses(model)[:2] > 20 * losses[:2]).all())


def test_spread_equals_a_literal_band():
    """Layer by layer on a model that is really changed: collect anew, give the rest shared among the layers left."""
    model, search = knowing_model(), ValueOptimisation(steps=8)
    grams = key_grams(model, tokenizer(), CORPUS, layers=(0, 1))
    edit = Memit(layers=(1, 0), covariance_weight=1.0, value=search)
    found = edit.delta(model, tokenizer(), FACTS, grams=grams, templates=TEMPLATES)
    block = model.model.layers[1]
    z = search.values(model, tokenizer(), FACTS, module=block, templates=TEMPLATES)
    prompts = [subject_prompt(tokenizer(), fact.prompt, fact.subject) for fact in FACTS]
    for layer, share in ((0, 2), (1, 1)):
        keys = subject_keys(model, tokenizer(), FACTS, layer=layer, templates=TEMPLATES)
        rest = z - subject_states(model, prompts, block, side="output", batch_size=1, pad_id=0)
        covariance = grams[layer].gram / grams[layer].count
        change = (
            rest.double().mT / share @ keys.double() @ torch.linalg.inv(covariance + keys.double().mT @ keys.double())
        )
        name = f"model.layers.{layer}.mlp.down_proj.weight"
        torch.testing.assert_close(dense(found[name]), change.float(), atol=1e-4, rtol=1e-3)
        apply_delta(model, {name: change.float()})


def test_impossible_edits_are_refused():
    model = knowing_model()
    with pytest.raises(ValueError, match="layer 3: this model has layers 0 to 2"):
        Memit().delta(model, tokenizer(), FACTS, grams={})
    with pytest.raises(ValueError, match="no facts left"):
        Memit(layers=(0,)).delta(model, tokenizer(), [], grams={})
    with pytest.raises(ValueError, match="expected at least one; name the layers"):
        Memit(layers=()).delta(model, tokenizer(), FACTS, grams={})
    with pytest.raises(ValueError, match=r"covariance_weight -1.0: expected 0 or more"):
        Memit(covariance_weight=-1.0)


def test_model_is_left_as_it_was_after_an_error():
    model = knowing_model()
    before = {name: value.clone() for name, value in model.state_dict().items()}

    def fails(layer, keys, residuals):
        if layer == 1:
            raise ValueError("on purpose")
        return torch.ones(32, 48)

    with pytest.raises(ValueError, match="on purpose"):
        spread_delta(
            model, tokenizer(), FACTS, layers=(0, 1), value=ValueOptimisation(steps=2), target="end",
            templates=TEMPLATES, batch_size=4, change=fails,
        )  # fmt: skip
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
