"""Preference for another answer: the oracle's loss and gradient, and what it is where both answers are equal."""

import json
import re
from pathlib import Path

import pytest
import torch

from efface.models import load_model, scratch_llama
from efface.tokenization import Batch, Encoding
from efface.unlearning.methods import AltPo, IdkDpo
from efface.unlearning.pairing import Pair, Start, answer_log_probs, frozen_copy, paired_batches

FORGET = [Encoding((1, 2, 10 + i, 20 + i, 30 + i, 3), 2) for i in range(4)]
RETAIN = [Encoding((1, 4, 15 + i, 25 + i, 3), 3) for i in range(4)]


def scratch(seed: int):
    return scratch_llama(
        vocab_size=40, layers=1, hidden=16, heads=2, kv_heads=1, intermediate=16, tie_embeddings=True, seed=seed
    )


@pytest.mark.parametrize("name", ["DPO", "DPO__beta0.5_alpha2"])
@pytest.mark.parametrize(("model_name", "reference"), [("full", "full"), ("unlearned_early", "full")])
@pytest.mark.parametrize("method", [IdkDpo, AltPo])
def test_loss_and_gradient_are_the_oracles(shared_folder: Path, name, model_name, reference, method):
    folder = shared_folder / "oracles/unlearning_metrics"
    oracle = json.loads((folder / "expected.json").read_text())["losses"]
    given, expected = (
        oracle["methods"][name]["method_args"],
        oracle["pairs"][f"model={model_name},ref={reference}"][name],
    )
    forget, retain, alternative = (
        Batch(**{key: torch.tensor(value) for key, value in oracle["batch"][side].items()})
        for side in ("forget", "retain", "forget_alternate")
    )
    model, before = load_model(folder / "models" / model_name), load_model(folder / "models" / reference)
    start = Start(0, None, frozen_copy(before))
    start = Start(0, start.answer_log_probs(forget), start.frozen)
    pair = Pair(0, tuple(range(len(forget.labels))), forget, retain, alternative)
    loss = method(beta=given["beta"], alpha=given["alpha"], gamma=given["gamma"]).loss(model, pair, start)
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    assert loss.item() == pytest.approx(expected["loss"], rel=3e-5)
    norm = sum(float(gradient.double().square().sum()) for gradient in gradients) ** 0.5
    assert norm == pytest.approx(expected["grad_norm"], rel=1e-4)


@pytest.mark.parametrize("method", [IdkDpo(alpha=0.0, beta=0.5), AltPo(alpha=0.0, beta=0.5)])
@pytest.mark.parametrize("started_at", [0, 1])
def test_with_equal_answers_or_an_unchanged_model_it_is_a_constant(method, started_at):
    """−(2/β) log ½ = 4 log 2: the margin is zero where the answers are equal, and at the start whatever they are."""
    model, before = scratch(0), scratch(started_at)
    start = Start(0, answer_log_probs(before, FORGET, batch_size=4, pad_id=0), frozen_copy(before))
    others = FORGET if started_at else [Encoding((*row.input_ids[:2], 7, 8, 3), 2) for row in FORGET]
    batches = paired_batches(
        FORGET, RETAIN, batch_size=4, pad_id=0, seed=0, alternatives=[(other,) for other in others]
    )
    assert method.loss(model, batches(0)[0], start).item() == pytest.approx(2.7725887, rel=1e-5)


@pytest.mark.parametrize(
    ("method", "wrong", "message"),
    [
        (IdkDpo, {"beta": -0.1}, "idk_dpo: beta is -0.1; expected more than 0"),
        (IdkDpo, {"refusals": ("",)}, "idk_dpo: refusals is ('',); expected lines with text"),
        (AltPo, {"alternatives": 0}, "alt_po: alternatives is 0; expected more than 0"),
        (AltPo, {"temperature": 0.0}, "alt_po: temperature is 0.0; expected more than 0"),
        (AltPo, {"max_new_tokens": 0}, "alt_po: max_new_tokens is 0; expected more than 0"),
    ],
)
def test_values_out_of_range_are_refused(method, wrong, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        method(**wrong)
