"""Adapters change nothing until trained, read back as exactly the change they make, and leave no trace."""

import pytest
import torch

from efface.models import linear_module_names, scratch_llama
from efface.tokenization import Encoding
from efface.training.loop import answer_logits, answer_loss, finetune, shuffled_batches
from efface.training.lora import Lora, attach_lora, detach_lora, lora_factors, merge_lora

ENCODINGS = [Encoding((1, 2, 3 + i, 4, 5), 3) for i in range(4)]
BATCHES = shuffled_batches(ENCODINGS, batch_size=4, pad_id=0, seed=0)


@pytest.fixture
def model():
    return scratch_llama(
        vocab_size=20, layers=2, hidden=16, heads=4, kv_heads=2, intermediate=24, tie_embeddings=True, seed=0
    )


def trained_adapters(model, lora: Lora, layers: list[int]):
    wrapped = attach_lora(model, lora, modules=linear_module_names(model, layers), seed=3)
    finetune(wrapped, BATCHES, answer_loss, epochs=4, learning_rate=1e-2, seed=0)
    return wrapped.eval()


def test_fresh_adapters_compute_the_same_and_only_they_train(model):
    expected = answer_logits(model, BATCHES(0)[0])
    wrapped = attach_lora(model, Lora(rank=2), modules=linear_module_names(model), seed=0)
    assert torch.equal(answer_logits(wrapped, BATCHES(0)[0]), expected)
    assert all("lora_" in name for name, parameter in wrapped.named_parameters() if parameter.requires_grad)


def test_factors_are_the_weight_change_and_detaching_restores_the_model(model):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modules = [name for name, _ in model.named_modules()]
    batch = BATCHES(0)[0]
    wrapped = trained_adapters(model, Lora(rank=3, alpha=12.0), [1])
    expected = answer_logits(wrapped, batch).detach()
    factors = lora_factors(wrapped)
    plain = detach_lora(wrapped)

    assert plain is model
    assert [name for name, _ in model.named_modules()] == modules
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert set(factors) == {f"{name}.weight" for name in linear_module_names(model, [1])}
    assert not torch.allclose(answer_logits(model, batch), expected)
    for name, (left, right) in factors.items():
        assert left.shape[1] == right.shape[0] == 3
        model.get_parameter(name).data.add_(left @ right)
    torch.testing.assert_close(answer_logits(model, batch), expected, rtol=1e-4, atol=1e-5)


def test_merging_keeps_what_the_adapters_compute(model):
    wrapped = trained_adapters(model, Lora(rank=2), [0, 1])
    expected = answer_logits(wrapped, BATCHES(0)[0]).detach()
    torch.testing.assert_close(answer_logits(merge_lora(wrapped), BATCHES(0)[0]), expected, rtol=1e-4, atol=1e-5)


def test_adapters_are_the_same_for_the_same_seed(model):
    def first_factor(seed: int) -> torch.Tensor:
        wrapped = attach_lora(model, Lora(rank=2), modules=linear_module_names(model, [0]), seed=seed)
        right = next(iter(lora_factors(wrapped).values()))[1]
        detach_lora(wrapped)
        return right

    assert torch.equal(first_factor(1), first_factor(1))
    assert not torch.equal(first_factor(1), first_factor(2))


@pytest.mark.parametrize("wrong", [{"rank": 0}, {"alpha": 0.0}, {"dropout": 1.0}])
def test_values_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match=f"lora.{next(iter(wrong))} is"):
        Lora(**wrong)
