"""Tables of the page: text cells with their intervals."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from efface.difficulty.rank_correlation import spearman

ABSENT = "–"
HIGHER, LOWER, NEARER, NONE = "↑", "↓", "→ retained", ""
RESULTS_COLUMNS = {
    "p_forget": ("p(forget)", LOWER),
    "rougeL": ("ROUGE\u2011L", LOWER),
    "extraction_strength": ("extraction strength", LOWER),
    "truth_ratio": ("truth ratio", NEARER),
    "forget_quality_p": ("forget quality p", HIGHER),
    "ks_statistic": ("KS distance", LOWER),
    "model_utility": ("model utility", HIGHER),
    "final_score": ("Final", HIGHER),
}


@dataclass(frozen=True)
class Cell:
    """A value, and its interval where it has one."""

    text: str
    interval: str = ""


@dataclass(frozen=True)
class Column:
    """Heading, and which way is better."""

    label: str
    better: str = NONE


@dataclass(frozen=True)
class Group:
    """Rows under one heading; the first cell of a row names it."""

    label: str
    rows: list[tuple[str, list[Cell]]]


@dataclass(frozen=True)
class Grid:
    """One table; `top` are headings that span columns, with their widths."""

    columns: list[Column]
    groups: list[Group]
    top: tuple[tuple[str, int], ...] = ()
    first: str = "method"


def results_grid(outcomes: pl.DataFrame, sets: Sequence[str]) -> Grid:
    """Every model at full precision, by forget set; measures that were not taken have no column."""
    rows = outcomes.filter(quantization="none")
    names = [name for name in RESULTS_COLUMNS if rows[name].is_not_null().any()]
    groups = [
        Group(
            f"forget set {forget_set}",
            [
                (row["edit"], [_cell(row, name) for name in names])
                for row in rows.filter(forget_set=forget_set).iter_rows(named=True)
            ],
        )
        for forget_set in sets
    ]
    return Grid([Column(*RESULTS_COLUMNS[name]) for name in names], groups)


def quantized_grid(outcomes: pl.DataFrame, sets: Sequence[str], schemes: Sequence[str]) -> Grid:
    """p(forget), recovery and p(retain) of every model under every quantization scheme, by forget set."""
    blocks = (
        ("p_forget", "p(forget)", LOWER, True),
        ("recovery", "recovery", LOWER, False),
        ("p_retain", "p(retain)", HIGHER, True),
    )
    columns = [
        (name, scheme, better)
        for name, _, better, plain in blocks
        for scheme in (["none", *schemes] if plain else schemes)
    ]
    by_key = {(row["forget_set"], row["edit"], row["quantization"]): row for row in outcomes.iter_rows(named=True)}
    groups = []
    for forget_set in sets:
        edits = outcomes.filter(forget_set=forget_set)["edit"].unique(maintain_order=True)
        rows = [
            (edit, [_cell(by_key.get((forget_set, edit, scheme), {}), name) for name, scheme, _ in columns])
            for edit in edits
        ]
        groups.append(Group(f"forget set {forget_set}", rows))
    top = tuple((label, len(schemes) + plain) for _, label, _, plain in blocks)
    return Grid([Column(scheme, better) for _, scheme, better in columns], groups, top)


def correlation_grid(values: Mapping[str, Mapping[int, float]], forgetting: pl.DataFrame, edits: Sequence[str]) -> Grid:
    """Spearman's ρ of everything known before unlearning with CUD and with each edit's actual forgetting.

    `values`: predictor → example → value, CUD among them.
    """
    cud = values["cud"]
    rows = []
    for name, of_name in values.items():
        cells = [Cell(ABSENT) if name == "cud" else _rho(of_name, cud)]
        for edit in edits:
            cells.append(_rho(of_name, rise_by_example(forgetting, edit)))
        rows.append((name, cells))
    columns = [Column("with CUD"), *(Column(edit) for edit in edits)]
    top = (("", 1), ("with the rise of loss under", len(edits))) if edits else ()
    return Grid(columns, [Group("", rows)], top, first="known beforehand")


def number(value: float | None, *, p_value: bool = False) -> str:
    """Three decimals; a small p-value by its power of ten; a dash where there is none."""
    if value is None or not math.isfinite(value):
        return ABSENT
    text = f"{value:.1e}" if p_value and value < 1e-3 else f"{value:.3f}"
    return text.replace("-", "−")


def rank_correlation(one: Mapping[int, float], other: Mapping[int, float]) -> tuple[float, int]:
    """Spearman's ρ over the examples that both have, and their number; NaN below three."""
    common = [example for example in one if example in other]
    if len(common) < 3:
        return math.nan, len(common)
    return spearman([one[example] for example in common], [other[example] for example in common]), len(common)


def rise_by_example(forgetting: pl.DataFrame, edit: str) -> dict[int, float]:
    """Rise of the answer loss under one edit; the mean where an example is in several forget sets."""
    rows = forgetting.filter(edit=edit).group_by("id", maintain_order=True).agg(pl.col("forgetting").mean())
    return dict(rows.iter_rows())


def _rho(one: Mapping[int, float], other: Mapping[int, float]) -> Cell:
    rho, n = rank_correlation(one, other)
    return Cell(ABSENT if math.isnan(rho) else f"{rho:+.2f}".replace("-", "−"), f"n {n}")


def _cell(row: Mapping, name: str) -> Cell:
    low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
    interval = "" if low is None or high is None else f"{low:.2f} – {high:.2f}".replace("-", "−")
    return Cell(number(row.get(name), p_value=name == "forget_quality_p"), interval)
