"""Measures one model, on every example that it can be compared on."""

from pathlib import Path

import polars as pl

from stages.encoded_rows import EXAMPLES_FILE, TOKENIZER_FOLDER
from stages.evaluated_examples import evaluated_examples
from stages.named_model import load_named_model
from stages.params import load_params
from stages.scratch import scratch_folder
from stages.tables.results import RESULTS, results_frame

SHARD = 256


def main(item: str | None = None) -> None:
    params = load_params()
    if item is None or item not in params.models:
        raise ValueError(f"evaluate {item!r}: no such model; params.models has {', '.join(params.models)}")
    named, examples = params.models[item], list(evaluated_examples().items())
    settings = params.tokenization.model_dump() | params.evaluate.model_dump(exclude={"dtype"})
    deps = [EXAMPLES_FILE, TOKENIZER_FOLDER, named.base, named.weights]

    from efface.evaluation.suite import example_scores
    from efface.models import load_tokenizer

    model = load_named_model(item, named, dtype=params.evaluate.dtype)
    tokenizer = load_tokenizer(TOKENIZER_FOLDER)
    dtype = str(model.dtype).removeprefix("torch.")
    with scratch_folder("evaluate", item, [settings, params.evaluate.dtype], deps) as folder:
        shards = [folder / f"{start}.parquet" for start in range(0, len(examples), SHARD)]
        for place, shard in enumerate(shards):
            if not shard.is_file():
                part = dict(examples[place * SHARD : (place + 1) * SHARD])
                scores = example_scores(model, tokenizer, part, **settings)
                RESULTS.write(shard, results_frame(scores, model=item, quantization="none", dtype=dtype))
        RESULTS.write(
            Path("data/evaluate") / item / "results.parquet", pl.concat([RESULTS.read(shard) for shard in shards])
        )
