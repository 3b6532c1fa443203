"""The mean over answers, not over tokens."""

import pytest
import torch

from efface.evaluation.mean_probability import mean_answer_probability
from efface.models import scratch_llama
from efface.tokenization import Encoding


def test_mean_is_over_answers_of_their_geometric_mean_probability():
    model = scratch_llama(
        vocab_size=40, layers=1, hidden=16, heads=2, kv_heads=1, intermediate=24, tie_embeddings=True, seed=0
    ).eval()
    rows = [Encoding((1, 5, 6, 7), 2), Encoding((1, 8, 9, 10, 11, 12), 1)]
    expected = []
    for row in rows:
        log_probs = model(torch.tensor([row.input_ids])).logits[0].detach().log_softmax(-1)
        own = [log_probs[place - 1, row.input_ids[place]] for place in range(row.prompt_length, len(row.input_ids))]
        expected.append(float(torch.stack(own).mean().exp()))
    assert mean_answer_probability(model, rows, batch_size=2, pad_id=0) == pytest.approx(sum(expected) / 2, rel=1e-5)
