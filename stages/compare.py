"""Joins the results of the models named in params: metrics with intervals, recovery, differences, headline."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow as pa
from tqdm import tqdm

from efface.evaluation.comparison import (
    Measurement,
    Scores,
    Split,
    forget_quality_measurements,
    paired_measurements,
    recovery_measurements,
    split_measurements,
    utility_measurements,
)
from efface.evaluation.directions import direction
from efface.evaluation.pairwise import Difference, pairwise_differences
from stages.comparison_inputs import UNQUANTIZED, Results, read_results, read_splits
from stages.params import Compare, Params, load_params
from stages.results_table import headline
from stages.tables.metrics import METRICS
from stages.tables.paired import PAIRED
from stages.tables.pairwise import PAIRWISE
from stages.tables.table import Table

OUTPUT = Path("data/compare")


@dataclass(frozen=True)
class Variant:
    """One model at one quantization beside one forget set, and the references that it can be compared with."""

    key: dict[str, str | int]
    results: Results
    others: Mapping[str, Results]

    @property
    def quantization(self) -> str:
        return str(self.key["quantization"])

    @property
    def scores(self) -> Scores:
        return self.results.scores[self.quantization]

    def other(self, kind: str) -> Scores:
        return self.others[kind].scores[self.quantization]


def main(item: str | None = None) -> None:
    params = load_params()
    splits = {forget_set: read_splits(forget_set, params) for forget_set in params.sets}
    metrics, paired = [], []
    edited: dict[tuple[str, str], dict[str, Scores]] = {}
    for variant in tqdm(_variants(params), desc="compare", unit="variant"):
        of_set = splits[str(variant.key["forget_set"])]
        try:
            metrics += _metric_rows(variant, of_set, params.compare)
            paired += _paired_rows(variant, of_set, params.compare)
        except ValueError as error:
            raise ValueError(f"{variant.key['model']}, quantization {variant.quantization}: {error}") from error
        if params.models[str(variant.key["model"])].edit:
            same = edited.setdefault((str(variant.key["forget_set"]), variant.quantization), {})
            same[str(variant.key["edit"])] = variant.scores
    METRICS.write(OUTPUT / "metrics.parquet", _frame(metrics, METRICS))
    PAIRED.write(OUTPUT / "paired.parquet", _frame(paired, PAIRED))
    PAIRWISE.write(OUTPUT / "pairwise.parquet", _frame(list(_pairwise_rows(edited, splits, params)), PAIRWISE))
    numbers = headline(METRICS.read(OUTPUT / "metrics.parquet"))
    (OUTPUT / "metrics.json").write_text(json.dumps(numbers, indent=2) + "\n")


def _variants(params: Params) -> Iterator[Variant]:
    """The target, then the retained models, beside every set; then every edited model beside its own."""
    models = dict(sorted(params.models.items(), key=lambda pair: (pair[1].edit is not None, pair[0] != "target")))
    references = {name: read_results(name) for name, model in models.items() if model.edit is None}
    for name, model in models.items():
        results = references[name] if name in references else read_results(name)
        for forget_set in [model.set] if model.edit and model.set else params.sets:
            beside = {"target": references.get("target"), "retained": references.get(f"retained-{forget_set}")}
            key = {
                "profile": params.profile,
                "model": name,
                "edit": model.edit or ("target" if name == "target" else "retained"),
                "forget_set": forget_set,
                "seed": params.seed,
            }
            others = {kind: other for kind, other in beside.items() if other and other is not results}
            for quantization in results.scores:
                yield Variant(key | {"quantization": quantization}, results, others)


def _metric_rows(variant: Variant, splits: Mapping[str, Split], settings: Compare) -> list[dict]:
    """Rows of METRICS; what needs a reference that is not there, or the model's own reference, is left out."""
    confidence, forget = settings.confidence, splits["forget"]
    found = split_measurements(variant.scores, splits.values(), confidence=confidence)
    found += utility_measurements(variant.scores, splits, confidence=confidence)
    if "retained" in variant.others:
        found += forget_quality_measurements(variant.scores, variant.other("retained"), forget, confidence=confidence)
    if "target" in variant.others and variant.quantization != UNQUANTIZED:
        found += recovery_measurements(
            variant.results.scores[UNQUANTIZED],
            variant.scores,
            variant.other("target"),
            forget,
            minimal_gap=settings.minimal_gap,
            confidence=confidence,
        )
    fields = variant.key | {"dtype": variant.results.dtypes[variant.quantization]}
    return [fields | _fields(each, "value") | {"direction": direction(each.metric, each.split)} for each in found]


def _paired_rows(variant: Variant, splits: Mapping[str, Split], settings: Compare) -> list[dict]:
    """Rows of PAIRED: this model minus each reference at the same quantization."""
    return [
        variant.key | {"reference": kind} | _fields(each, "mean_difference")
        for kind in variant.others
        for each in paired_measurements(
            variant.scores, variant.other(kind), splits.values(), confidence=settings.confidence
        )
    ]


def _pairwise_rows(
    edited: Mapping[tuple[str, str], Mapping[str, Scores]],
    splits: Mapping[str, Mapping[str, Split]],
    params: Params,
) -> Iterator[dict]:
    """Rows of PAIRWISE, from the scores of every edit on each forget set at each quantization."""
    for (forget_set, quantization), models in edited.items():
        key = {"profile": params.profile, "forget_set": forget_set, "quantization": quantization}
        for found in pairwise_differences(models, splits[forget_set], confidence=params.compare.confidence):
            names = {"first": found.first, "second": found.second, "p": found.p, "p_holm": found.p_holm}
            yield key | names | _fields(found, "difference")


def _fields(measurement: Measurement | Difference, value: str) -> dict[str, str | float | int | None]:
    """The columns that one measurement fills; `value` names the column of its value."""
    estimate = measurement.estimate
    return {
        "split": measurement.split,
        "metric": measurement.metric,
        value: estimate.value,
        "n": estimate.n,
        "ci_low": estimate.low,
        "ci_high": estimate.high,
    }


def _frame(rows: list[dict], table: Table) -> pl.DataFrame:
    return pl.DataFrame(pa.Table.from_pylist(rows, schema=table.schema))
