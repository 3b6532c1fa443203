"""The shape of a circuit in numbers: which kinds of edges it has, in which layers, and how long its paths are.

Depth of a node: `input` 0, heads of layer l 2l + 1, its MLP 2l + 2, `logits` 2L + 1. (arXiv:2601.09624 speaks of
shallow and late pathways without a formula; these are this project's definitions.)
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from efface.circuits.graph import READS, Graph
from efface.circuits.selection import circuit_nodes, pruned_edges

SOURCE_KINDS = ("input", "attention", "mlp")
DESTINATION_KINDS = (*(f"attention.{read}" for read in READS), "mlp", "logits")


@dataclass(frozen=True)
class Paths:
    """Paths from `input` to `logits`: how many, and the shortest, mean and longest number of edges; 0 without paths."""

    count: float
    shortest: int
    mean: float
    longest: int


@dataclass(frozen=True)
class Signature:
    """Statistics of one circuit; shares and means are 0 where it has no edges.

    Spans and locations are in units of the whole depth 2L + 1, plain and weighted by |score|.
    """

    edges: int
    nodes: int
    edge_types: dict[str, int]
    source_layers: tuple[int, ...]
    destination_layers: tuple[int, ...]
    attention_share: float
    direct_to_logits_share: float
    mean_span: float
    weighted_span: float
    mean_location: float
    weighted_location: float
    paths: Paths


def circuit_signature(graph: Graph, mask: Bool[Tensor, " edge"], scores: Float[Tensor, " edge"]) -> Signature:
    """The statistics of a circuit as it is given; only its paths are counted on the connected part.

    `source_layers` counts edges by layer of the source, `input` first; `destination_layers` by layer, `logits` last.
    `attention_share` is the share of edges that leave or enter a head.
    """
    edges = mask.nonzero()[:, 0].cpu()
    rows, columns = graph.edge_sources[edges], graph.edge_destinations[edges]
    kinds = [
        f"{SOURCE_KINDS[a]}->{DESTINATION_KINDS[b]}"
        for a, b in zip(_source_kinds(graph)[rows].tolist(), _destination_kinds(graph)[columns].tolist(), strict=True)
    ]
    depth = 2 * graph.layers + 1
    starts, stops = _source_depths(graph)[rows], _destination_depths(graph)[columns]
    spans, locations = (stops - starts) / depth, (stops + starts) / 2 / depth
    weights = scores.detach().cpu()[edges].abs().double()
    return Signature(
        edges=len(edges),
        nodes=int(circuit_nodes(graph, mask).sum()),
        edge_types={kind: kinds.count(kind) for kind in edge_types()},
        source_layers=_counts(graph.source_layers[rows] + 1, graph.layers + 1),
        destination_layers=_counts(graph.destination_layers[columns], graph.layers + 1),
        attention_share=_mean(torch.tensor(["attention" in kind for kind in kinds])),
        direct_to_logits_share=_mean(torch.tensor([kind.endswith("logits") for kind in kinds])),
        mean_span=_mean(spans),
        weighted_span=_mean(spans, weights),
        mean_location=_mean(locations),
        weighted_location=_mean(locations, weights),
        paths=circuit_paths(graph, mask),
    )


def edge_types() -> tuple[str, ...]:
    """Every kind of edge there can be, from `input->attention.q` to `mlp->logits`."""
    return tuple(f"{source}->{destination}" for source in SOURCE_KINDS for destination in DESTINATION_KINDS)


def circuit_paths(graph: Graph, mask: Bool[Tensor, " edge"]) -> Paths:
    """Paths of the pruned circuit, each choice of query, key or value its own edge; one sweep in the order of nodes."""
    edges = pruned_edges(graph, mask).nonzero()[:, 0].cpu()
    incoming: dict[int, list[int]] = {}
    targets = graph.column_nodes[graph.edge_destinations[edges]]
    for source, target in zip(graph.edge_sources[edges].tolist(), targets.tolist(), strict=True):
        incoming.setdefault(target, []).append(source)
    if not incoming:
        return Paths(0.0, 0, 0.0, 0)
    count, total, shortest, longest = {0: 1}, {0: 0}, {0: 0}, {0: 0}
    for node in sorted(incoming):
        sources = incoming[node]
        count[node] = sum(count[source] for source in sources)
        total[node] = sum(total[source] + count[source] for source in sources)
        shortest[node] = 1 + min(shortest[source] for source in sources)
        longest[node] = 1 + max(longest[source] for source in sources)
    end = graph.n_sources
    return Paths(float(count[end]), shortest[end], total[end] / count[end], longest[end])


def _source_kinds(graph: Graph) -> Int[Tensor, " source"]:
    layer = [1] * graph.heads + [2]
    return torch.tensor([0, *layer * graph.layers])


def _destination_kinds(graph: Graph) -> Int[Tensor, " destination"]:
    layer = [read for read in range(len(READS)) for _ in range(graph.heads)] + [len(READS)]
    return torch.tensor([*layer * graph.layers, len(READS) + 1])


def _source_depths(graph: Graph) -> Int[Tensor, " source"]:
    depths = 2 * graph.source_layers + _source_kinds(graph)
    depths[0] = 0
    return depths


def _destination_depths(graph: Graph) -> Int[Tensor, " destination"]:
    return 2 * graph.destination_layers + 1 + (_destination_kinds(graph) == len(READS)).long()


def _counts(layers: Int[Tensor, " chosen"], length: int) -> tuple[int, ...]:
    return tuple(torch.bincount(layers, minlength=length).tolist())


def _mean(values: Tensor, weights: Tensor | None = None) -> float:
    if len(values) == 0:
        return 0.0
    shares = torch.ones(len(values), dtype=torch.double) if weights is None else weights
    total = float(shares.sum())
    return float((values.double() * shares).sum()) / total if total else 0.0
