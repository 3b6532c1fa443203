"""Runs the target once over its training rows: keys of the pool, Gram matrices, direct logit effects.

It reads no forget set: Gram(retain of a set) = Gram(training rows) − Σ keys(set).
"""

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import polars as pl
import torch
from safetensors.torch import save_file
from torch import Tensor
from tqdm import tqdm
from transformers import PreTrainedModel

from efface.activations.capture import ActivationBatch, activation_batches
from efface.activations.key_statistics import KeyGram
from efface.activations.logit_lens import direct_logit_effects
from efface.models import anatomy, check_layers, load_model, load_tokenizer, module_name
from efface.tokenization import Encoding, padding_id
from stages.encoded_rows import EXAMPLES_FILE, TOKENIZER_FOLDER, encoded_rows
from stages.params import load_params
from stages.tables.direct_effects import DIRECT_EFFECTS
from stages.tables.examples import EXAMPLES
from stages.tables.grams import AUTHORS, AUTHORS_UTILITY, GRAM_FILE, GRAMS
from stages.tables.keys import keys_path, keys_table

OUTPUT = Path("data/extract_activations")
TARGET = Path("models/target")


def main(item: str | None = None) -> None:
    params = load_params()
    rows = trained_rows(EXAMPLES.read(EXAMPLES_FILE))
    tokenizer = load_tokenizer(TOKENIZER_FOLDER)
    extract(
        load_model(TARGET, device="cuda" if torch.cuda.is_available() else "cpu"),
        rows,
        encoded_rows(rows, tokenizer, params.tokenization),
        OUTPUT,
        layers=params.extract_activations.layers,
        batch_size=params.extract_activations.batch_size,
        pad_id=padding_id(tokenizer),
    )


def trained_rows(examples: pl.DataFrame) -> pl.DataFrame:
    """The rows of the target's training run by id, with the part of the data (`part`) each belongs to."""
    measures_utility = (pl.col("split") == AUTHORS) & pl.col("utility")
    part = pl.when(measures_utility).then(pl.lit(AUTHORS_UTILITY)).otherwise(pl.col("split"))
    return examples.filter("trained").with_columns(part=part).sort("id")


def extract(
    model: PreTrainedModel,
    rows: pl.DataFrame,
    encodings: Sequence[Encoding],
    folder: Path,
    *,
    batch_size: int,
    pad_id: int,
    layers: Sequence[int] | None = None,
) -> None:
    """Keys and Gram matrices of the down-projections of `layers` (None: all) and of the unembedding; direct effects of
    every down-projection.

    Raises: ValueError where a layer does not exist.
    """
    parts = anatomy(model)
    check_layers(layers or (), len(parts.layers))
    downs = {module_name(model, layer.down_projection): layer.down_projection for layer in parts.layers}
    head, unembedding = module_name(model, parts.unembedding), parts.unembedding.weight.detach()
    kept = [name for layer, name in enumerate(downs) if layers is None or layer in layers]
    widths = {name: model.get_parameter(f"{name}.weight").shape[1] for name in [*kept, head]}
    grams: dict[tuple[str, str], KeyGram] = {}
    with ExitStack() as files:
        effects = files.enter_context(DIRECT_EFFECTS.writer(folder / "direct_effects.parquet"))
        keys = {
            name: files.enter_context(keys_table(width).writer(keys_path(folder, name)))
            for name, width in widths.items()
        }
        bar = files.enter_context(tqdm(total=len(rows), desc="extract activations", unit="row", file=sys.stderr))
        for (part,), of_part in rows.with_row_index("place").group_by("part", maintain_order=True):
            chosen = [encodings[place] for place in of_part["place"]]
            batches = activation_batches(model, chosen, modules=downs, batch_size=batch_size, pad_id=pad_id, final=head)
            for batch in batches:
                frame = _columns_frame(batch, of_part)
                effects.append(_effects_frame(batch, frame.with_columns(split=pl.lit(part)), unembedding))
                for name in widths:
                    values = batch.inputs[name]
                    gram = grams.setdefault((part, name), KeyGram.empty(widths[name], device=values.device))
                    gram.add(values)
                    _append_keys(keys[name], frame, values)
                bar.update(batch.columns.examples.unique().numel())
    _write_grams(grams, folder)


def _columns_frame(batch: ActivationBatch, rows: pl.DataFrame) -> pl.DataFrame:
    """Example, whether it is in the pool, position and gold token of every column."""
    columns = batch.columns
    return rows.select("id", "pool")[columns.examples.cpu().numpy()].with_columns(
        position=pl.Series(columns.positions.cpu().numpy()), gold_token=pl.Series(columns.tokens.cpu().numpy())
    )


def _effects_frame(batch: ActivationBatch, columns: pl.DataFrame, unembedding: Tensor) -> pl.DataFrame:
    """Rows of DIRECT_EFFECTS: every column under every layer."""
    effects = [direct_logit_effects(output, batch.columns.tokens, unembedding) for output in batch.outputs.values()]
    return pl.concat(
        columns.drop("pool").with_columns(layer=pl.lit(layer), effect=pl.Series(effect.cpu().numpy()))
        for layer, effect in enumerate(effects)
    )


def _append_keys(writer, columns: pl.DataFrame, values: Tensor) -> None:
    """The keys of pool rows; those of other rows are only in their Gram matrix."""
    in_pool = columns["pool"].to_numpy()
    if in_pool.any():
        keys = pl.Series("key", values.float().cpu().numpy()[in_pool])
        writer.append(columns.filter("pool").drop("pool").with_columns(keys))


def _write_grams(grams: Mapping[tuple[str, str], KeyGram], folder: Path) -> None:
    save_file({f"{part}/{name}": gram.gram.cpu() for (part, name), gram in grams.items()}, folder / GRAM_FILE)
    (folder / GRAM_FILE).chmod(0o644)
    records = [
        {"module": name, "split": part, "n_columns": gram.count, "key": f"{part}/{name}"}
        for (part, name), gram in grams.items()
    ]
    GRAMS.write(folder / "grams.parquet", pl.DataFrame(records))
