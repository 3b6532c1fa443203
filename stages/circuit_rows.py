"""Circuits and their graph, read back from the tables `circuits` and `edges`."""

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import torch
from tqdm import tqdm

from efface.circuits.graph import Graph
from efface.difficulty.cud import Circuits
from stages.tables.circuits import CIRCUITS

CIRCUITS_FILE = Path("data/extract_circuits/circuits.parquet")
EDGES_FILE = Path("data/extract_circuits/edges.parquet")
NUMBERS_AT_ONCE = 2**24


def graph_of(edges: pl.DataFrame) -> Graph:
    """The graph whose edges are listed.

    Raises: ValueError where they are not all edges of one graph in its own order.
    """
    sources = set(edges["source"])
    layers, heads = (sum(name.startswith(kind) for name in sources) for kind in ("m", "a0."))
    joined = set(zip(edges["source"], edges["destination"], strict=True))
    graph = Graph(layers, heads, parallel=("a0.h0", "m0") not in joined)
    names = [f"{source}->{destination}" for source, destination in edges.select("source", "destination").iter_rows()]
    if names != [graph.edge_name(edge) for edge in range(graph.n_edges)]:
        raise ValueError(f"{EDGES_FILE}: {len(names)} edges are not those of {graph}; run extract_circuits again")
    return graph


def circuit_rows(graph: Graph, chosen: pl.Expr | bool = True) -> Iterator[tuple[pl.Series, Circuits]]:
    """Ids and circuits of some rows at a time, so that memory does not grow with their number."""
    table = CIRCUITS.scan(CIRCUITS_FILE)
    rows, step = table.select(pl.len()).collect().item(), max(1, NUMBERS_AT_ONCE // graph.n_edges)
    for start in tqdm(range(0, rows, step), desc="circuits", unit="batch"):
        part = table.slice(start, step).filter(chosen).select("id", "edge_index", "score", "in_circuit").collect()
        if not part.is_empty():
            yield part["id"], _dense(part, graph.n_edges)


def _dense(part: pl.DataFrame, n_edges: int) -> Circuits:
    """Circuits over all edges; edges that were not kept have score 0."""
    kept = (
        part.select("edge_index", "score", "in_circuit")
        .with_row_index("row")
        .explode("edge_index", "score", "in_circuit")
    )
    row, edge = (torch.tensor(kept[name].cast(pl.Int64).to_numpy()) for name in ("row", "edge_index"))
    scores, mask = torch.zeros(len(part), n_edges), torch.zeros(len(part), n_edges, dtype=torch.bool)
    scores[row, edge] = torch.tensor(kept["score"].to_numpy())
    mask[row, edge] = torch.tensor(kept["in_circuit"].to_numpy())
    return Circuits(scores, mask)
