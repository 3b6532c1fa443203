"""Quantizes one model under every scheme and measures it again: does what it forgot come back, and if so, why?"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
from tqdm import tqdm

from efface.corpora.example import Example
from stages.encoded_rows import EXAMPLES_FILE, TOKENIZER_FOLDER
from stages.evaluated_examples import evaluated_examples
from stages.named_model import load_named_model
from stages.params import ModelItem, Params, load_params
from stages.scratch import scratch_folder
from stages.tables.quantized_weights import QUANTIZED_WEIGHTS
from stages.tables.results import RESULTS, results_frame

if TYPE_CHECKING:
    from efface.quantization.schemes import Scheme

OUTPUT = Path("data/quantize_attack")


def main(item: str | None = None) -> None:
    from efface.quantization.schemes import scheme

    params = load_params()
    if item not in params.models:
        raise ValueError(f"quantize_attack {item!r}: no such model; params.models has {', '.join(params.models)}")
    model, examples = params.models[item], evaluated_examples()
    schemes = {name: scheme(name) for name in params.quantize_attack.schemes}
    used = [str(params.quantize_attack), str(params.evaluate), str(params.tokenization)]
    deps = [model.base, model.weights, EXAMPLES_FILE, TOKENIZER_FOLDER]
    with scratch_folder("quantize_attack", item, used, deps) as folder:
        for name, each in tqdm(schemes.items(), desc=f"quantize_attack {item}"):
            if not _shard(folder, name).is_file():
                RESULTS.write(_shard(folder, name), results(item, model, name, each, examples, params))
        with RESULTS.writer(OUTPUT / item / "results.parquet") as writer:
            for name in schemes:
                writer.append(RESULTS.read(_shard(folder, name)))
        with QUANTIZED_WEIGHTS.writer(OUTPUT / item / "weights.parquet") as writer:
            for name, each in schemes.items() if model.edit else ():
                writer.append(survivals(item, model, name, each))


def results(
    item: str, model_item: ModelItem, name: str, scheme: "Scheme", examples: Mapping[int, Example], params: Params
) -> pl.DataFrame:
    """Rows of RESULTS: every example's metrics under one scheme, just as `evaluate` measures them without."""
    from efface.evaluation.suite import example_scores
    from efface.models import load_tokenizer
    from efface.quantization.quantized_model import quantize_model

    model = load_named_model(item, model_item, dtype=params.evaluate.dtype)
    dtype = str(model.dtype).removeprefix("torch.")
    quantize_model(model, scheme)
    settings = params.evaluate.model_copy(update=params.quantize_attack.model_dump(exclude={"schemes"}))
    tokenizer = load_tokenizer(TOKENIZER_FOLDER)
    used = params.tokenization.model_dump() | settings.model_dump(exclude={"dtype"})
    scores = example_scores(model, tokenizer, examples, **used)
    return results_frame(scores, model=item, quantization=name, dtype=dtype)


def survivals(item: str, model_item: ModelItem, name: str, scheme: "Scheme") -> pl.DataFrame:
    """Rows of QUANTIZED_WEIGHTS: what one scheme leaves of this model's edit."""
    from efface.models import layer_of, load_model
    from efface.quantization.attack import weight_survivals

    edited = load_named_model(item, model_item)
    base = load_model(model_item.base, device=str(edited.device))
    found = [asdict(survival) for survival in weight_survivals(base, edited, scheme)]
    layers = pl.Series([layer_of(row["module"]) for row in found], dtype=pl.Int32)
    return pl.DataFrame(found).with_columns(model=pl.lit(item), scheme=pl.lit(name), layer=layers)


def _shard(folder: Path, scheme: str) -> Path:
    return folder / f"{scheme}.parquet"
