"""Statistics of a circuit small enough to count by hand."""

import pytest
import torch

from efface.circuits.graph import Graph
from efface.circuits.signatures import Paths, circuit_paths, circuit_signature, edge_types

GRAPH = Graph(2, 2)
EDGES = {"input->a0.h1<v>": 3.0, "input->m1": -1.0, "a0.h1->m1": 1.0, "a0.h1->logits": 1.0, "m1->logits": 2.0}


def circuit(edges: dict[str, float]) -> tuple[torch.Tensor, torch.Tensor]:
    mask, scores = torch.zeros(GRAPH.n_edges, dtype=torch.bool), torch.zeros(GRAPH.n_edges)
    for name, value in edges.items():
        mask[GRAPH.edge_index(name)] = True
        scores[GRAPH.edge_index(name)] = value
    return mask, scores


def test_counts_shares_and_layers():
    found = circuit_signature(GRAPH, *circuit(EDGES))
    assert (found.edges, found.nodes) == (5, 3)
    assert {kind: count for kind, count in found.edge_types.items() if count} == {
        "input->attention.v": 1, "input->mlp": 1, "attention->mlp": 1, "attention->logits": 1, "mlp->logits": 1,
    }  # fmt: skip
    assert tuple(found.edge_types) == edge_types() and len(edge_types()) == 15
    assert found.source_layers == (2, 2, 1)
    assert found.destination_layers == (1, 2, 2)
    assert found.attention_share == pytest.approx(3 / 5)
    assert found.direct_to_logits_share == pytest.approx(2 / 5)


def test_spans_and_locations():
    """Depths: input 0, a0 1, m1 4, logits 5. Spans 1, 4, 3, 4, 1; middles 0.5, 2, 2.5, 3, 4.5; weights 3 1 1 1 2."""
    found = circuit_signature(GRAPH, *circuit(EDGES))
    assert found.mean_span == pytest.approx(13 / 5 / 5)
    assert found.weighted_span == pytest.approx((3 + 4 + 3 + 4 + 2) / 8 / 5)
    assert found.mean_location == pytest.approx(12.5 / 5 / 5)
    assert found.weighted_location == pytest.approx((1.5 + 2 + 2.5 + 3 + 9) / 8 / 5)


def test_paths_are_counted_with_their_lengths():
    """input→m1→logits 2, input→a0.h1→logits 2, input→a0.h1→m1→logits 3."""
    assert circuit_paths(GRAPH, circuit(EDGES)[0]) == Paths(3.0, 2, 7 / 3, 3)


def test_query_and_value_of_one_head_are_two_paths():
    mask, _ = circuit({"input->a0.h0<q>": 1, "input->a0.h0<v>": 1, "a0.h0->logits": 1})
    assert circuit_paths(GRAPH, mask).count == 2


def test_unconnected_edges_count_as_edges_but_make_no_path():
    found = circuit_signature(GRAPH, *circuit({"m0->logits": 1.0}))
    assert found.edges == 1
    assert found.paths == Paths(0.0, 0, 0.0, 0)


def test_empty_circuit_has_zeros_only():
    found = circuit_signature(GRAPH, *circuit({}))
    assert (found.edges, found.nodes, found.attention_share, found.mean_span) == (0, 0, 0.0, 0.0)
    assert found.paths == Paths(0.0, 0, 0.0, 0)
    assert found.source_layers == found.destination_layers == (0, 0, 0)
