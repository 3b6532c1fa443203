"""Extracts the circuit of every pool row in length-sorted batches, so that a killed run continues where it stopped."""

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
from efface.circuits.residual_stream import residual_stream
from efface.models import load_model, load_tokenizer
from efface.tokenization import Encoding, length_sorted_batches, padding_id
from stages.circuit_shards import assemble, circuit_shards, write_edges, write_shard
from stages.encoded_rows import EXAMPLES_FILE, TOKENIZER_FOLDER, encoded_rows
from stages.params import load_params
from stages.scratch import scratch_folder
from stages.tables.examples import EXAMPLES

TARGET = Path("models/target")
OUTPUT = Path("data/extract_circuits")


def main(item: str | None = None) -> None:
    params = load_params()
    settings = params.extract_circuits
    rows = EXAMPLES.scan(EXAMPLES_FILE).filter(split="authors").sort("id").collect()
    used = [asdict(settings), params.tokenization.model_dump()]
    with scratch_folder("extract_circuits", item, used, [TARGET, EXAMPLES_FILE, TOKENIZER_FOLDER]) as folder:
        tokenizer = load_tokenizer(TOKENIZER_FOLDER)
        model = load_model(TARGET, device="cuda" if torch.cuda.is_available() else "cpu")
        encodings = encoded_rows(rows, tokenizer, params.tokenization)
        paths = extract_shards(model, rows, encodings, settings, folder, pad_id=padding_id(tokenizer))
        write_edges(residual_stream(model).graph, OUTPUT / "edges.parquet")
        assemble(paths, OUTPUT / "circuits.parquet")


def extract_shards(
    model: PreTrainedModel,
    rows: pl.DataFrame,
    encodings: Sequence[Encoding],
    settings: CircuitExtraction,
    folder: Path,
    *,
    pad_id: int,
) -> list[Path]:
    """The files of all shards; one that is there already is kept as it is.

    Raises: ValueError where no row is in the pool.
    """
    pool = [encodings[place] for place, in_pool in enumerate(rows["pool"]) if in_pool]
    if not pool:
        raise ValueError("no row is in the pool, expected at least one; raise prepare_data.pool_rows")
    batches = length_sorted_batches(pool, batch_size=settings.batch_size, pad_id=pad_id)
    means = cache(lambda: mean_sources(model, (batch.to(model.device) for _, batch in batches)))
    plan = list(circuit_shards(rows, encodings, settings, pad_id=pad_id))
    for shard in tqdm(plan, desc="extract circuits", unit="shard", file=sys.stderr):
        if not shard.path(folder).exists():
            write_shard(model, shard, settings, folder, means)
    return [shard.path(folder) for shard in plan]
