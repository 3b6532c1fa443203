"""The shapes of the circuits of some forget sets, ready to be drawn."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from stages.score_cud import CIRCUITS_FILE, EDGES_FILE, graph_of
from stages.tables.circuits import CIRCUITS
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
    """Shapes by forget set; a set none of whose rows has a circuit is left out."""
    found = {name: _shapes(ids) for name, ids in sets.items()}
    return {name: shapes for name, shapes in found.items() if shapes.path_lengths}


def _shapes(ids: Sequence[int]) -> Shapes:
    import torch

    from efface.circuits.signatures import circuit_signature

    graph = graph_of(EDGES.read(EDGES_FILE))
    rows = CIRCUITS.scan(CIRCUITS_FILE).filter(pl.col("id").is_in(list(ids)))
    signatures = []
    for edges, scores, inside in rows.select("edge_index", "score", "in_circuit").collect().iter_rows():
        places = torch.tensor(edges, dtype=torch.long)
        dense = torch.zeros(graph.n_edges).index_copy(0, places, torch.tensor(scores, dtype=torch.float32))
        mask = torch.zeros(graph.n_edges, dtype=torch.bool).index_copy(
            0, places, torch.tensor(inside, dtype=torch.bool)
        )
        signatures.append(circuit_signature(graph, mask, dense))
    connected = [signature for signature in signatures if signature.paths.count]
    shares = [
        [np.array(getattr(signature, side)) / signature.edges for signature in connected]
        for side in ("source_layers", "destination_layers")
    ]
    means = [np.mean(side, axis=0).tolist() if side else [] for side in shares]
    return Shapes([signature.paths.mean for signature in connected], *means, empty=len(signatures) - len(connected))
