"""Nodes, edges and their names; published sizes of published models."""

import pytest
import torch

from efface.circuits.graph import Graph


@pytest.mark.parametrize(
    ("layers", "heads", "edges"),
    [(12, 12, 32_491), (16, 32, 386_713), (28, 24, 693_267), (32, 32, 1_592_881), (24, 32, 887_365)],
    ids=["GPT-2 small", "Llama-3.2-1B", "Llama-3.2-3B", "Llama-3.1-8B", "phi-1.5 as if sequential"],
)
def test_published_edge_counts(layers, heads, edges):
    graph = Graph(layers, heads)
    assert graph.n_edges == edges == int(graph.real_edge_mask.sum())
    assert graph.n_sources == 1 + layers * (heads + 1) == len(graph.source_names)
    assert graph.n_destinations == layers * (3 * heads + 1) + 1 == len(graph.destination_names)


@pytest.mark.parametrize("parallel", [False, True])
def test_number_and_name_lead_to_each_other(parallel):
    graph = Graph(2, 3, parallel)
    names = [graph.edge_name(edge) for edge in range(graph.n_edges)]
    assert len(set(names)) == graph.n_edges
    assert [graph.edge_index(name) for name in names] == list(range(graph.n_edges))


def test_mlp_sees_its_own_heads_unless_parallel():
    assert Graph(2, 3).edge_index("a1.h2->m1") >= 0
    with pytest.raises(KeyError, match=r"m1 does not see a1\.h2"):
        Graph(2, 3, parallel=True).edge_index("a1.h2->m1")
    assert Graph(2, 3, parallel=True).n_edges == Graph(2, 3).n_edges - 2 * 3


def test_nothing_sees_itself_or_what_comes_later():
    graph = Graph(3, 2)
    for row, column in graph.real_edge_mask.nonzero().tolist():
        assert row < graph.column_nodes[column]
    with pytest.raises(KeyError, match="does not see"):
        graph.edge_index("m1->a1.h0<q>")


def test_unknown_names_and_numbers_are_refused():
    graph = Graph(1, 2)
    with pytest.raises(KeyError, match="expected names like"):
        graph.edge_index("input->a0.h2<q>")
    with pytest.raises(IndexError, match=f"edges 0 to {graph.n_edges - 1}"):
        graph.edge_name(graph.n_edges)
    with pytest.raises(ValueError, match="0 layers and 2 heads"):
        Graph(0, 2)


def test_flat_and_matrix_undo_each_other():
    graph = Graph(2, 2)
    values = torch.arange(2.0 * graph.n_edges).view(2, -1) + 1
    matrix = graph.matrix(values)
    assert torch.equal(graph.flat(matrix), values)
    assert not matrix[:, ~graph.real_edge_mask].any()
    first = graph.edge_index("input->m0")
    assert matrix[1, 0, graph.destination_names.index("m0")] == values[1, first]


def test_layers_of_nodes():
    graph = Graph(2, 1)
    assert dict(zip(graph.source_names, graph.source_layers.tolist(), strict=True)) == {
        "input": -1, "a0.h0": 0, "m0": 0, "a1.h0": 1, "m1": 1,
    }  # fmt: skip
    assert graph.destination_layers.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2]
