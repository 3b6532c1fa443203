"""Extracts the circuit of every pool row in length-sorted batches, so that a killed run continues where it stopped.

`python -m stages extract_circuit_shards` on the same folder, as often as there are processors, helps a run on."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path

import polars as pl
import torch
from tqdm import tqdm
from transformers import PreTrainedModel

from efface.circuits.attribution import mean_sources
from efface.circuits.extraction import CircuitExtraction
from efface.circuits.graph import Graph
from efface.circuits.residual_stream import residual_stream
from efface.models import load_model, load_tokenizer
from efface.tokenization import Encoding, length_sorted_batches, padding_id
from stages.circuit_shards import assemble, circuit_shards, write_edges, write_shard
from stages.encoded_rows import EXAMPLES_FILE, TOKENIZER_FOLDER, encoded_rows
from stages.params import Params, load_params
from stages.scratch import claim, scratch_folder
from stages.tables.examples import EXAMPLES

TARGET = Path("models/target")
OUTPUT = Path("data/extract_circuits")


def main(item: str | None = None) -> None:
    params = load_params()
    with scratch_folder(*run_identity(params), helpers=True) as folder:
        graph, paths = shards_of_pool(params, folder)
        write_edges(graph, OUTPUT / "edges.parquet")
        assemble(paths, OUTPUT / "circuits.parquet")


def run_identity(params: Params) -> tuple[str, None, list, list[Path]]:
    """What tells this extraction's unfinished work from that of others: see `scratch_folder`."""
    used = [asdict(params.extract_circuits), params.tokenization.model_dump()]
    return "extract_circuits", None, used, [TARGET, EXAMPLES_FILE, TOKENIZER_FOLDER]


def shards_of_pool(params: Params, folder: Path) -> tuple[Graph, list[Path]]:
    """The target's graph and the files of all shards, those made here that nobody else makes."""
    rows = EXAMPLES.scan(EXAMPLES_FILE).filter(split="authors").sort("id").collect()
    tokenizer = load_tokenizer(TOKENIZER_FOLDER)
    model = load_model(TARGET, device="cuda" if torch.cuda.is_available() else "cpu")
    encodings = encoded_rows(rows, tokenizer, params.tokenization)
    paths = extract_shards(model, rows, encodings, params.extract_circuits, folder, pad_id=padding_id(tokenizer))
    return residual_stream(model).graph, paths


def extract_shards(
    model: PreTrainedModel,
    rows: pl.DataFrame,
    encodings: Sequence[Encoding],
    settings: CircuitExtraction,
    folder: Path,
    *,
    pad_id: int,
) -> list[Path]:
    """The files of all shards; one that is there already, or that another process is making, is left to it.

    Raises: ValueError where no row is in the pool.
    """
    pool = [encodings[place] for place, in_pool in enumerate(rows["pool"]) if in_pool]
    if not pool:
        raise ValueError("no row is in the pool, expected at least one; raise prepare_data.pool_rows")
    batches = length_sorted_batches(pool, batch_size=settings.batch_size, pad_id=pad_id)
    means = cache(lambda: mean_sources(model, (batch.to(model.device) for _, batch in batches)))
    plan = list(circuit_shards(rows, encodings, settings, pad_id=pad_id))
    for wait in (False, True):
        missing = [shard for shard in plan if not shard.path(folder).exists()]
        for shard in tqdm(missing, desc="extract circuits", unit="shard", file=sys.stderr, disable=not missing):
            with claim(shard.path(folder), wait=wait) as mine:
                if mine:
                    write_shard(model, shard, settings, folder, means)
    return [shard.path(folder) for shard in plan]
