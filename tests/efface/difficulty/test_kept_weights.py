"""Weights come back bit for bit, after an error too, and tied ones stay tied."""

import pytest
import torch

from efface.difficulty.kept_weights import kept_weights
from efface.models import scratch_llama


@pytest.mark.parametrize("tied", [False, True])
def test_the_same_bits_even_after_an_error(tied):
    model = scratch_llama(
        vocab_size=20, layers=1, hidden=16, heads=2, kv_heads=1, intermediate=24, tie_embeddings=tied, seed=0
    )
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(RuntimeError), kept_weights(model):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.1)
        assert not torch.equal(before["model.norm.weight"], model.state_dict()["model.norm.weight"])
        raise RuntimeError
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert (model.lm_head.weight is model.model.embed_tokens.weight) == tied
