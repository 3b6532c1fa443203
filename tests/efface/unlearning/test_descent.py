"""A run returns the change alone: its model is as before, base and change are the unlearned model, and runs resume."""

import pytest
import torch
from transformers import LlamaForCausalLM

from efface.editing.delta import LowRank, apply_delta
from efface.models import linear_module_names, scratch_llama
from efface.tokenization import Encoding
from efface.training.loop import answer_loss, finetune, shuffled_batches
from efface.training.lora import Lora
from efface.unlearning import descent
from efface.unlearning.descent import unlearned_delta, unlearning_run
from efface.unlearning.methods import (
    AltPo,
    CeU,
    Flat,
    GradAscent,
    GradDiff,
    IdkDpo,
    Npo,
    Pdu,
    Rmu,
    SatImp,
    SimNpo,
    Undial,
    Wga,
)
from efface.unlearning.pairing import answer_log_probs

FORGET = [Encoding((1, 2, 10 + i, 20 + i, 30 + i, 3), 3) for i in range(5)]
RETAIN = [Encoding((1, 4, 15 + i, 25 + i, 33 + i, 3), 3) for i in range(6)]
ALTERNATIVES = [[Encoding((1, 2, 10 + i, 5, 6 + k, 3), 3) for k in range(3)] for i in range(5)]
FAST = {"learning_rate": 5e-3, "epochs": 4, "batch_size": 3, "gradient_accumulation": 1}


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    """Knows its rows by heart; grouped queries, tied embeddings."""
    model = scratch_llama(
        vocab_size=40, layers=2, hidden=32, heads=4, kv_heads=2, intermediate=48, tie_embeddings=True, seed=2
    )
    batches = shuffled_batches(FORGET + RETAIN, batch_size=11, pad_id=0, seed=0)
    finetune(model, batches, answer_loss, epochs=60, learning_rate=1e-2, seed=0)
    assert probability(model, FORGET) > 0.9
    return model


def probability(model: LlamaForCausalLM, rows: list[Encoding]) -> float:
    counts = torch.tensor([len(row.answer_ids) for row in rows])
    return float((answer_log_probs(model, rows, batch_size=8, pad_id=0) / counts).exp().mean())


def copy_with(model: LlamaForCausalLM, delta) -> LlamaForCausalLM:
    copy = scratch_llama(
        vocab_size=40, layers=2, hidden=32, heads=4, kv_heads=2, intermediate=48, tie_embeddings=True, seed=0
    )
    copy.load_state_dict(model.state_dict())
    apply_delta(copy, delta)
    return copy


@pytest.mark.parametrize(
    "method",
    [
        GradAscent(**FAST),
        GradDiff(**FAST),
        GradDiff(**FAST, retain_loss="kl"),
        Npo(**FAST),
        SimNpo(**FAST | {"epochs": 8, "learning_rate": 1e-2}, gamma=1.0),
        Undial(**FAST),
        Wga(**FAST),
        SatImp(**FAST, gamma=5.0),
        CeU(**FAST),
        Rmu(**FAST, layer=0, steering=20.0),
        Npo(**FAST | {"learning_rate": 2e-2}, lora=Lora(rank=4), retain_loss="kl"),
        GradDiff(**FAST, dtype="bfloat16"),
        IdkDpo(**FAST),
        AltPo(**FAST | {"learning_rate": 2e-2}, lora=Lora(rank=4)),
        Flat(**FAST),
        Flat(**FAST, divergence="kl", dtype="bfloat16"),
        Pdu(**FAST, alpha=1.0, dual_warmup_epochs=1),
    ],
    ids=lambda method: f"{method.method}",
)
def test_every_method_forgets_and_leaves_its_model_unchanged(model, method):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    known = probability(model, FORGET)
    delta = unlearned_delta(method, model, FORGET, RETAIN, pad_id=0, seed=0, alternatives=ALTERNATIVES)
    assert list(model.state_dict()) == list(before)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())
    forgot = copy_with(model, delta)
    assert probability(forgot, FORGET) < 0.8 * known
    if method.method in ("grad_diff", "npo", "sim_npo", "idk_dpo", "alt_po"):
        assert probability(forgot, RETAIN) > probability(forgot, FORGET) + 0.2


def test_a_run_is_the_same_for_the_same_seed_and_another_for_another(model):
    first, again, other = (
        unlearned_delta(GradDiff(**FAST), model, FORGET, RETAIN, pad_id=0, seed=seed) for seed in (0, 0, 1)
    )
    assert first.keys() == again.keys() == {name for name, _ in model.named_parameters()}
    assert all(torch.equal(change, again[name]) for name, change in first.items())
    assert any(not torch.equal(change, other[name]) for name, change in first.items())


@pytest.mark.parametrize("lora", [None, Lora(rank=2)])
def test_only_the_given_layers_change(model, lora):
    method = GradAscent(**FAST, localised=True, lora=lora)
    delta = unlearned_delta(method, model, FORGET, [], pad_id=0, seed=0, layers={1})
    if lora:
        assert set(delta) == {f"{name}.weight" for name in linear_module_names(model, [1])}
        assert all(isinstance(change, LowRank) and change.left.shape[1] == 2 for change in delta.values())
    else:
        assert set(delta) == {name for name, _ in model.named_parameters() if name.startswith("model.layers.1.")}
    assert all(torch.any(getattr(change, "left", change) != 0) for change in delta.values())


