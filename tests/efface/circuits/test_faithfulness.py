"""Ablation of edges: against a Llama written out in loops, and its ends."""

import pytest
import torch
from literal_llama import literal_neg_nll, literal_run
from lively_models import lively_model, random_batch

from efface.circuits.attribution import baseline_sources
from efface.circuits.faithfulness import faithfulness, patched_metric
from efface.circuits.residual_stream import residual_stream


@pytest.mark.parametrize("density", [0.0, 0.5, 1.0])
def test_patched_pass_is_that_of_the_literal_model(density):
    model = lively_model()
    batch, corrupted = random_batch([8])
    graph = residual_stream(model).graph
    share = graph.matrix((torch.rand(graph.n_edges, generator=torch.Generator().manual_seed(2)) < density).float())
    baseline = baseline_sources(model, batch, intervention="patching", corrupted_ids=corrupted)
    found = patched_metric(model, batch, share[None], metric="neg_nll", baseline=baseline)

    _, sources = literal_run(model, corrupted[0], torch.zeros_like(share))
    logits, _ = literal_run(model, batch.input_ids[0], share, sources)
    expected = literal_neg_nll(logits, batch.labels[0])
    torch.testing.assert_close(found[0].double(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", ["llama", "gpt2", "phi"])
def test_everything_patched_is_the_corrupted_run(family):
    model = lively_model(family)
    batch, corrupted = random_batch([8, 6])
    graph = residual_stream(model).graph
    baseline = baseline_sources(model, batch, intervention="patching", corrupted_ids=corrupted)
    everything = torch.ones(2, graph.n_edges, dtype=torch.bool)
    found = faithfulness(model, batch, everything, metric="neg_nll", baseline=baseline)
    with torch.no_grad():
        losses = [
            [
                model(rows[i : i + 1, :length], labels=batch.labels[i : i + 1, :length]).loss
                for i, length in enumerate((8, 6))
            ]
            for rows in (batch.input_ids, corrupted)
        ]
    whole, empty = -torch.tensor(losses)
    for got, expected in (
        (found.whole, whole),
        (found.circuit, whole),
        (found.complement, empty),
        (found.empty, empty),
    ):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found.normalised, torch.ones(2))
    torch.testing.assert_close(found.complement_normalised, torch.zeros(2), rtol=0, atol=1e-3)


def test_each_example_has_its_own_circuit():
    model = lively_model()
    batch, corrupted = random_batch([8, 8])
    graph = residual_stream(model).graph
    baseline = baseline_sources(model, batch, intervention="patching", corrupted_ids=corrupted)
    masks = torch.stack([torch.ones(graph.n_edges), torch.zeros(graph.n_edges)]).bool()
    found = faithfulness(model, batch, masks, metric="neg_prob", baseline=baseline)
    torch.testing.assert_close(found.circuit[0], found.whole[0])
    torch.testing.assert_close(found.circuit[1], found.empty[1])


def test_hooks_are_gone_after_an_error():
    model = lively_model()
    batch, _ = random_batch([8])
    baseline = baseline_sources(model, batch, intervention="zero")
    with pytest.raises(RuntimeError):
        patched_metric(model, batch, torch.zeros(1, 2, 3), metric="neg_nll", baseline=baseline)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert {block.attention.num_key_value_groups for block in residual_stream(model).blocks} == {2}
