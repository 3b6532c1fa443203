"""What quantization leaves of an edit."""

import pytest
import torch

from efface.models import linear_module_names, scratch_llama
from efface.quantization.attack import weight_survival, weight_survivals
from efface.quantization.schemes import scheme

NAMES = ["rtn_8", "rtn_4", "rtn_3", "nf4", "fp4", "int8"]


def tiny_llama(*, hidden: int = 32):
    return scratch_llama(
        vocab_size=40, layers=2, hidden=hidden, heads=4, kv_heads=2, intermediate=48, tie_embeddings=True, seed=0
    )


@pytest.mark.parametrize("name", NAMES)
def test_no_edit_changes_no_code(name):
    survivals = list(weight_survivals(tiny_llama(), tiny_llama(), scheme(name)))
    assert [survival.module for survival in survivals] == linear_module_names(tiny_llama())
    assert all((s.changed_code_share, s.delta_norm, s.surviving_delta_norm) == (0, 0, 0) for s in survivals)


@pytest.mark.parametrize("name", NAMES)
def test_only_the_edited_module_changes(name):
    base, edited = tiny_llama(), tiny_llama()
    weight = edited.model.layers[1].mlp.down_proj.weight.data
    weight.mul_(-1)
    survivals = {s.module: s for s in weight_survivals(base, edited, scheme(name))}
    changed = survivals.pop("model.layers.1.mlp.down_proj")
    assert all(s.delta_norm == s.changed_code_share == 0 for s in survivals.values())
    assert changed.changed_code_share > 0.5
    assert changed.delta_norm == pytest.approx(2 * float(weight.norm()), rel=1e-6)
    assert changed.surviving_delta_norm == pytest.approx(changed.delta_norm, rel=0.3)


def test_an_edit_below_half_a_step_is_undone():
    """Δ = 8 / 8 = 1: a change of 0.2 about whole numbers survives nowhere, one of 0.6 everywhere."""
    before = torch.tensor([[-8.0, 1.0, 2.0, 3.0]])
    small, large = (before + torch.tensor([[0.0, size, size, size]]) for size in (0.2, 0.6))
    undone = weight_survival("m", before, small, scheme("rtn_4"))
    assert (undone.changed_code_share, undone.surviving_delta_norm) == (0, 0)
    assert undone.delta_norm == pytest.approx(0.2 * 3**0.5, rel=1e-6)
    kept = weight_survival("m", before, large, scheme("rtn_4"))
    assert (kept.changed_code_share, kept.surviving_delta_norm) == (0.75, pytest.approx(3**0.5))


def test_fewer_bits_keep_less_of_a_small_edit():
    generator = torch.Generator().manual_seed(0)
    before = torch.randn(32, 128, generator=generator)
    after = before + 0.01 * torch.randn(32, 128, generator=generator)
    shares = [
        weight_survival("m", before, after, scheme(name)).changed_code_share for name in ("rtn_8", "rtn_4", "rtn_3")
    ]
    assert shares == sorted(shares, reverse=True) and shares[0] > 2 * shares[1]


def test_an_edited_head_is_compared_where_the_scheme_takes_it_in():
    base, edited = tiny_llama(), tiny_llama()
    names = [s.module for s in weight_survivals(base, edited, scheme("nf4_lm_head"))]
    assert names[-1] == "lm_head"
    edited.lm_head.weight.data.mul_(2)
    assert list(weight_survivals(base, edited, scheme("nf4_lm_head")))[-1].delta_norm > 0


def test_models_of_other_shape_are_refused():
    shallow = scratch_llama(
        vocab_size=40, layers=1, hidden=32, heads=4, kv_heads=2, intermediate=48, tie_embeddings=True, seed=0
    )
    with pytest.raises(ValueError, match="different modules"):
        list(weight_survivals(tiny_llama(), shallow, scheme("rtn_4")))
