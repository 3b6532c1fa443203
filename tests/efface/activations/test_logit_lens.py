"""Direct logit effects and the band they choose."""

import pytest
import torch

from efface.activations.capture import activation_batches, captured_outputs
from efface.activations.logit_lens import band_scores, best_band, direct_logit_effects
from efface.models import anatomy, scratch_llama
from efface.tokenization import Encoding


def test_effect_is_the_change_in_an_unnormalised_logit_when_the_output_is_removed():
    model = scratch_llama(
        vocab_size=20, layers=2, hidden=16, heads=2, kv_heads=1, intermediate=24, tie_embeddings=False, seed=0
    )
    parts, row = anatomy(model), Encoding((1, 2, 3, 4), 3)
    modules = {"last": parts.layers[-1].down_projection}
    batch = next(activation_batches(model, [row], modules=modules, batch_size=1, pad_id=0))
    unembedding = parts.unembedding.weight.detach()
    effect = direct_logit_effects(batch.outputs["last"], batch.columns.tokens, unembedding)
    with torch.no_grad(), captured_outputs({"block": parts.layers[-1].block, **modules}) as seen:
        model(torch.tensor([row.input_ids]))
    stream, output = seen["block"][0, 2], seen["last"][0, 2]
    torch.testing.assert_close(effect[0], unembedding[4] @ stream - unembedding[4] @ (stream - output))


def test_scores_weigh_forget_tokens_and_subtract_the_retain_mean():
    """Layer 0: (1·2 + 0·4)/1 − 1 = 1; layer 1: (1·6 + 0·0)/1 − 2 = 4; with weights 1 and 1/2: 8/3 − 1 and 4 − 2."""
    scores = band_scores(torch.tensor([[2.0, 4.0], [6.0, 0.0]]), torch.tensor([1.0, 0.0]), torch.tensor([[1.0], [2.0]]))
    assert scores.tolist() == [1.0, 4.0]
    scores = band_scores(torch.tensor([[2.0, 4.0], [6.0, 0.0]]), torch.tensor([1.0, 0.5]), torch.tensor([[1.0], [2.0]]))
    torch.testing.assert_close(scores, torch.tensor([5 / 3, 2.0]).double())
    with pytest.raises(ValueError, match="α is 0 in all 2 forget columns"):
        band_scores(torch.ones(3, 2), torch.zeros(2), torch.ones(3, 2))
    with pytest.raises(ValueError, match="2 forget and 0 retain columns"):
        band_scores(torch.ones(3, 2), torch.ones(2), torch.ones(3, 0))


def test_band_is_contiguous_with_the_highest_mean():
    assert best_band([5.0, -9.0, 3.0, 3.0, 1.0], width=1) == (0,)
    assert best_band([5.0, -9.0, 3.0, 3.0, 1.0], width=2) == (2, 3)
    assert best_band([1.0, 1.0, 1.0], width=2) == (0, 1)
    for width in (0, 4):
        with pytest.raises(ValueError, match=f"band width {width}: expected 1 to 3"):
            best_band([1.0, 1.0, 1.0], width=width)
