"""Pictures of what was forgotten, at what price, and what quantization brings back."""

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter, LogLocator, NullLocator

from stages.report_page.style import FAINT, GREY, INK, Look, legend_entries, panels, styled

FORGOTTEN, UTILITY = "Forgotten: 1 − p(forget)", "Model utility (nine-part harmonic mean)"
QUANTIZED = ("#0072B2", "#E69F00", "#CC79A7", "#009E73", "#882255", "#56B4E9")
QUANTIZED_MARKERS = ("D", "^", "v", "P", "X", "h")
SIDE_BY_SIDE = {"p_forget": "p(forget)", "ks_statistic": "KS distance to retained", "model_utility": "Model utility"}


@styled
def forgetting_against_utility(rows: pl.DataFrame, looks: Mapping[str, Look]) -> Figure:
    """One forget set: every model at its utility and at how much it forgot, with intervals.

    `rows`: edit, and forgotten and model_utility each with `_low` and `_high`.
    """
    figure, (axes,) = panels(1, height=4.6)
    for row in rows.iter_rows(named=True):
        if row["edit"] == "retained":
            axes.axhline(row["forgotten"], color=GREY, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
            axes.axvline(row["model_utility"], color=GREY, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
        _point(axes, row, "model_utility", "forgotten", looks[row["edit"]])
    axes.set(xlabel=f"{UTILITY}, higher keeps more →", ylabel=f"{FORGOTTEN} →", ylim=(-0.04, 1.06))
    shown = {edit: looks[edit] for edit in rows["edit"]}
    figure.legend(handles=legend_entries(shown), loc="outside right center", title="model")
    return figure


@styled
def sets_compared(rows: pl.DataFrame, sets: Sequence[str], looks: Mapping[str, Look]) -> Figure:
    """Every edit that ran on several forget sets: how each metric depends on which set was forgotten.

    `rows`: forget_set, edit, and the columns of SIDE_BY_SIDE each with `_low` and `_high`.
    """
    shown = [edit for edit in looks if edit in rows["edit"].to_list()]
    metrics = [metric for metric in SIDE_BY_SIDE if rows[metric].is_not_null().any()]
    figure, axes = panels(len(metrics), height=3.9)
    offsets = dict(zip(shown, np.linspace(-0.28, 0.28, len(shown)), strict=True)) if len(shown) > 1 else {shown[0]: 0.0}
    for each, metric in zip(axes, metrics, strict=True):
        for edit in shown:
            of_edit = rows.filter(pl.col("edit") == edit, pl.col(metric).is_not_null())
            for row in of_edit.iter_rows(named=True):
                place = {"x": sets.index(row["forget_set"]) + offsets[edit], "x_low": None, "x_high": None}
                _point(each, row | place, "x", metric, looks[edit])
        for place in range(len(sets) - 1):
            each.axvline(place + 0.5, color=FAINT, linewidth=0.8)
        each.set(xticks=range(len(sets)), xlim=(-0.5, len(sets) - 0.5), title=SIDE_BY_SIDE[metric])
        each.set_xticklabels(sets, rotation=20 if len(sets) > 3 else 0)
        each.grid(False, axis="x")
        each.set_ylim(bottom=min(0.0, each.get_ylim()[0]))
    figure.legend(
        handles=legend_entries({edit: looks[edit] for edit in shown}),
        loc="outside lower center",
        ncols=min(len(shown), 6),
    )
    return figure


@styled
def recovery(rows: pl.DataFrame, sets: Sequence[str], schemes: Sequence[str]) -> Figure:
    """p(forget) of every model before and after quantization, a panel per forget set.

    `rows`: forget_set, edit, quantization, p_forget with `_low` and `_high`, in the order of edits.
    """
    edits = rows["edit"].unique(maintain_order=True).to_list()
    named = {"none": (INK, "o")} | {
        scheme: (QUANTIZED[i % len(QUANTIZED)], QUANTIZED_MARKERS[i % len(QUANTIZED_MARKERS)])
        for i, scheme in enumerate(scheme for scheme in schemes if scheme != "none")
    }
    figure, axes = panels(len(sets), height=1.5 + 0.36 * len(edits), sharey=True)
    offsets = dict(zip(named, np.linspace(-0.26, 0.26, len(named)), strict=True))
    for each, name in zip(axes, sets, strict=True):
        for row in rows.filter(forget_set=name).iter_rows(named=True):
            place = {"y": edits.index(row["edit"]) + offsets[row["quantization"]], "y_low": None, "y_high": None}
            _point(each, row | place, "p_forget", "y", named[row["quantization"]], size=5)
        for place in range(len(edits) - 1):
            each.axhline(place + 0.5, color=FAINT, linewidth=0.8)
        each.set(title=name, xlabel="p(forget)", xlim=(-0.06, 1.06), xticks=(0, 0.5, 1))
        each.set(yticks=range(len(edits)), yticklabels=edits)
        each.xaxis.set_major_formatter(FormatStrFormatter("%g"))
        each.set_ylim(len(edits) - 0.5, -0.5)
        each.grid(False, axis="y")
    figure.legend(handles=legend_entries(named), loc="outside lower center", ncols=len(named), title="quantization")
    return figure


@styled
def code_changes(rows: pl.DataFrame, schemes: Sequence[str]) -> Figure:
    """What quantization leaves of every edited matrix: changed codes, and the size of the change that survives.

    `rows`: edit, scheme, changed_code_share, surviving_ratio; one row per edited module.
    """
    edits = rows["edit"].unique(maintain_order=True).to_list()
    named = {
        scheme: (QUANTIZED[i % len(QUANTIZED)], QUANTIZED_MARKERS[i % len(QUANTIZED_MARKERS)])
        for i, scheme in enumerate(schemes)
    }
    figure, (share, ratio) = panels(2, height=1.6 + 0.36 * len(edits), sharey=True)
    offsets = (
        dict(zip(named, np.linspace(-0.24, 0.24, len(named)), strict=True)) if len(named) > 1 else {schemes[0]: 0.0}
    )
    for scheme, (colour, marker) in named.items():
        of_scheme = rows.filter(scheme=scheme)
        places = [edits.index(edit) + offsets[scheme] for edit in of_scheme["edit"]]
        look = {
            "color": colour,
            "marker": marker,
            "linestyle": "none",
            "markersize": 4.5,
            "alpha": 0.6,
            "markeredgewidth": 0,
        }
        share.plot(of_scheme["changed_code_share"] * 100, places, **look)
        ratio.plot(of_scheme["surviving_ratio"].clip(1e-3), places, **look)
    for each in (share, ratio):
        for place in range(len(edits) - 1):
            each.axhline(place + 0.5, color=FAINT, linewidth=0.8)
        each.set(yticks=range(len(edits)), yticklabels=edits, ylim=(len(edits) - 0.5, -0.5))
        each.grid(False, axis="y")
    share.set(
        title="Codes that differ from the quantized target’s", xlabel="share of the matrix’s codes, %", xlim=(-3, 103)
    )
    ratio.axvline(1, color=GREY, linewidth=1, linestyle=(0, (4, 3)))
    ratio.set(title="Size of what survives", xlabel="‖Q(W+P) − Q(W)‖ / ‖P‖ (log scale)", xscale="log")
    ratio.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ratio.xaxis.set_major_formatter(FormatStrFormatter("%g"))
    ratio.xaxis.set_minor_locator(NullLocator())
    figure.legend(handles=legend_entries(named), loc="outside lower center", ncols=len(named), title="quantization")
    return figure


def _point(axes: Axes, row: Mapping, x: str, y: str, look: Look, size: float = 7) -> None:
    """One marker, with an interval along each quantity that has one."""
    if row[x] is None or row[y] is None:
        return
    colour, marker = look
    axes.errorbar(
        row[x],
        row[y],
        xerr=_interval(row, x),
        yerr=_interval(row, y),
        color=colour,
        marker=marker,
        markersize=size + 4 if marker == "*" else size,
        markeredgecolor="white",
        markeredgewidth=0.6,
        elinewidth=1.1,
        zorder=3,
    )


def _interval(row: Mapping, name: str) -> np.ndarray | None:
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    if low is None or high is None:
        return None
    return np.array([[max(row[name] - low, 0.0)], [max(high - row[name], 0.0)]])
