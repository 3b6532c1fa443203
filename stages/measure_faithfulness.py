"""Ablates everything outside, and inside, the circuits of some pool rows, and of random circuits of the same size."""

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import polars as pl
import torch
from tqdm import tqdm
from transformers import PreTrainedModel

from efface.circuits.attribution import baseline_sources, mean_sources
from efface.circuits.extraction import CircuitExtraction
from efface.circuits.faithfulness import faithfulness
from efface.circuits.graph import Graph
from efface.circuits.recorded_run import Sources
from efface.circuits.residual_stream import residual_stream
from efface.circuits.selection import random_edges
from efface.models import load_model, load_tokenizer
from efface.tokenization import length_sorted_batches, padding_id
from stages.circuit_rows import circuit_rows
from stages.circuit_shards import Shard, circuit_shards
from stages.encoded_rows import EXAMPLES_FILE, TOKENIZER_FOLDER, encoded_rows
from stages.params import load_params
from stages.tables.examples import EXAMPLES
from stages.tables.faithfulness import FAITHFULNESS

TARGET = Path("models/target")
OUTPUT = Path("data/measure_faithfulness/faithfulness.parquet")


def main(item: str | None = None) -> None:
    params = load_params()
    tokenizer = load_tokenizer(TOKENIZER_FOLDER)
    model = load_model(TARGET, device="cuda" if torch.cuda.is_available() else "cpu")
    rows = EXAMPLES.scan(EXAMPLES_FILE).filter(split="authors").sort("id").collect()
    encodings, pad_id = encoded_rows(rows, tokenizer, params.tokenization), padding_id(tokenizer)
    pool = [encoding for encoding, in_pool in zip(encodings, rows["pool"], strict=True) if in_pool]
    batches = length_sorted_batches(pool, batch_size=params.extract_circuits.batch_size, pad_id=pad_id)
    means = cache(lambda: mean_sources(model, (batch.to(model.device) for _, batch in batches)))

    chosen = evenly_spread(rows.filter("pool")["id"], params.measure_faithfulness.examples)
    rows = rows.with_columns(pool=pl.col("id").is_in(chosen.implode()))
    shards = list(circuit_shards(rows, encodings, params.extract_circuits, pad_id=pad_id))
    own = own_circuits(residual_stream(model).graph, chosen)
    random = random_circuits(residual_stream(model).graph, own, seed=params.seed)
    frames = [
        measured(model, shard, circuits, name, params.extract_circuits, means)
        for shard in tqdm(shards, desc="faithfulness", unit="shard", file=sys.stderr)
        for name, circuits in (("own", own), ("random", random))
    ]
    FAITHFULNESS.write(OUTPUT, pl.concat(frames).sort("id", "circuit"))


def evenly_spread(ids: pl.Series, count: int) -> pl.Series:
    """`count` of these ids at equal distances, all of them where there are no more."""
    return ids if count >= len(ids) else ids.gather([place * len(ids) // count for place in range(count)])


def own_circuits(graph: Graph, ids: pl.Series) -> dict[int, torch.Tensor]:
    """Example id → mask of the edges of its circuit."""
    found = circuit_rows(graph, pl.col("id").is_in(ids.implode()))
    return {number: mask for part, circuits in found for number, mask in zip(part, circuits.mask, strict=True)}


def random_circuits(graph: Graph, circuits: dict[int, torch.Tensor], *, seed: int) -> dict[int, torch.Tensor]:
    """For each circuit another one of as many edges."""
    return {
        number: random_edges(graph, int(mask.sum()), generator=torch.Generator().manual_seed(seed + number))
        for number, mask in circuits.items()
    }


def measured(
    model: PreTrainedModel,
    shard: Shard,
    circuits: dict[int, torch.Tensor],
    name: str,
    settings: CircuitExtraction,
    means: Callable[[], Sources],
) -> pl.DataFrame:
    """Rows of FAITHFULNESS for one shard."""
    batch = shard.batch.to(model.device)
    corrupted = None if shard.corrupted is None else shard.corrupted.input_ids.to(model.device)
    intervention = settings.baseline(paired=corrupted is not None)
    baseline = baseline_sources(
        model,
        batch,
        intervention=intervention,
        corrupted_ids=corrupted,
        means=means() if intervention == "mean" else None,
    )
    masks = torch.stack([circuits[number] for number in shard.ids]).to(model.device)
    found = faithfulness(model, batch, masks, metric=settings.metric, baseline=baseline)
    columns = {f"metric_{part}": values.double().cpu().numpy() for part, values in vars(found).items()}
    labels = {"id": shard.ids, "circuit": name, "baseline": intervention, "edges": masks.sum(1).int().cpu().numpy()}
    return pl.DataFrame(labels | columns)
