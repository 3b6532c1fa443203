"""What a comparison starts from: which examples each split averages, and the per-example scores of a model."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from efface.evaluation.aggregate import author_resamples
from efface.evaluation.comparison import Scores, Split
from stages.params import Params
from stages.tables.anchors import ALL_RUNS, ANCHORS
from stages.tables.examples import EXAMPLES
from stages.tables.forget_sets import forgotten_ids
from stages.tables.results import RESULTS

DATA = Path("data")
UNQUANTIZED = "none"
SPLITS = {
    "retain": pl.col("utility") & (pl.col("split") == "authors"),
    "real_authors": pl.col("utility") & (pl.col("split") == "real_authors"),
    "world_facts": pl.col("utility") & (pl.col("split") == "world_facts"),
    "holdout": pl.col("split") == "holdout",
}


@dataclass(frozen=True)
class Results:
    """Per-example scores and floating-point type of one model, by quantization."""

    scores: Mapping[str, Scores]
    dtypes: Mapping[str, str]


def read_splits(forget_set: str, params: Params) -> dict[str, Split]:
    """The examples of each split, anchors excluded, with their draws; splits that the corpus lacks are left out.

    Raises: ValueError where nothing of the forget set remains.
    """
    anchors = ANCHORS.read(DATA / "select_anchors/anchors.parquet").filter(source=ALL_RUNS)["id"]
    examples = EXAMPLES.read(DATA / "prepare_data/examples.parquet").filter(~pl.col("id").is_in(anchors.implode()))
    forgotten = forgotten_ids(DATA / "forget_sets" / f"{forget_set}.parquet")
    chosen = {"forget": pl.col("id").is_in(forgotten.implode()), **SPLITS}
    splits = {}
    for place, (name, rows) in enumerate(chosen.items()):
        ids, authors = examples.filter(rows).sort("id").select("id", "author")
        if len(ids):
            draws = author_resamples(authors.to_numpy(), draws=params.compare.bootstrap, seed=[params.seed, place])
            splits[name] = Split(name, tuple(ids), draws)
    if "forget" not in splits:
        raise ValueError(f"forget set {forget_set!r}: none of its {len(forgotten)} ids is an example that is no anchor")
    return splits


def read_results(model: str) -> Results:
    """What `evaluate` and `quantize_attack` measured on one model, the unquantized first."""
    frames = [RESULTS.read(DATA / stage / model / "results.parquet") for stage in ("evaluate", "quantize_attack")]
    keys = ["quantization", "dtype", "metric"]
    scores: dict[str, dict[str, dict[int, float]]] = {}
    dtypes: dict[str, str] = {}
    for (quantization, dtype, metric), rows in pl.concat(frames).group_by(keys, maintain_order=True):
        dtypes[str(quantization)] = str(dtype)
        scores.setdefault(str(quantization), {})[str(metric)] = dict(zip(rows["id"], rows["value"], strict=True))
    return Results(scores, dtypes)
