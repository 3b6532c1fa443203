"""From edge scores to a circuit: the strongest edges, or those grown from the logits, and nothing left unconnected.

A circuit is a mask over the graph's edges. It may be empty: pruning only removes.
"""

import heapq
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from efface.circuits.graph import Graph

Selection = Literal["top", "greedy", "threshold"]


def selected_edges(
    graph: Graph,
    scores: Float[Tensor, " edge"],
    *,
    selection: Selection,
    edges: int = 75,
    threshold: float = 0.0,
    prune: bool = True,
) -> Bool[Tensor, " edge"]:
    """The circuit of one example or anchor set: chosen by |score|, then pruned to connected paths.

    Raises: ValueError where a score is not a number, `edges` is negative, or the selection is unknown.
    """
    if scores.isnan().any():
        raise ValueError(
            f"{int(scores.isnan().sum())} edge scores are NaN; the model's weights or activations are not finite"
        )
    if selection == "top":
        mask = top_edges(scores, edges)
    elif selection == "greedy":
        mask = greedy_edges(graph, scores, edges)
    elif selection == "threshold":
        mask = scores.abs() >= threshold
    else:
        raise ValueError(f"selection {selection!r}: expected 'top', 'greedy' or 'threshold'")
    return pruned_edges(graph, mask) if prune else mask


def top_edges(scores: Float[Tensor, " edge"], count: int) -> Bool[Tensor, " edge"]:
    """The `count` edges with the largest |score|; equal scores keep the order of the edges."""
    _check_count(count)
    mask = torch.zeros_like(scores, dtype=torch.bool)
    mask[scores.abs().argsort(descending=True, stable=True)[:count]] = True
    return mask


def greedy_edges(graph: Graph, scores: Float[Tensor, " edge"], count: int) -> Bool[Tensor, " edge"]:
    """`count` edges grown from the logits: each time the strongest edge into `logits` or into a node already in.

    A head that enters opens its query, key and value destinations together; equal scores go by source, destination.
    """
    _check_count(count)
    strengths = graph.matrix(scores.abs()).cpu()
    columns_of = _columns_of_nodes(graph)
    ranked: dict[int, list[tuple[float, int]]] = {}
    heap: list[tuple[float, int, int]] = []
    opened = set()

    def offer_next(column: int) -> None:
        if ranked[column]:
            negative, row = ranked[column].pop()
            heapq.heappush(heap, (negative, row, column))

    def open_node(node: int) -> None:
        if node not in opened:
            opened.add(node)
            for column in columns_of[node]:
                ranked[column] = _weakest_first(graph, strengths, column)
                offer_next(column)

    open_node(graph.n_sources)
    mask = torch.zeros(graph.n_edges, dtype=torch.bool)
    for _ in range(count):
        if not heap:
            break
        _, row, column = heapq.heappop(heap)
        mask[graph.edge_numbers[row, column]] = True
        offer_next(column)
        open_node(row)
    return mask.to(scores.device)


def pruned_edges(graph: Graph, mask: Bool[Tensor, " edge"]) -> Bool[Tensor, " edge"]:
    """The edges on a path from `input` to `logits`: a greatest fixed point, so the order of removals doesn't matter.

    A node stays as long as it has an outgoing edge and, `input` apart, an incoming edge at any of its destinations.
    """
    edges = mask.nonzero()[:, 0].cpu()
    while True:
        sources, targets = _ends(graph, edges)
        written, read = _present(graph, targets), _present(graph, sources)
        written[0] = read[graph.n_sources] = True
        stays = written[sources] & read[targets]
        if stays.all():
            break
        edges = edges[stays]
    kept = torch.zeros_like(mask)
    kept[edges.to(mask.device)] = True
    return kept


def circuit_nodes(graph: Graph, mask: Bool[Tensor, " edge"], *, fed: bool = False) -> Bool[Tensor, " source"]:
    """The sources of a circuit's edges: all of its nodes but `logits` once it is pruned.

    With `fed` only those that have an incoming edge too, `input` apart, which matters for unpruned circuits alone.
    """
    sources, targets = _ends(graph, mask.nonzero()[:, 0].cpu())
    written, read = _present(graph, targets), _present(graph, sources)
    written[0] = True
    return (read & written if fed else read)[: graph.n_sources].to(mask.device)


def random_edges(graph: Graph, count: int, *, generator: torch.Generator) -> Bool[Tensor, " edge"]:
    """`count` edges grown greedily by random scores: the control of a circuit of that size, before pruning."""
    return greedy_edges(graph, torch.rand(graph.n_edges, generator=generator), count)


def _ends(graph: Graph, edges: Tensor) -> tuple[Tensor, Tensor]:
    """Source node and target node of edges; `logits` is node `n_sources`."""
    return graph.edge_sources[edges], graph.column_nodes[graph.edge_destinations[edges]]


def _present(graph: Graph, nodes: Tensor) -> Tensor:
    found = torch.zeros(graph.n_sources + 1, dtype=torch.bool)
    found[nodes] = True
    return found


def _columns_of_nodes(graph: Graph) -> list[list[int]]:
    columns: list[list[int]] = [[] for _ in range(graph.n_sources + 1)]
    for column, node in enumerate(graph.column_nodes.tolist()):
        columns[node].append(column)
    return columns


def _weakest_first(graph: Graph, strengths: Tensor, column: int) -> list[tuple[float, int]]:
    """(−|score|, source) of a column's edges, the strongest last."""
    rows = graph.real_edge_mask[:, column].nonzero()[:, 0].tolist()
    return sorted(((-float(strengths[row, column]), row) for row in rows), reverse=True)


def _check_count(count: int) -> None:
    if count < 0:
        raise ValueError(f"a circuit of {count} edges: expected 0 or more")