def test_npo_resumes_with_the_log_probabilities_of_its_start(model, tmp_path, monkeypatch):
    """Killed in its third epoch: the reference is the start model, not the half-unlearned one."""
    expected, curve = unlearning_run(Npo(**FAST), model, FORGET, RETAIN, pad_id=0, seed=0)
    with monkeypatch.context() as patched:
        patched.setattr(descent, "finetune", killed_in_third_epoch)
        with pytest.raises(KeyboardInterrupt):
            unlearned_delta(Npo(**FAST), model, FORGET, RETAIN, pad_id=0, seed=0, checkpoint_folder=tmp_path)
    resumed, again = unlearning_run(Npo(**FAST), model, FORGET, RETAIN, pad_id=0, seed=0, checkpoint_folder=tmp_path)
    assert again == curve
    assert all(torch.equal(change, resumed[name]) for name, change in expected.items())


@pytest.mark.parametrize(
    "method", [IdkDpo(**FAST), AltPo(**FAST), Flat(**FAST), Pdu(**FAST, alpha=1.0, dual_warmup_epochs=1)]
)
def test_runs_resume_with_the_same_alternatives_and_multiplier(model, tmp_path, monkeypatch, method):
    settings = {"pad_id": 0, "seed": 0, "alternatives": ALTERNATIVES}
    expected, curve = unlearning_run(method, model, FORGET, RETAIN, **settings)
    with monkeypatch.context() as patched:
        patched.setattr(descent, "finetune", killed_in_third_epoch)
        with pytest.raises(KeyboardInterrupt):
            unlearned_delta(method, model, FORGET, RETAIN, **settings, checkpoint_folder=tmp_path)
    resumed, again = unlearning_run(method, model, FORGET, RETAIN, **settings, checkpoint_folder=tmp_path)
    assert again == curve
    assert all(torch.equal(change, resumed[name]) for name, change in expected.items())


def test_the_multiplier_matters(model):
    """With a bound that is kept, λ falls to 0 and the retain examples are lost; with one that is not, they are kept."""
    loose, tight = (
        unlearned_delta(
            Pdu(**FAST, alpha=0.0, epsilon=e, dual_warmup_epochs=0), model, FORGET, RETAIN, pad_id=0, seed=0
        )
        for e in (50.0, 0.0)
    )
    assert probability(copy_with(model, tight), RETAIN) > probability(copy_with(model, loose), RETAIN) + 0.2


def test_methods_without_a_retain_loss_need_no_retain_examples(model):
    delta = unlearned_delta(Flat(**FAST), model, FORGET, [], pad_id=0, seed=0, alternatives=ALTERNATIVES)
    assert probability(copy_with(model, delta), FORGET) < 0.8 * probability(model, FORGET)


def test_what_cannot_be_done_is_refused(model):
    with pytest.raises(ValueError, match="grad_diff: the forget set is empty"):
        unlearned_delta(GradDiff(), model, [], RETAIN, pad_id=0, seed=0)
    with pytest.raises(ValueError, match="npo: the retain set is empty; it needs one, or use grad_ascent"):
        unlearned_delta(Npo(), model, FORGET, [], pad_id=0, seed=0)
    with pytest.raises(ValueError, match="pdu: the retain set is empty"):
        unlearned_delta(Pdu(), model, FORGET, [], pad_id=0, seed=0)
    for wrong, count in ((None, 0), ([], 0), (ALTERNATIVES[:4], 4), ([*ALTERNATIVES[:4], []], 4)):
        message = f"flat: {count} of 5 forget examples have other answers; it needs at least one for each"
        with pytest.raises(ValueError, match=message):
            unlearned_delta(Flat(), model, FORGET, RETAIN, pad_id=0, seed=0, alternatives=wrong)
    with pytest.raises(ValueError, match="idk_dpo: 0 of 5 forget examples"):
        unlearned_delta(IdkDpo(), model, FORGET, RETAIN, pad_id=0, seed=0)
    with pytest.raises(ValueError, match="sim_npo: localised without layers"):
        unlearned_delta(SimNpo(localised=True), model, FORGET, RETAIN, pad_id=0, seed=0)


def killed_in_third_epoch(model, batches_of_epoch, loss_fn, **settings):
    """The loop, interrupted when it asks for the batches of its third epoch."""

    def batches(epoch: int):
        if epoch == 2:
            raise KeyboardInterrupt
        return batches_of_epoch(epoch)

    return finetune(model, batches, loss_fn, **settings)


def test_examples_come_by_difficulty(model, monkeypatch):
    met = []
    monkeypatch.setattr(
        GradDiff, "loss", lambda _self, model, pair, _start: met.append(pair.places) or answer_loss(model, pair.forget)
    )
    for order in ("easy_first", "hard_first"):
        method = GradDiff(learning_rate=1e-4, epochs=1, batch_size=2, gradient_accumulation=1, order=order)
        unlearned_delta(method, model, FORGET, RETAIN, pad_id=0, seed=0, difficulty=[0.5, 0.9, 0.1, 0.5, 0.7])
    assert met == [(2, 0), (3, 4), (1,), (1, 4), (0, 3), (2,)]
    with pytest.raises(
        ValueError, match="order 'easy_first' with difficulties of none examples; expected one for each"
    ):
        unlearned_delta(GradDiff(order="easy_first"), model, FORGET, RETAIN, pad_id=0, seed=0)
