"""Circuits of a batch from one set of parameters."""

import pytest
import torch
from lively_models import lively_model, random_batch

from efface.circuits.attribution import edge_scores
from efface.circuits.extraction import AS_PUBLISHED, CircuitExtraction
from efface.circuits.residual_stream import residual_stream
from efface.circuits.selection import selected_edges


def test_circuit_of_each_example_is_selected_from_its_own_scores():
    model = lively_model()
    batch, corrupted = random_batch([9, 7])
    settings = CircuitExtraction(steps=2, edges=12)
    found = settings.extract(model, batch, corrupted_ids=corrupted)
    graph = residual_stream(model).graph
    expected = edge_scores(
        model, batch, method="eap_ig_inputs", intervention="patching", metric="neg_prob", steps=2,
        corrupted_ids=corrupted,
    )  # fmt: skip
    for row, circuit in enumerate(found):
        assert circuit.edges.tolist() == list(range(graph.n_edges))
        assert torch.equal(circuit.scores, expected.scores[row])
        mask = selected_edges(graph, expected.scores[row], selection="greedy", edges=12)
        assert torch.equal(circuit.in_circuit, mask)
        assert circuit.metric_clean == pytest.approx(float(expected.metric_clean[row]))


def test_bounded_rows_keep_the_circuit_and_the_strongest_edges():
    model = lively_model()
    batch, corrupted = random_batch([9])
    whole, bounded = (
        CircuitExtraction(steps=2, edges=30, kept_edges=kept).extract(model, batch, corrupted_ids=corrupted)[0]
        for kept in (None, 5)
    )
    strongest = whole.scores.abs().argsort(descending=True)[:5]
    expected = sorted(set(strongest.tolist()) | set(whole.edges[whole.in_circuit].tolist()))
    assert bounded.edges.tolist() == expected
    assert torch.equal(bounded.scores, whole.scores[bounded.edges])
    assert torch.equal(bounded.edges[bounded.in_circuit], whole.edges[whole.in_circuit])


def test_example_without_partner_takes_the_fallback():
    settings = CircuitExtraction(method="eap", fallback="zero")
    assert settings.baseline(paired=True) == "patching"
    assert settings.baseline(paired=False) == "zero"
    assert AS_PUBLISHED.baseline(paired=False) == "zero"
    batch, _ = random_batch([9])
    found = settings.extract(lively_model(), batch)[0]
    expected = edge_scores(lively_model(), batch, method="eap", intervention="zero", metric="neg_prob").scores[0]
    assert torch.equal(found.scores, expected)


@pytest.mark.parametrize(
    "wrong",
    [{"steps": 0}, {"edges": 0}, {"batch_size": 0}, {"kept_edges": -1}, {"fallback": "zero"}, {"intervention": "zero"}],
    ids=str,
)
def test_parameters_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match=r"expected|cannot ablate by zero"):
        CircuitExtraction(**wrong)
