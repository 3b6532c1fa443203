"""The shapes of the circuits of some forget sets, ready to be drawn."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from efface.circuits.graph import Graph
from efface.circuits.signatures import circuit_signature
from stages.circuit_rows import EDGES_FILE, circuit_rows, graph_of
from stages.tables.edges import EDGES


@dataclass(frozen=True)
class Shapes:
    """The circuits of one forget set, those that connect input and logits.

    `path_lengths`: edges on the mean path, by example. `sources`, `destinations`: share of a circuit's edges by layer,
    `input` first or `logits` last, mean over examples. `empty`: how many circuits connect nothing.
    """

    path_lengths: list[float]
    sources: list[float]
    destinations: list[float]
    empty: int


def circuit_shapes(sets: Mapping[str, Sequence[int]]) -> dict[str, Shapes]:
    """Shapes by forget set; a set without any connected circuit is left out."""
    graph = graph_of(EDGES.read(EDGES_FILE))
    found = {name: _shapes(graph, ids) for name, ids in sets.items()}
    return {name: shapes for name, shapes in found.items() if shapes.path_lengths}


def _shapes(graph: Graph, ids: Sequence[int]) -> Shapes:
    signatures = [
        circuit_signature(graph, mask, scores)
        for _, circuits in circuit_rows(graph, pl.col("id").is_in(list(ids)))
        for mask, scores in zip(circuits.mask, circuits.scores, strict=True)
    ]
    connected = [signature for signature in signatures if signature.paths.count]
    shares = [
        [np.array(getattr(signature, side)) / signature.edges for signature in connected]
        for side in ("source_layers", "destination_layers")
    ]
    means = [np.mean(side, axis=0).tolist() if side else [] for side in shares]
    lengths = [signature.paths.mean for signature in connected]
    return Shapes(lengths, *means, empty=len(signatures) - len(connected))
