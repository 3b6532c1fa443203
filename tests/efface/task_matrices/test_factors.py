"""Task matrices are the training run's whole change where rank allows, and their energies add up."""

import pytest
import torch
from transformers import LlamaForCausalLM

from efface.models import linear_module_names, scratch_llama
from efface.task_matrices.factors import TaskMatrices, layer_shares, module_choice, task_matrix
from efface.tokenization import Encoding
from efface.training.loop import answer_loss, finetune, scored_tokens, shuffled_batches
from efface.training.lora import Lora

ROWS = [Encoding((1, 2, 10 + i, 20 + i, 3), 2) for i in range(6)]
SETTINGS = {"epochs": 3, "batch_size": 3, "learning_rate": 5e-3, "rank": 99, "energy": 1.0}


def tiny() -> LlamaForCausalLM:
    return scratch_llama(
        vocab_size=40, layers=2, hidden=16, heads=4, kv_heads=2, intermediate=24, tie_embeddings=True, seed=0
    )


def test_at_full_rank_the_factors_are_exactly_what_training_changed():
    """The same training done in place: W_0 + left @ right is the trained weight, and nothing else moved."""
    model, trained = tiny(), tiny()
    modules = module_choice(model, ("down_proj", "q_proj"))
    found = TaskMatrices(**SETTINGS, modules=("down_proj", "q_proj")).trained(model, ROWS, pad_id=0, seed=0)
    finetune(
        trained,
        shuffled_batches(ROWS, batch_size=3, pad_id=0, seed=0),
        answer_loss,
        epochs=3,
        learning_rate=5e-3,
        parameters={f"{module}.weight" for module in modules}.__contains__,
        weight_of=scored_tokens,
        seed=0,
    )
    assert list(found) == modules
    for name, value in tiny().state_dict().items():
        assert torch.equal(model.state_dict()[name], value)
        module = name.removesuffix(".weight")
        if module not in modules:
            assert torch.equal(trained.state_dict()[name], value)
            continue
        matrix, change = found[module], trained.state_dict()[name] - value
        torch.testing.assert_close(matrix.left @ matrix.right, change, rtol=1e-4, atol=1e-6)
        assert matrix.frobenius_norm == pytest.approx(float(torch.linalg.norm(change)), rel=1e-5)


def test_adapters_give_factors_of_their_rank():
    model = tiny()
    found = TaskMatrices(**SETTINGS, lora=Lora(rank=2)).trained(model, ROWS, pad_id=0, seed=0)
    assert list(found) == linear_module_names(model)
    assert {matrix.rank for matrix in found.values()} == {2}
    assert all(matrix.frobenius_norm > 0 for matrix in found.values())


def test_layer_by_layer_is_one_training_after_the_other(tmp_path):
    """The same done in place, layer 0 first; a second run finds every layer's training finished."""
    settings = TaskMatrices(**SETTINGS, modules=("down_proj",), layerwise=True)
    found = settings.trained(tiny(), ROWS, pad_id=0, seed=0, checkpoint_folder=tmp_path)
    trained = tiny()
    for layer in (0, 1):
        finetune(
            trained, shuffled_batches(ROWS, batch_size=3, pad_id=0, seed=0), answer_loss, epochs=3, learning_rate=5e-3,
            parameters=f"model.layers.{layer}.mlp.down_proj.weight".__eq__, weight_of=scored_tokens, seed=0,
        )  # fmt: skip
    for name, matrix in found.items():
        change = trained.get_parameter(f"{name}.weight") - tiny().get_parameter(f"{name}.weight")
        torch.testing.assert_close(matrix.left @ matrix.right, change.detach(), rtol=1e-4, atol=1e-6)
    again = settings.trained(tiny(), ROWS, pad_id=0, seed=0, checkpoint_folder=tmp_path)
    assert all(torch.equal(again[name].left, matrix.left) for name, matrix in found.items())
    with pytest.raises(ValueError, match="layerwise trains weights"):
        TaskMatrices(layerwise=True, lora=Lora(rank=2))


def test_truncation_keeps_the_fewest_directions_that_hold_the_energy():
    """σ = 4, 2, 1: σ² shares 16/21, 20/21, 1; 0.9 needs two, 0.7 one; the cap wins; the norm stays √21."""
    u, v = (torch.linalg.qr(torch.randn(n, 3, generator=torch.Generator().manual_seed(n)))[0] for n in (7, 5))
    change = u @ torch.diag(torch.tensor([4.0, 2.0, 1.0])) @ v.mT
    for energy, rank, expected in ((0.9, 9, 2), (0.7, 9, 1), (1.0, 9, 3), (1.0, 2, 2)):
        dense = task_matrix(change, rank=rank, energy=energy)
        factored = task_matrix(
            (u @ torch.diag(torch.tensor([4.0, 2.0, 1.0])), v.mT.contiguous()), rank=rank, energy=energy
        )
        for matrix in (dense, factored):
            assert matrix.rank == expected
            assert matrix.frobenius_norm == pytest.approx(21**0.5, rel=1e-5)
            torch.testing.assert_close(matrix.right @ matrix.right.mT, torch.eye(expected))
            torch.testing.assert_close(matrix.left.norm(dim=0), torch.tensor([4.0, 2.0, 1.0])[:expected])
        torch.testing.assert_close(dense.left @ dense.right, factored.left @ factored.right)


def test_a_module_that_did_not_change_has_rank_zero():
    matrix = task_matrix(torch.zeros(4, 3), rank=2, energy=0.9)
    assert (matrix.rank, matrix.frobenius_norm) == (0, 0.0)
    assert torch.equal(matrix.left @ matrix.right, torch.zeros(4, 3))


def test_layer_shares_are_of_the_layers_whole_change():
    """Layer 0: √(3² + 4²) = 5; layer 1: 15; shares 1/4 and 3/4. All zero: equal shares."""
    norms = {"model.layers.0.a": 3.0, "model.layers.0.b": 4.0, "model.layers.1.a": 15.0}
    assert layer_shares(norms) == {0: 0.25, 1: 0.75}
    assert layer_shares(dict.fromkeys(norms, 0.0)) == {0: 0.5, 1: 0.5}
    with pytest.raises(ValueError, match="lm_head: not inside a block"):
        layer_shares({"lm_head": 1.0})


def test_unknown_modules_are_refused():
    with pytest.raises(ValueError, match=r"no module named \['c_attn'\]; this model has \['down_proj', 'gate_proj'"):
        TaskMatrices(modules=("c_attn",)).trained(tiny(), ROWS, pad_id=0, seed=0)
