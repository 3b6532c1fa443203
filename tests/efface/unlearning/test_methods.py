"""One step of every method makes the forget answers less likely, and each loss is the sum that its docstring says."""

import re
from dataclasses import replace

import pytest
import torch
from transformers import LlamaForCausalLM

from efface.models import scratch_llama
from efface.tokenization import Encoding
from efface.training.loop import answer_logits, answer_loss, finetune, shuffled_batches
from efface.training.losses import kl_loss, nll_loss, sequence_log_probs
from efface.unlearning.divergence import VARIATIONAL
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
    Unlearning,
    Wga,
)
from efface.unlearning.misdirection import block_outputs
from efface.unlearning.objective import retain_loss
from efface.unlearning.pairing import Start, answer_log_probs, frozen_copy, paired_batches

FORGET = [Encoding((1, 2, 10 + i, 20 + i, 30 + i, 3), 2) for i in range(4)]
RETAIN = [Encoding((1, 4, 15 + i, 25 + i, 3), 3) for i in range(4)]
ALTERNATIVES = [[Encoding((1, 2, 5, 6 + k, 3), 2) for k in range(2)] for _ in range(4)]
METHODS: list[Unlearning] = [
    GradAscent(),
    GradDiff(),
    Npo(),
    SimNpo(),
    Undial(),
    Undial(published_mask=True),
    Wga(),
    SatImp(),
    CeU(),
    IdkDpo(),
    AltPo(),
    *(Flat(divergence=divergence) for divergence in VARIATIONAL),
    Flat(published_mean=True),
    Pdu(),
    Pdu(published_shift=True),
]


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    """A model that has half learned its rows: grouped queries, tied embeddings."""
    model = scratch_llama(
        vocab_size=40, layers=2, hidden=32, heads=4, kv_heads=2, intermediate=48, tie_embeddings=True, seed=2
    )
    batches = shuffled_batches(FORGET + RETAIN, batch_size=8, pad_id=0, seed=0)
    finetune(model, batches, answer_loss, epochs=12, learning_rate=1e-2, seed=0)
    return model


def start_of(model: LlamaForCausalLM) -> Start:
    return Start(0, answer_log_probs(model, FORGET, batch_size=4, pad_id=0), frozen_copy(model), torch.tensor(0.0))


@pytest.mark.parametrize("method", METHODS, ids=lambda method: f"{method.method}")
def test_one_small_step_of_every_method_makes_the_forget_answers_less_likely(model, method):
    """A step against the forget loss's gradient (α = 0), of length 1e-3: log p(answers) falls, so no sign is wrong."""
    [pair] = paired_batches(FORGET, RETAIN, batch_size=4, pad_id=0, seed=0, alternatives=ALTERNATIVES)(0)
    names = dict(model.named_parameters())
    if hasattr(method, "alpha"):
        method = replace(method, alpha=0.0)
    loss = method.loss(model, pair, start_of(model))
    gradients = torch.autograd.grad(loss, list(names.values()))
    before = answer_log_probs(model, FORGET, batch_size=4, pad_id=0).sum()
    scale = 1e-3 / sum(float(gradient.square().sum()) for gradient in gradients) ** 0.5
    try:
        with torch.no_grad():
            for parameter, gradient in zip(names.values(), gradients, strict=True):
                parameter.sub_(scale * gradient)
        after = answer_log_probs(model, FORGET, batch_size=4, pad_id=0).sum()
        assert after < before
        assert method.loss(model, pair, start_of(model)).isfinite()
    finally:
        with torch.no_grad():
            for parameter, gradient in zip(names.values(), gradients, strict=True):
                parameter.add_(scale * gradient)


def test_a_step_of_rmu_moves_the_activations_towards_its_control_vector(model):
    [pair] = paired_batches(FORGET, RETAIN, batch_size=4, pad_id=0, seed=0)(0)
    method, start = Rmu(layer=0), start_of(model)
    loss = method.loss(model, pair, start)
    names = ["model.layers.0.mlp.down_proj.weight", "model.layers.1.mlp.down_proj.weight"]
    first, second = torch.autograd.grad(loss, [model.get_parameter(name) for name in names], allow_unused=True)
    assert first.abs().max() > 0
    assert second is None
    assert method.loss(model, pair, start) == loss
    assert method.loss(model, pair, Start(1, None, start.frozen)) != loss
    with pytest.raises(ValueError, match="layer 7: this model has layers 0 to 1"):
        Rmu().loss(model, pair, start)


def test_block_outputs_are_the_residual_stream_before_the_final_norm(model):
    [pair] = paired_batches(FORGET, RETAIN, batch_size=4, pad_id=0, seed=0)(0)
    hidden = block_outputs(model, pair.forget, 1)
    expected = answer_logits(model, pair.forget)
    torch.testing.assert_close(model.lm_head(model.model.norm(hidden)), expected)


def test_at_the_start_npo_is_its_constant_and_kl_is_zero(model):
    """ℓ = ℓ^ref: −(2/β) log σ(0) = (2/0.1) log 2 = 13.863; KL of a model from itself is 0."""
    [pair] = paired_batches(FORGET, RETAIN, batch_size=4, pad_id=0, seed=0)(0)
    loss = Npo(retain_loss="kl").loss(model, pair, start_of(model))
    assert loss.item() == pytest.approx(13.862944, rel=1e-5)


def test_retain_losses_are_the_reference_implementations_three_kinds(model):
    [pair] = paired_batches(FORGET, RETAIN, batch_size=4, pad_id=0, seed=0)(0)
    assert pair.retain is not None
    other = scratch_llama(
        vocab_size=40, layers=2, hidden=32, heads=4, kv_heads=2, intermediate=48, tie_embeddings=True, seed=5
    )
    start = Start(0, None, frozen_copy(other))
    logits, reference = answer_logits(model, pair.retain), answer_logits(other, pair.retain)
    expected = {
        "nll": nll_loss(logits, pair.retain.labels),
        "kl": kl_loss(logits, reference, pair.retain.attention_mask),
        "kl_published": kl_loss(logits, reference),
    }
    for kind, value in expected.items():
        torch.testing.assert_close(retain_loss(kind, model, pair, start), value)


def test_each_loss_is_gamma_forget_plus_alpha_retain(model):
    """GradDiff with γ = 2, α = 3: −2 NLL(forget) + 3 NLL(retain)."""
    [pair] = paired_batches(FORGET, RETAIN, batch_size=4, pad_id=0, seed=0)(0)
    assert pair.retain is not None
    expected = -2 * answer_loss(model, pair.forget) + 3 * answer_loss(model, pair.retain)
    torch.testing.assert_close(GradDiff(gamma=2.0, alpha=3.0).loss(model, pair, start_of(model)), expected)
    log_probs = sequence_log_probs(answer_logits(model, pair.forget), pair.forget.labels)
    assert torch.allclose(log_probs, answer_log_probs(model, FORGET, batch_size=2, pad_id=0)[list(pair.places)])


@pytest.mark.parametrize(
    ("method", "wrong", "message"),
    [
        (Npo, {"beta": 0.0}, "npo: beta is 0.0; expected more than 0"),
        (GradDiff, {"epochs": 0}, "grad_diff: epochs is 0"),
        (SimNpo, {"alpha": -1.0}, "sim_npo: alpha is -1.0; expected 0 or more"),
        (Rmu, {"layer": -1}, "rmu: layer is -1"),
    ],
)
def test_values_out_of_range_are_refused(method, wrong, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        method(**wrong)
