"""The pool in batches whose circuits are extracted one by one, a file each, and the one table made of these files.

The plan depends on rows and settings alone: a killed run continues at its first missing file, and workers can share it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from transformers import PreTrainedModel

from efface.circuits.corruption import corrupted_encoding, corrupted_partners
from efface.circuits.extraction import CircuitExtraction
from efface.circuits.graph import Graph
from efface.circuits.recorded_run import Sources
from efface.tokenization import Batch, Encoding, collate, length_sorted_batches
from stages.tables.circuits import CIRCUITS
from stages.tables.edges import EDGES

NUMBERS_AT_ONCE = 2**22
SCHEMA = {
    "id": pl.Int64,
    "edge_index": pl.List(pl.Int32),
    "score": pl.List(pl.Float32),
    "in_circuit": pl.List(pl.Boolean),
    "n_selected": pl.Int32,
    "metric_clean": pl.Float32,
    "baseline": pl.String,
}


@dataclass(frozen=True)
class Shard:
    """One batch of rows, with the prompts of their corrupted partners where they have one."""

    number: int
    ids: list[int]
    batch: Batch
    corrupted: Batch | None

    def path(self, folder: Path) -> Path:
        return folder / f"{self.number:06}.parquet"


def circuit_shards(
    rows: pl.DataFrame, encodings: Sequence[Encoding], settings: CircuitExtraction, *, pad_id: int
) -> Iterator[Shard]:
    """The pool rows in batches, longest first: those with a corrupted partner, then the others.

    Any of `rows` may be a partner, in the pool or not.
    """
    partners: list[int | None] = [None] * len(rows)
    if settings.intervention == "patching":
        partners = corrupted_partners(encodings, rows["author"].to_list())
    ids, number = rows["id"].to_list(), 0
    for paired in (True, False):
        places = [place for place, pool in enumerate(rows["pool"]) if pool and (partners[place] is not None) == paired]
        chosen = [encodings[place] for place in places]
        for within, batch in length_sorted_batches(chosen, batch_size=settings.batch_size, pad_id=pad_id):
            members = [places[w] for w in within]
            found = [(place, partner) for place in members if (partner := partners[place]) is not None]
            pairs = [corrupted_encoding(encodings[place], encodings[partner]) for place, partner in found]
            yield Shard(number, [ids[m] for m in members], batch, collate(pairs, pad_id=pad_id) if paired else None)
            number += 1


def write_shard(
    model: PreTrainedModel, shard: Shard, settings: CircuitExtraction, folder: Path, means: Callable[[], Sources]
) -> None:
    """Extracts the circuits of one shard into its file; `means` is asked only where mean ablation is due."""
    corrupted = None if shard.corrupted is None else shard.corrupted.input_ids.to(model.device)
    baseline = settings.baseline(paired=corrupted is not None)
    circuits = settings.extract(
        model,
        shard.batch.to(model.device),
        corrupted_ids=corrupted,
        means=means() if baseline == "mean" else None,
    )
    rows = [
        {
            "id": number,
            "edge_index": circuit.edges.numpy(),
            "score": circuit.scores.numpy(),
            "in_circuit": circuit.in_circuit.numpy(),
            "n_selected": int(circuit.in_circuit.sum()),
            "metric_clean": circuit.metric_clean,
            "baseline": baseline,
        }
        for number, circuit in zip(shard.ids, circuits, strict=True)
    ]
    CIRCUITS.write(shard.path(folder), pl.DataFrame(rows, schema=SCHEMA))


def assemble(paths: Sequence[Path], output: Path) -> None:
    """One table of all shards, ordered by id, a few rows at a time so that memory does not grow with their number."""
    frames = [CIRCUITS.scan(path) for path in paths]
    sizes = pl.concat(frames).select("id", kept=pl.col("edge_index").list.len()).sort("id").collect()
    step = max(1, NUMBERS_AT_ONCE // max([1, *sizes["kept"]]))
    with CIRCUITS.writer(output) as writer:
        for part in sizes["id"].to_frame().iter_slices(step):
            writer.append(pl.concat(frames).filter(pl.col("id").is_in(part["id"].implode())).sort("id").collect())


def write_edges(graph: Graph, output: Path) -> None:
    """All edges of the graph in the order of their numbers."""
    sources, destinations = graph.edge_sources, graph.edge_destinations
    frame = {
        "edge": range(graph.n_edges),
        "source": [graph.source_names[row] for row in sources.tolist()],
        "destination": [graph.destination_names[column] for column in destinations.tolist()],
        "source_index": sources.numpy(),
        "destination_index": destinations.numpy(),
        "source_layer": graph.source_layers[sources].numpy(),
        "destination_layer": graph.destination_layers[destinations].numpy(),
    }
    EDGES.write(output, pl.DataFrame(frame))
