"""ROME's rank-one change writes the value at the prompt's key, and least elsewhere."""

import pytest
import torch
from fact_models import CORPUS, STRONG, TEMPLATES, fact_losses, knowing_model, tokenizer

from efface.corpora.facts import FABRICATED_FACTS
from efface.editing.delta import LowRank, apply_delta
from efface.editing.rome import Rome, rome_change
from efface.editing.subject_keys import key_grams, subject_prompt, subject_states
from efface.editing.value_optimisation import ValueOptimisation

NAME = "model.layers.0.mlp.down_proj.weight"


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_changed_weight_writes_the_value():
    """W′ k₀ = W k₀ + shift, whatever the context's mean key and C."""
    key, plain, shift, samples = random(9), random(9, seed=1), random(5, seed=2), random(40, 9, seed=3)
    for covariance in (None, samples.mT @ samples / 40):
        change = rome_change(key, plain, shift, covariance)
        assert isinstance(change, LowRank) and change.left.shape == (5, 1)
        torch.testing.assert_close(change.dense().double() @ plain, shift, atol=1e-4, rtol=1e-4)


def test_change_is_the_least_for_the_corpus_among_all_that_write_the_value():
    """Constrained least squares: min tr(ΔW C ΔWᵀ) with ΔW k = shift, by Lagrange's conditions ΔW C = λ kᵀ."""
    key, shift, samples = random(9), random(5, seed=2), random(40, 9, seed=3)
    covariance = samples.mT @ samples / 40
    change = rome_change(key, key, shift, covariance).dense().double()
    system = torch.zeros(10, 10, dtype=torch.float64)
    system[:9, :9], system[:9, 9], system[9, :9] = covariance, -key, key
    right = torch.zeros(10, 5, dtype=torch.float64)
    right[9] = shift
    torch.testing.assert_close(change, torch.linalg.solve(system, right)[:9].mT, atol=1e-5, rtol=1e-4)


def test_singular_second_moment_and_orthogonal_keys_are_refused():
    few = random(4, 9)
    with pytest.raises(ValueError, match=r"Gram matrix of 9 key dimensions is singular.*give more keys"):
        rome_change(random(9), random(9), random(5), few.mT @ few)
    one, other = torch.eye(9, dtype=torch.float64)[:2]
    with pytest.raises(ValueError, match="says nothing of the prompt's; change templates"):
        rome_change(one, other, random(5), None)
    with pytest.raises(ValueError, match="not finite"):
        rome_change(random(9), random(9), random(5), torch.full((9, 9), torch.nan))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_erasing_raises_the_loss_and_keeps_the_model(dtype):
    model = knowing_model(dtype=dtype)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    grams, losses = key_grams(model, tokenizer(), CORPUS, layers=(0,)), fact_losses(model)
    edit = Rome(layer=0, value=STRONG)
    delta = edit.delta(model, tokenizer(), FABRICATED_FACTS[:2], grams=grams, templates=TEMPLATES)
    again = edit.delta(model, tokenizer(), FABRICATED_FACTS[:2], grams=grams, templates=TEMPLATES)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert list(delta) == [NAME] and delta[NAME].left.shape == (32, 2)
    assert delta[NAME].left.dtype == torch.float32 and torch.equal(delta[NAME].left, again[NAME].left)
    apply_delta(model, delta)
    assert bool((fact_losses(model)[:2] > 20 * losses[:2]).all())


def test_edited_layer_writes_the_value_it_sought():
    model, fact, search = knowing_model(), FABRICATED_FACTS[0], ValueOptimisation(steps=8)
    module = model.model.layers[1].mlp.down_proj
    grams = key_grams(model, tokenizer(), CORPUS, layers=(1,))
    value = search.value(model, tokenizer(), fact, module=module, templates=TEMPLATES)
    apply_delta(model, Rome(layer=1, value=search).delta(model, tokenizer(), [fact], grams=grams, templates=TEMPLATES))
    prompt = subject_prompt(tokenizer(), fact.prompt, fact.subject)
    written = subject_states(model, [prompt], module, side="output", batch_size=1, pad_id=0)[0]
    torch.testing.assert_close(written, value.target, atol=1e-4, rtol=1e-3)


def test_impossible_edits_are_refused():
    model = knowing_model()
    with pytest.raises(ValueError, match="layer 5: this model has layers 0 to 2"):
        Rome().delta(model, tokenizer(), FABRICATED_FACTS, grams={})
    with pytest.raises(ValueError, match="no facts left"):
        Rome(layer=1).delta(model, tokenizer(), [], grams={})
    with pytest.raises(ValueError, match=r"layer 1: no Gram matrix of its keys, given \[\]"):
        Rome(layer=1).delta(model, tokenizer(), FABRICATED_FACTS, grams={})
