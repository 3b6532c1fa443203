"""Gradient norms against `backward()` and against a finite difference along the gradient."""

import pytest
import torch

from efface.difficulty.gradient_norm import gradient_norms
from efface.models import scratch_llama
from efface.tokenization import Encoding

ENCODINGS = [Encoding((1, 5, 6, 7, 8, 9), 3), Encoding((1, 9, 2), 2)]


@pytest.fixture
def model():
    return scratch_llama(
        vocab_size=20, layers=2, hidden=32, heads=4, kv_heads=2, intermediate=48, tie_embeddings=True, seed=0
    )


def test_is_the_norm_that_backward_gives(model):
    ours = gradient_norms(model, ENCODINGS, pad_id=0)
    assert all(parameter.grad is None for parameter in model.parameters())
    for norm, encoding in zip(ours, ENCODINGS, strict=True):
        labels = torch.tensor([[-100] * encoding.prompt_length + list(encoding.answer_ids)])
        model.zero_grad()
        model(input_ids=torch.tensor([encoding.input_ids]), labels=labels).loss.backward()
        expected = torch.stack([parameter.grad.norm() for parameter in model.parameters()]).norm()
        assert norm.item() == pytest.approx(expected.item(), rel=1e-5)


def test_a_certain_answer_has_no_gradient(model):
    """Unembedding rows scaled up until the last token is certain: the loss is flat there."""
    with torch.no_grad():
        winner = model(torch.tensor([[1, 9]])).logits[0, -1].argmax().item()
        model.lm_head.weight.mul_(1e4)
    assert gradient_norms(model, [Encoding((1, 9, winner), 2)], pad_id=0).item() == pytest.approx(0, abs=1e-6)
