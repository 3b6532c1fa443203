"""What modules read and wrote at the positions that predict answer tokens."""

import pytest
import torch
from torch import nn

from efface.activations.capture import (
    activation_batches,
    captured_inputs,
    captured_outputs,
    column_count,
    predicting_columns,
    sampled_to_columns,
)
from efface.models import anatomy, scratch_llama
from efface.tokenization import Encoding, collate

ROWS = (Encoding((1, 2, 3, 4, 5), 2), Encoding((6, 7, 8, 9, 10, 11, 12), 4), Encoding((1, 3, 5), 2))


@pytest.fixture(scope="module")
def model():
    return scratch_llama(
        vocab_size=20, layers=2, hidden=16, heads=2, kv_heads=1, intermediate=24, tie_embeddings=True, seed=0
    )


def down_projections(model) -> dict[str, nn.Module]:
    return {f"layer {index}": layer.down_projection for index, layer in enumerate(anatomy(model).layers)}


def test_columns_predict_every_answer_token():
    """Row (1, 2 | 3, 4, 5): positions 1, 2, 3 predict tokens 3, 4, 5."""
    batch = collate(ROWS[:2], pad_id=0)
    columns = predicting_columns([7, 3], batch.labels)
    assert columns.examples.tolist() == [7, 7, 7, 3, 3, 3]
    assert columns.positions.tolist() == [1, 2, 3, 3, 4, 5]
    assert columns.tokens.tolist() == [3, 4, 5, 10, 11, 12]
    assert column_count(ROWS) == 7


def test_hooks_change_no_output_and_are_removed_also_after_an_error(model):
    ids = torch.tensor([[1, 2, 3]])
    before = model(ids).logits
    modules = down_projections(model)
    with captured_inputs(modules) as inputs, captured_outputs(modules) as outputs:
        assert torch.equal(model(ids).logits, before)
        for name, module in modules.items():
            assert torch.equal(outputs[name], module(inputs[name]))
    with pytest.raises(RuntimeError, match="on purpose"), captured_inputs(modules), captured_outputs(modules):
        raise RuntimeError("on purpose")
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in modules.values())
    assert torch.equal(model(ids).logits, before)


def test_streamed_activations_equal_those_of_each_example_alone(model):
    modules = down_projections(model)
    seen = {}
    for batch in activation_batches(model, ROWS, modules=modules, batch_size=2, pad_id=0, final="head"):
        for column, (place, position) in enumerate(zip(batch.columns.examples, batch.columns.positions, strict=True)):
            seen[int(place), int(position)] = {name: values[column] for name, values in batch.inputs.items()}
    assert len(seen) == column_count(ROWS)
    for place, row in enumerate(ROWS):
        with torch.no_grad(), captured_inputs(modules) as inputs:
            logits = model(torch.tensor([row.input_ids])).logits[0]
        for position in range(row.prompt_length - 1, len(row.input_ids) - 1):
            found = seen[place, position]
            for name in modules:
                torch.testing.assert_close(found[name], inputs[name][0, position], atol=1e-6, rtol=1e-5)
            torch.testing.assert_close(model.lm_head(found["head"]), logits[position], atol=1e-6, rtol=1e-5)


def test_streaming_leaves_gradients_on_between_batches(model):
    for _ in activation_batches(model, ROWS, modules={}, batch_size=1, pad_id=0):
        assert torch.is_grad_enabled()


def test_sampling_fills_the_cap_exactly_and_depends_on_the_seed_alone():
    rows = [Encoding(tuple(range(6)), 3)] * 20
    places, chosen = sampled_to_columns(rows, cap=11, seed=1)
    assert column_count(chosen) == 11 and len(set(places)) == len(places) == 4
    assert sampled_to_columns(rows, cap=11, seed=1) == (places, chosen)
    assert sampled_to_columns(rows, cap=11, seed=2)[0] != places
    assert sampled_to_columns(rows, cap=60, seed=1) == (tuple(range(20)), tuple(rows))
    with pytest.raises(ValueError, match="column cap 0"):
        sampled_to_columns(rows, cap=0, seed=1)
