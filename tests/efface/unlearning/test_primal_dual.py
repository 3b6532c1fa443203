"""PDU's loss is the oracle's; its multiplier moves as by hand: past the warm-up, after the loss, never below 0."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from efface.models import load_model, scratch_llama
from efface.tokenization import Batch, Encoding
from efface.training.loop import answer_loss
from efface.unlearning.methods import Pdu
from efface.unlearning.pairing import Pair, Start, frozen_copy, paired_batches

FORGET = [Encoding((1, 2, 10 + i, 20 + i, 3), 2) for i in range(4)]
RETAIN = [Encoding((1, 4, 15 + i, 25 + i, 3), 3) for i in range(4)]


@pytest.fixture(scope="module")
def model():
    return scratch_llama(
        vocab_size=40, layers=1, hidden=16, heads=2, kv_heads=1, intermediate=16, tie_embeddings=True, seed=0
    )


def start_at(multiplier: float) -> Start:
    def never():
        raise AssertionError("PDU with a plain retain loss does not run its start model")

    return Start(0, None, never, torch.tensor(multiplier, dtype=torch.float64))


@pytest.mark.parametrize("name", ["PDU", "PDU__alpha100_step5_nowarmup"])
@pytest.mark.parametrize("model_name", ["full", "unlearned_early"])
def test_loss_gradient_and_multiplier_are_the_oracles(shared_folder: Path, name, model_name):
    folder = shared_folder / "oracles/unlearning_metrics"
    oracle = json.loads((folder / "expected.json").read_text())["losses"]
    given, expected = oracle["methods"][name]["method_args"], oracle["pairs"][f"model={model_name},ref=full"][name]
    batches = {
        side: Batch(**{key: torch.tensor(value) for key, value in oracle["batch"][side].items()})
        for side in ("forget", "retain")
    }
    method = Pdu(
        epsilon=given["retain_loss_eps"], dual_step=given["dual_step_size"], alpha=given["alpha"],
        dual_warmup_epochs=given["dual_warmup_epochs"], published_shift=True,
    )  # fmt: skip
    model, start = load_model(folder / "models" / model_name), start_at(method.alpha)
    loss = method.loss(model, Pair(0, tuple(range(len(batches["forget"].labels))), **batches), start)
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    assert loss.item() == pytest.approx(expected["loss"], rel=3e-5)
    norm = sum(float(gradient.double().square().sum()) for gradient in gradients) ** 0.5
    assert norm == pytest.approx(expected["grad_norm"], rel=1e-4)
    assert float(start.multiplier) == pytest.approx(expected["retain_preference_after_step"], rel=1e-6)


def test_multiplier_moves_after_the_warm_up_only_and_by_the_excess(model):
    """λ₀ = 2, step 0.5, warm-up 1: epoch 0 leaves it; each batch after adds 0.5 (L_r − ε), L_r its retain loss."""
    method, start = Pdu(alpha=2.0, epsilon=1.0, dual_step=0.5, dual_warmup_epochs=1), start_at(2.0)
    batches = paired_batches(FORGET, RETAIN, batch_size=2, pad_id=0, seed=0)
    expected = 2.0
    for epoch in range(3):
        for pair in batches(epoch):
            assert pair.retain is not None
            excess = float(answer_loss(model, pair.retain).detach()) - 1.0
            assert excess > 1
            method.loss(model, pair, start)
            expected += 0.5 * excess if epoch else 0.0
            assert float(start.multiplier) == pytest.approx(expected, rel=1e-6)
    assert expected > 2


def test_multiplier_stops_at_zero_and_a_step_of_zero_keeps_it(model):
    """ε far above any loss: λ falls to 0 and stays there; the loss then is γ times the forget loss."""
    [pair] = paired_batches(FORGET, RETAIN, batch_size=4, pad_id=0, seed=0)(0)
    method, start = Pdu(alpha=1.0, epsilon=100.0, dual_warmup_epochs=0, gamma=0.5), start_at(1.0)
    method.loss(model, pair, start)
    assert float(start.multiplier) == 0
    torch.testing.assert_close(
        method.loss(model, pair, start), replace(method, epsilon=0.0).loss(model, pair, start_at(0.0))
    )
    kept = start_at(1.0)
    replace(method, dual_step=0.0).loss(model, pair, kept)
    assert float(kept.multiplier) == 1


def test_the_loss_is_taken_before_the_multiplier_moves(model):
    [pair] = paired_batches(FORGET, RETAIN, batch_size=4, pad_id=0, seed=0)(0)
    waiting, moving = Pdu(alpha=3.0), Pdu(alpha=3.0, dual_warmup_epochs=0)
    torch.testing.assert_close(waiting.loss(model, pair, start_at(3.0)), moving.loss(model, pair, start_at(3.0)))


def test_a_kl_constraint_is_zero_at_the_start(model):
    [pair] = paired_batches(FORGET, RETAIN, batch_size=4, pad_id=0, seed=0)(0)
    start = replace(start_at(4.0), frozen=frozen_copy(model))
    method = Pdu(retain_loss="kl", alpha=4.0, epsilon=0.25, dual_step=2.0, dual_warmup_epochs=0)
    method.loss(model, pair, start)
    assert float(start.multiplier) == pytest.approx(4 - 2 * 0.25)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epsilon": -0.1}, "pdu: epsilon is -0.1; expected 0 or more"),
        ({"dual_step": -1.0}, "pdu: dual_step is -1.0; expected 0 or more"),
        ({"dual_warmup_epochs": -1}, "pdu: dual_warmup_epochs is -1; expected 0 or more"),
    ],
)
def test_values_out_of_range_are_refused(wrong, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Pdu(**wrong)
