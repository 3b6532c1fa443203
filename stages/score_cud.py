"""Scores how hard each pool row is to unlearn, from circuits alone, and makes the forget sets `easy` and `hard`."""

import itertools
import sys
from functools import partial
from pathlib import Path

import polars as pl
import torch

from efface.circuits.graph import Graph
from efface.difficulty.cud import ROLES, Circuits, Cud, Role, anchor_circuit, easiest_and_hardest
from efface.difficulty.similarity import SIMILARITIES, WEIGHTINGS
from stages.circuit_rows import CIRCUITS_FILE, EDGES_FILE, circuit_rows, graph_of
from stages.encoded_rows import EXAMPLES_FILE
from stages.params import load_params
from stages.tables.anchor_circuits import ANCHOR_CIRCUITS
from stages.tables.anchors import ALL_RUNS, ANCHORS
from stages.tables.difficulty import DIFFICULTY
from stages.tables.edges import EDGES
from stages.tables.examples import EXAMPLES
from stages.tables.forget_sets import FORGET_SETS

ANCHORS_FILE = Path("data/select_anchors/anchors.parquet")
OUTPUT = Path("data/score_cud")
SETS = Path("data/forget_sets")


def main(item: str | None = None) -> None:
    params = load_params()
    graph = graph_of(EDGES.read(EDGES_FILE))
    anchors = ANCHORS.read(ANCHORS_FILE)
    select = partial(params.extract_circuits.select, graph)
    circuits: dict[str, dict[Role, Circuits]] = {
        source: {role: anchor_circuit(_mean_scores(graph, anchors.filter(source=source, role=role)), select)
                 for role in ROLES}
        for source in [ALL_RUNS, *(method.method for method in params.select_anchors.methods)]
    }  # fmt: skip
    cud = params.score_cud
    difficulty = (
        _difficulty(graph, circuits)
        .with_columns(chosen=(pl.col("similarity") == cud.similarity) & (pl.col("weighting") == cud.weighting))
        .join(anchors.select("id", "source", anchor="role"), on=["id", "source"], how="left", maintain_order="left")
    )
    _write_anchor_circuits(circuits)
    DIFFICULTY.write(OUTPUT / "difficulty.parquet", difficulty)
    _write_forget_sets(difficulty.filter("chosen", source=ALL_RUNS), params.prepare_data.forget_set_size)


def _mean_scores(graph: Graph, anchors: pl.DataFrame) -> torch.Tensor:
    """Mean signed score of every edge over these anchors."""
    ids = anchors["id"]
    total, found = torch.zeros(graph.n_edges, dtype=torch.float64), 0
    for part, circuits in circuit_rows(graph, pl.col("id").is_in(ids.implode())):
        total += circuits.scores.sum(dim=0, dtype=torch.float64)
        found += len(part)
    if not found or found != len(ids):
        role = "".join(anchors["role"].unique())
        raise ValueError(
            f"{CIRCUITS_FILE}: {found} of {len(ids)} {role} anchors have a circuit; run extract_circuits again"
        )
    return (total / found).float()


def _difficulty(graph: Graph, anchors: dict[str, dict[Role, Circuits]]) -> pl.DataFrame:
    """CUD of every pool row between the anchors of every source, under every similarity and weighting."""
    frames = []
    for ids, circuits in circuit_rows(graph):
        for source, similarity, weighting in itertools.product(anchors, SIMILARITIES, WEIGHTINGS):
            scored = Cud(similarity, weighting).scores(circuits, anchors[source]["easy"], anchors[source]["hard"])
            names = {"id": ids, "source": source, "similarity": similarity, "weighting": weighting}
            frames.append(pl.DataFrame(names | {name: value.numpy() for name, value in vars(scored).items()}))
    return pl.concat(frames).sort("source", "similarity", "weighting", "id")


def _write_anchor_circuits(circuits: dict[str, dict[Role, Circuits]]) -> None:
    """Every edge with a score, so that the table shows what the selection left out too."""
    rows = []
    for source, role in itertools.product(circuits, ROLES):
        circuit = circuits[source][role]
        edges = circuit.scores.nonzero()[:, 0]
        kept = {"score": circuit.scores[edges].tolist(), "in_circuit": circuit.mask[edges].tolist()}
        rows.append({"source": source, "role": role, "edge_index": edges.tolist(), **kept})
    ANCHOR_CIRCUITS.write(OUTPUT / "anchor_circuits.parquet", pl.DataFrame(rows))


def _write_forget_sets(scored: pl.DataFrame, size: int) -> None:
    """The rows of lowest and highest score, among those that are neither anchors nor candidates for it."""
    candidates = EXAMPLES.scan(EXAMPLES_FILE).filter("anchor_candidate").select("id").collect()
    undefined = int(scored["undefined"].sum())
    print(f"CUD: {undefined} of {len(scored)} scores undefined and left out of the sets", file=sys.stderr)
    eligible = scored.join(candidates, on="id", how="anti").filter(pl.col("anchor").is_null() & ~pl.col("undefined"))
    eligible = eligible.sort("id")
    ends = easiest_and_hardest(torch.tensor(eligible["cud"].to_numpy()), size=size)
    for name, places in zip(ROLES, ends, strict=True):
        ids = eligible["id"][places.tolist()].sort()
        FORGET_SETS.write(SETS / f"{name}.parquet", pl.DataFrame({"id": ids, "role": "forget"}))
