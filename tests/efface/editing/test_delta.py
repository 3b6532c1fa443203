"""A delta kept alone gives the edited model back bit for bit, or says what is wrong."""

import json

import pytest
import torch
from safetensors.torch import save_file

from efface.editing.delta import LowRank, apply_delta, changed_weight, load_delta, load_edited, save_delta
from efface.models import WEIGHTS, file_md5, load_model, save_model, scratch_llama

SHAPE = dict(vocab_size=50, layers=2, hidden=32, heads=4, kv_heads=2, intermediate=48)
DOWN = "model.layers.1.mlp.down_proj.weight"
QUERY = "model.layers.0.self_attn.q_proj.weight"
IDS = torch.arange(12)[None]


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def base(tmp_path):
    save_model(scratch_llama(**SHAPE, tie_embeddings=True, seed=3), tmp_path / "base")
    return tmp_path / "base"


@pytest.fixture
def delta():
    return {
        DOWN: random(32, 48) / 10,
        QUERY: LowRank(random(32, 3), random(3, 32)),
        "lm_head.weight": random(50, 32, seed=1),
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_reloaded_edit_equals_the_edited_model_bit_for_bit(tmp_path, base, delta, dtype):
    edited = load_model(base, dtype=dtype)
    embedding = edited.get_input_embeddings().weight.detach().clone()
    apply_delta(edited, delta)
    before = file_md5(base / WEIGHTS)
    save_delta(tmp_path / "delta.safetensors", delta, base_md5=before)
    reloaded = load_edited(base, tmp_path / "delta.safetensors", dtype=dtype)
    for name, weight in edited.state_dict().items():
        assert torch.equal(weight, reloaded.state_dict()[name]), name
    assert torch.equal(edited(IDS).logits, reloaded(IDS).logits)
    assert torch.equal(reloaded.get_input_embeddings().weight, embedding)
    assert not torch.equal(reloaded.lm_head.weight, embedding)
    assert file_md5(base / WEIGHTS) == before


def test_edited_model_can_be_saved_whole(tmp_path, base, delta):
    edited = load_model(base)
    apply_delta(edited, delta)
    save_model(edited, tmp_path / "whole")
    assert torch.equal(load_model(tmp_path / "whole")(IDS).logits, edited(IDS).logits)


def test_same_delta_gives_the_same_bytes_whatever_its_order(tmp_path, delta):
    save_delta(tmp_path / "a", delta, base_md5="1")
    save_delta(tmp_path / "b", dict(reversed(delta.items())), base_md5="1")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    loaded, base_md5 = load_delta(tmp_path / "a")
    assert base_md5 == "1" and set(loaded) == set(delta)
    assert torch.equal(loaded[DOWN], delta[DOWN]) and torch.equal(loaded[QUERY].left, delta[QUERY].left)


def test_changed_weight_is_added_in_float32():
    """1 + 2⁻⁹ is no bfloat16 number: it rounds to 1; 1 + 2⁻⁷ is one."""
    one = torch.ones(1, 1, dtype=torch.bfloat16)
    assert float(changed_weight(one, torch.full((1, 1), 2.0**-9))) == 1.0
    assert float(changed_weight(one, torch.full((1, 1), 2.0**-7))) == 1 + 2.0**-7


def test_delta_of_another_base_or_shape_is_refused(tmp_path, base, delta):
    save_delta(tmp_path / "delta", delta, base_md5="0123")
    with pytest.raises(ValueError, match=r"base with md5 0123, but .*base has"):
        load_edited(base, tmp_path / "delta")
    model = load_model(base)
    with pytest.raises(ValueError, match=r"'model\.layers\.9\.mlp.*which this LlamaForCausalLM has not"):
        apply_delta(model, {"model.layers.9.mlp.down_proj.weight": delta[DOWN]})
    with pytest.raises(ValueError, match=r"shape \(48, 32\), expected the base's \(32, 48\)"):
        apply_delta(model, {DOWN: delta[DOWN].mT})


def test_files_that_are_no_delta_are_named(tmp_path, delta):
    with pytest.raises(FileNotFoundError, match="no such delta; run the edit stage"):
        load_delta(tmp_path / "nowhere")
    save_delta(tmp_path / "short", delta, base_md5="1")
    (tmp_path / "short").write_bytes((tmp_path / "short").read_bytes()[:-40])
    with pytest.raises(ValueError, match=r"short: not a readable safetensors file.*dvc repro"):
        load_delta(tmp_path / "short")
    save_file({DOWN: delta[DOWN]}, tmp_path / "plain")
    with pytest.raises(ValueError, match=r"plain: metadata \{\}, expected a delta of format 1"):
        load_delta(tmp_path / "plain")
    stamp = {"efface": json.dumps({"base_md5": "1", "format": 1})}
    save_file({f"{DOWN}/left": delta[DOWN]}, tmp_path / "half", metadata=stamp)
    with pytest.raises(ValueError, match="has one factor only"):
        load_delta(tmp_path / "half")


def test_delta_that_is_not_finite_is_not_saved(tmp_path):
    with pytest.raises(ValueError, match="the change is not finite; lower the edit's strength"):
        save_delta(tmp_path / "delta", {DOWN: torch.full((2, 2), float("nan"))}, base_md5="1")
    assert not (tmp_path / "delta").exists()
