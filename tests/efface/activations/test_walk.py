"""A model walked block by block computes what it computes in one go."""

import pytest
import torch

from efface.activations.capture import activation_batches, column_count
from efface.activations.walk import walk_to
from efface.models import anatomy, scratch_llama
from efface.tokenization import Encoding

ROWS = (Encoding((1, 2, 3, 4, 5), 2), Encoding((6, 7, 8, 9, 10, 11, 12), 4), Encoding((1, 3, 5), 2))


@pytest.fixture(scope="module")
def model():
    return scratch_llama(
        vocab_size=20, layers=3, hidden=16, heads=2, kv_heads=1, intermediate=24, tie_embeddings=True, seed=0
    )


@pytest.mark.parametrize("start", [0, 1, 2])
def test_walked_inputs_equal_those_of_a_whole_pass(model, start):
    parts = anatomy(model)
    modules = {str(index): layer.down_projection for index, layer in enumerate(parts.layers)}
    whole = list(activation_batches(model, ROWS, modules=modules, batch_size=2, pad_id=0, final="final"))
    walk = walk_to(model, ROWS, start, batch_size=2, pad_id=0, label="rows")
    for layer in range(start, 3):
        walked = list(walk.inputs_of(modules[str(layer)], label="layer"))
        for expected, (columns, values) in zip(whole, walked, strict=True):
            assert torch.equal(columns.tokens, expected.columns.tokens)
            assert torch.equal(values, expected.inputs[str(layer)])
        if layer < 2:
            walk.advance()
    for expected, (_, values) in zip(whole, walk.finals(parts.final_norm), strict=True):
        assert torch.equal(values, expected.inputs["final"])


def test_walking_leaves_the_model_as_it_was_also_after_an_error(model):
    ids = torch.tensor([[1, 2, 3]])
    before = model(ids).logits
    walk_to(model, ROWS, 1, batch_size=2, pad_id=0, label="rows")
    with pytest.raises(IndexError):
        walk_to(model, [Encoding((1, 99), 1)], 1, batch_size=2, pad_id=0, label="rows")
    assert all("forward" not in vars(layer.block) for layer in anatomy(model).layers)
    assert torch.equal(model(ids).logits, before)


def test_every_row_is_walked_once(model):
    walk = walk_to(model, ROWS, 0, batch_size=1, pad_id=0, label="rows")
    assert sum(len(columns.tokens) for columns, _ in walk.finals(anatomy(model).final_norm)) == column_count(ROWS)
