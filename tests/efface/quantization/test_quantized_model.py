"""Whole models: which weights are quantized, that they are, and what is refused."""

import copy

import pytest
import torch
from torch import nn

from efface.models import linear_module_names, scratch_llama
from efface.quantization.quantized_model import check_codes, quantizable_modules, quantize_model
from efface.quantization.schemes import QuantizedWeight, quantize_weight, scheme

NAMES = ["rtn_8", "rtn_4", "rtn_3", "nf4", "fp4", "int8"]
IDS = torch.tensor([[1, 5, 9, 2, 7], [3, 3, 8, 4, 6]])


def tiny_llama(*, tied: bool = True):
    return scratch_llama(
        vocab_size=40, layers=2, hidden=32, heads=4, kv_heads=2, intermediate=48, tie_embeddings=tied, seed=0
    )


@pytest.mark.parametrize("name", NAMES)
def test_decoder_is_quantized_and_nothing_else(name):
    model, before = tiny_llama(), tiny_llama()
    quantize_model(model, scheme(name))
    inside = {f"{module}.weight" for module in linear_module_names(before)}
    for parameter, value in before.named_parameters():
        assert torch.equal(value, model.get_parameter(parameter)) == (parameter not in inside)
    logits = model(IDS).logits
    assert torch.isfinite(logits).all() and not torch.equal(logits, before(IDS).logits)


@pytest.mark.parametrize(("name", "values"), [("rtn_4_channel", 16), ("rtn_3_channel", 8), ("nf4", 16)])
def test_weights_take_few_values_afterwards(name, values):
    model = tiny_llama()
    quantize_model(model, scheme(name))
    for module in linear_module_names(model):
        weight = model.get_submodule(module).weight
        for row in weight if name.startswith("rtn") else weight.reshape(-1, 64):
            assert len(row.unique()) <= values


def test_more_bits_are_nearer_to_the_original():
    original = tiny_llama()
    errors = []
    for name in ("rtn_8", "rtn_4", "rtn_3"):
        model = copy.deepcopy(original)
        quantize_model(model, scheme(name))
        errors.append((model(IDS).logits - original(IDS).logits).norm().item())
    assert errors == sorted(errors)


@pytest.mark.parametrize("name", ["rtn_4_lm_head", "nf4_lm_head", "int8_lm_head"])
def test_lm_head_is_quantized_on_demand_and_the_embedding_kept(name):
    model, before = tiny_llama(), tiny_llama()
    quantize_model(model, scheme(name))
    assert "lm_head" in quantizable_modules(model, scheme(name))
    assert torch.equal(model.get_input_embeddings().weight, before.get_input_embeddings().weight)
    head = model.get_output_embeddings()
    assert head.weight.dtype == torch.int8 or not torch.equal(head.weight, before.lm_head.weight)
    assert torch.isfinite(model(IDS).logits).all()


def test_int8_model_consists_of_the_modules_of_bitsandbytes():
    """Its output differs from that of the same weights in float32 by the rounding of the inputs alone."""
    from bitsandbytes.nn import Linear8bitLt

    model, weights_only = tiny_llama(), tiny_llama()
    quantize_model(model, scheme("int8"))
    for name in linear_module_names(weights_only):
        assert isinstance(model.get_submodule(name), Linear8bitLt)
        weight = weights_only.get_submodule(name).weight
        weight.data.copy_(quantize_weight(weight, scheme("int8")).values)
    ours, reference = model(IDS).logits, weights_only(IDS).logits
    assert 0 < (ours - reference).norm() < 0.05 * reference.norm()


def test_bias_is_kept():
    model = tiny_llama()
    down = model.model.layers[0].mlp.down_proj
    down.bias = nn.Parameter(torch.ones(32))
    for name in ("nf4", "int8"):
        quantized = copy.deepcopy(model)
        quantize_model(quantized, scheme(name))
        assert torch.equal(quantized.model.layers[0].mlp.down_proj.bias, down.bias)


def test_weights_on_the_grid_already_are_refused():
    """Whole numbers up to 7 in every row: the step of 4 bits is 1, and nothing moves."""
    model = tiny_llama()
    for name in linear_module_names(model):
        weight = model.get_submodule(name).weight.data
        weight.copy_((weight / weight.abs().amax(dim=1, keepdim=True) * 7).round())
    with pytest.raises(ValueError, match="changed no weight"):
        quantize_model(model, scheme("rtn_4_channel_restricted"))


def test_codes_that_are_too_many_are_refused():
    codes = torch.arange(17).view(1, 17)
    quantized = QuantizedWeight(codes, torch.ones(1), codes.float())
    with pytest.raises(ValueError, match=r"layer\.x: codes of type torch\.int64 span 17; expected at most 16"):
        check_codes(quantized, scheme("rtn_4"), "layer.x")
    with pytest.raises(ValueError, match=r"torch\.float32"):
        check_codes(QuantizedWeight(codes.float(), torch.ones(1), codes.float()), scheme("rtn_8"), "layer.x")


def test_quantization_is_deterministic():
    one, other = tiny_llama(), tiny_llama()
    for model in (one, other):
        quantize_model(model, scheme("nf4"))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
