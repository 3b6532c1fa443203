"""The few numbers that a reader looks at first: as a text table, and nested for `dvc metrics show`."""

from pathlib import Path

import polars as pl

from stages.tables.metrics import METRICS

REPORT = Path("data/report/index.html")
HEADLINE = {
    "forget_probability": ("forget", "probability"),
    "forget_rougeL": ("forget", "rougeL_recall"),
    "forget_extraction_strength": ("forget", "extraction_strength"),
    "forget_truth_ratio": ("forget", "truth_ratio"),
    "forget_quality_p": ("forget", "forget_quality_p"),
    "model_utility": ("utility", "model_utility"),
    "final_score": ("all", "final_score"),
    "recovery": ("forget", "recovery_rate_probability"),
}
COLUMNS = {
    "forget_probability": "p(forget)",
    "forget_rougeL": "ROUGE-L",
    "forget_extraction_strength": "ES",
    "forget_quality_p": "FQ p",
    "model_utility": "MU",
    "final_score": "Final",
    "recovery": "recovery",
}
ABSENT = "–"


def main(item: str | None = None) -> None:
    print(results_table(METRICS.read("data/compare/metrics.parquet")))
    print(f"\nreport: {REPORT}")


def headline(metrics: pl.DataFrame) -> dict[str, dict[str, dict[str, float]]]:
    """Model → quantization → headline metric, rounded to six significant digits; undefined ones are left out.

    An edited or retained model is shown on its own forget set, the target on the first.
    """
    first = metrics.filter(pl.col("edit") == "target")["forget_set"].first()
    own = (
        pl.when(pl.col("edit") == "retained")
        .then(pl.col("model").str.strip_prefix("retained-"))
        .when(pl.col("edit") == "target")
        .then(pl.lit(first))
        .otherwise(pl.col("forget_set"))
    )
    numbers: dict[str, dict[str, dict[str, float]]] = {}
    for (model, quantization), found in _numbers(metrics.filter(pl.col("forget_set") == own), "model", "quantization"):
        numbers.setdefault(model, {})[quantization] = {name: float(f"{value:.6g}") for name, value in found.items()}
    return numbers


def results_table(metrics: pl.DataFrame) -> str:
    """One line per forget set × edit × quantization; a retained model on its own set only.

    p(forget), ROUGE-L and ES are means over the forget set, lower is better down to the retained model's. FQ p is the
    KS test against the retained model, MU and Final are better high, recovery (of p(forget)) is better low.
    """
    shown = metrics.filter((pl.col("edit") != "retained") | (pl.col("model") == "retained-" + pl.col("forget_set")))
    sets = shown["forget_set"].unique(maintain_order=True).to_list()
    lines = sorted(_numbers(shown, "forget_set", "edit", "quantization"), key=lambda line: sets.index(line[0][0]))
    cells = [[*key, *(_text(name, found.get(name)) for name in COLUMNS)] for key, found in lines]
    return _aligned([["forget set", "method", "quantization", *COLUMNS.values()], *cells])


def _numbers(metrics: pl.DataFrame, *keys: str) -> list[tuple[tuple[str, ...], dict[str, float]]]:
    """The finite headline numbers of each combination of `keys`, which stand in the order of `metrics`."""
    splits, names = zip(*HEADLINE.values(), strict=True)
    wanted = pl.DataFrame({"split": splits, "metric": names, "name": list(HEADLINE)})
    rows = metrics.join(wanted, on=["split", "metric"], maintain_order="left").filter(pl.col("value").is_finite())
    found: dict[tuple[str, ...], dict[str, float]] = {}
    for *key, name, value in rows.select(*keys, "name", "value").iter_rows():
        found.setdefault(tuple(key), {})[name] = value
    return [(key, {name: of_key[name] for name in HEADLINE if name in of_key}) for key, of_key in found.items()]


def _text(name: str, value: float | None) -> str:
    if value is None:
        return ABSENT
    return f"{value:.1e}" if name == "forget_quality_p" and value < 1e-3 else f"{value:.3f}"


def _aligned(rows: list[list[str]]) -> str:
    """Columns of equal width: the first three are words, to the left, then numbers, to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if column < 3 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)
