"""Tables of the page: text cells with their intervals."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

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
    """One table; `top` are headings that span columns, with their widths; cells of `prose` tables break lines."""

    columns: list[Column]
    groups: list[Group]
    top: tuple[tuple[str, int], ...] = ()
    first: str = "method"
    prose: bool = False


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


def differences_grid(pairwise: pl.DataFrame, edits: Sequence[str]) -> Grid:
    """Final score of the row's edit minus the column's, with Holm's p."""
    found = {(row["first"], row["second"]): row for row in pairwise.iter_rows(named=True)}
    rows = []
    for place, first in enumerate(edits[:-1]):
        of_row = [found.get((first, second)) for second in edits[place + 1 :]]
        cells = [Cell("") if row is None else _difference(row) for row in of_row]
        rows.append((first, [Cell("")] * place + cells))
    return Grid([Column(edit) for edit in edits[1:]], [Group("", rows)], first="Final less that of →")


def _difference(row: Mapping) -> Cell:
    return Cell(signed(row["difference"]), f"p {number(row['p_holm'], p_value=True)}")


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


def predictions_grid(predictions: pl.DataFrame, edits: Sequence[str], *, half: str, partial: bool = False) -> Grid:
    """Spearman's ρ of everything known before unlearning with CUD and with the rise of loss under each edit.

    With `partial` what is left of it when all confounds are held fixed, for the predictors that are no confounds.
    """
    fields = ("partial_rho", "partial_low", "partial_high") if partial else ("rho", "ci_low", "ci_high")
    found = {
        (row["predictor"], row["edit"]): row
        for row in predictions.filter(half=half).iter_rows(named=True)
        if row["outcome"] in ("cud", "rise") and (not partial or row[fields[0]] is not None)
    }
    names = list(dict.fromkeys(name for name, _ in found))
    rows = [(name, [_signed(found.get((name, edit)), *fields) for edit in (None, *edits)]) for name in names]
    columns = [Column("with CUD"), *(Column(edit) for edit in edits)]
    top = (("", 1), ("with the rise of loss under", len(edits))) if edits else ()
    return Grid(columns, [Group("", rows)], top, first="known beforehand")


def contrasts_grid(contrasts: pl.DataFrame) -> Grid:
    """Means of the easy and the hard set, and Cliff's δ between them."""
    rows = [
        (
            row["quantity"],
            [
                Cell(number(row["easy_mean"])),
                Cell(number(row["hard_mean"])),
                _signed(row | {"n": None}, "cliffs_delta", "ci_low", "ci_high"),
            ],
        )
        for row in contrasts.iter_rows(named=True)
    ]
    return Grid([Column("easy"), Column("hard"), Column("Cliff’s δ")], [Group("", rows)], first="quantity")


def claims_grid(claims: pl.DataFrame) -> Grid:
    """What each paper claims, what it reports and what was found."""
    columns = ["published", "measured", "verdict"]
    groups = [
        Group(str(paper), [(claim, [Cell(text or ABSENT) for text in texts]) for claim, *texts in rows.rows()])
        for (paper,), rows in claims.group_by("paper", maintain_order=True)
        for rows in [rows.select("claim", *columns)]
    ]
    return Grid([Column(name) for name in columns], groups, first="claim", prose=True)


def faithfulness_shares(faithfulness: pl.DataFrame) -> pl.DataFrame:
    """How far along the metric's way from all ablated (0) to nothing ablated (1) circuits and their complements come.

    By baseline and circuit: ratios of means over examples, so that one whose metric hardly moves does not dominate.
    """
    way = pl.col("metric_whole").mean() - pl.col("metric_empty").mean()
    return faithfulness.group_by("baseline", "circuit", maintain_order=True).agg(
        circuit_share=(pl.col("metric_circuit").mean() - pl.col("metric_empty").mean()) / way,
        complement_share=(pl.col("metric_complement").mean() - pl.col("metric_empty").mean()) / way,
        edges=pl.col("edges").mean(),
        n=pl.len(),
    )


def faithfulness_grid(faithfulness: pl.DataFrame) -> Grid:
    """The shares of circuits, beside random ones."""
    rows = [
        (
            f"{row['circuit']} ({row['baseline']})",
            [
                Cell(number(row["circuit_share"])),
                Cell(number(row["complement_share"])),
                Cell(f"{row['edges']:.0f}"),
                Cell(str(row["n"])),
            ],
        )
        for row in faithfulness_shares(faithfulness).iter_rows(named=True)
    ]
    columns = [Column("circuit alone", HIGHER), Column("circuit ablated", LOWER), Column("edges"), Column("examples")]
    return Grid(columns, [Group("", rows)], first="circuit")


def number(value: float | None, *, p_value: bool = False) -> str:
    """Three decimals; a small p-value by its power of ten; a dash where there is none."""
    if value is None or not math.isfinite(value):
        return ABSENT
    text = f"{value:.1e}" if p_value and value < 1e-3 else f"{value:.3f}"
    return text.replace("-", "−")


def signed(value: float, *, digits: int = 3) -> str:
    """A number with its sign, whatever it is."""
    return f"{value:+.{digits}f}".replace("-", "−")


def _signed(row: Mapping | None, value: str, low: str, high: str) -> Cell:
    """A number between −1 and 1 with its interval and number of examples."""
    if row is None or row[value] is None:
        return Cell(ABSENT)
    interval = "" if row[low] is None else f"{row[low]:+.2f} – {row[high]:+.2f}"
    n = f"n {row['n']}" if row["n"] is not None else ""
    return Cell(signed(row[value], digits=2), ", ".join(filter(None, [interval, n])).replace("-", "−"))


def _cell(row: Mapping, name: str) -> Cell:
    low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
    interval = "" if low is None or high is None else f"{low:.2f} – {high:.2f}".replace("-", "−")
    return Cell(number(row.get(name), p_value=name == "forget_quality_p"), interval)
