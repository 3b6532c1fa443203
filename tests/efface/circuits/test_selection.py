"""Choosing and pruning edges: hand-made circuits, greedy against its definition, and circuits that come out empty."""

import pytest
import torch

from efface.circuits.graph import Graph
from efface.circuits.selection import circuit_nodes, greedy_edges, pruned_edges, random_edges, selected_edges

GRAPH = Graph(2, 2)


def scores_of(**strengths: float) -> torch.Tensor:
    """Scores by edge name, with __ for -> and of for the read, zero elsewhere."""
    scores = torch.zeros(GRAPH.n_edges)
    for name, value in strengths.items():
        scores[GRAPH.edge_index(readable(name))] = value
    return scores


def readable(name: str) -> str:
    source, destination = name.replace("_h", ".h").split("__")
    head, _, read = destination.partition("of")
    return f"{source}->{head}<{read}>" if read else f"{source}->{head}"


def names_of(mask: torch.Tensor) -> set[str]:
    return {GRAPH.edge_name(edge) for edge in mask.nonzero()[:, 0].tolist()}


def literal_greedy(scores: torch.Tensor, count: int) -> set[int]:
    """count times: the strongest edge not yet chosen into `logits` or into a node already in."""
    nodes, chosen = {GRAPH.n_sources}, set()
    for _ in range(count):
        open_edges = [
            edge
            for edge in range(GRAPH.n_edges)
            if edge not in chosen and int(GRAPH.column_nodes[GRAPH.edge_destinations[edge]]) in nodes
        ]
        if not open_edges:
            break
        best = max(open_edges, key=lambda edge: abs(float(scores[edge])))
        chosen.add(best)
        nodes.add(int(GRAPH.edge_sources[best]))
    return chosen


@pytest.mark.parametrize("count", [0, 1, 7, 30, 1000])
def test_greedy_is_its_definition(count):
    for seed in range(3):
        scores = torch.randn(GRAPH.n_edges, generator=torch.Generator().manual_seed(seed))
        assert set(greedy_edges(GRAPH, scores, count).nonzero()[:, 0].tolist()) == literal_greedy(scores, count)


def test_pruning_drops_edges_that_no_path_uses():
    """m0->logits leads to no input, input->a0.h0<q> to no logits; the path by a1.h1's value stays, sign and all."""
    scores = scores_of(
        input__a1_h1ofv=-0.9, a1_h1__logits=0.8, m0__logits=0.7, input__a0_h0ofq=0.6, a0_h1__m1=0.5, m1__logits=0.4
    )
    mask = selected_edges(GRAPH, scores, selection="threshold", threshold=0.3)
    assert names_of(mask) == {"input->a1.h1<v>", "a1.h1->logits"}
    nodes = {GRAPH.source_names[row] for row in circuit_nodes(GRAPH, mask).nonzero()[:, 0].tolist()}
    assert nodes == {"input", "a1.h1"}


def test_a_head_with_any_of_its_reads_counts_as_fed():
    scores = scores_of(input__a0_h0ofk=1.0, a0_h0__logits=1.0)
    assert len(names_of(selected_edges(GRAPH, scores, selection="top", edges=2))) == 2


@pytest.mark.parametrize("selection", ["top", "greedy", "threshold"])
def test_circuit_pruned_to_nothing_is_empty(selection):
    """Greedy takes m1->logits and its input a1.h0->m1, but nothing ever reaches `input`."""
    scores = scores_of(m1__logits=1.0, a1_h0__m1=0.9)
    mask = selected_edges(GRAPH, scores, selection=selection, edges=2, threshold=0.5)
    assert not mask.any()
    assert not circuit_nodes(GRAPH, mask).any()


def test_pruning_is_idempotent_and_only_removes():
    for seed in range(20):
        mask = torch.rand(GRAPH.n_edges, generator=torch.Generator().manual_seed(seed)) < 0.15
        once = pruned_edges(GRAPH, mask)
        assert torch.equal(pruned_edges(GRAPH, once), once)
        assert not (once & ~mask).any()


def test_selection_ignores_sign_and_scale():
    scores = torch.randn(GRAPH.n_edges, generator=torch.Generator().manual_seed(1))
    for selection in ("top", "greedy"):
        first = selected_edges(GRAPH, scores, selection=selection, edges=12)
        assert torch.equal(first, selected_edges(GRAPH, -3 * scores, selection=selection, edges=12))


def test_random_circuit_is_connected_to_logits_and_drawn_by_its_generator():
    masks = [random_edges(GRAPH, 9, generator=torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)]
    assert [int(mask.sum()) for mask in masks] == [9, 9, 9]
    assert torch.equal(masks[0], masks[1]) and not torch.equal(masks[0], masks[2])


def test_requests_that_cannot_be_met_are_refused():
    with pytest.raises(ValueError, match="1 edge scores are NaN"):
        selected_edges(GRAPH, scores_of(input__m0=float("nan")), selection="top")
    with pytest.raises(ValueError, match="-1 edges"):
        selected_edges(GRAPH, scores_of(), selection="greedy", edges=-1)
