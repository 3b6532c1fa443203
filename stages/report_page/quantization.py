"""Pictures of what quantization brings back, and why."""

from collections.abc import Sequence

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter, LogLocator, NullLocator

from stages.report_page.style import FAINT, GREY, legend_entries, panels, point, scheme_looks, spread, styled

SMALLEST_RATIO = 1e-3


@styled
def recovery(rows: pl.DataFrame, sets: Sequence[str], schemes: Sequence[str]) -> Figure:
    """p(forget) of every model before and after quantization, a panel per forget set.

    `rows`: forget_set, edit, quantization, p_forget with `_low` and `_high`, in the order of edits.
    """
    edits = rows["edit"].unique(maintain_order=True).to_list()
    looks = scheme_looks(["none", *schemes])
    offsets = spread(list(looks))
    figure, axes = panels(len(sets), height=1.5 + 0.36 * len(edits), sharey=True)
    for each, name in zip(axes, sets, strict=True):
        for row in rows.filter(forget_set=name).iter_rows(named=True):
            place = edits.index(row["edit"]) + offsets[row["quantization"]]
            point(each, {**row, "place": place}, "p_forget", "place", looks[row["quantization"]], size=5)
        _rows_of_edits(each, edits)
        each.set(title=name, xlabel="p(forget)", xlim=(-0.06, 1.06), xticks=(0, 0.5, 1))
        each.xaxis.set_major_formatter(FormatStrFormatter("%g"))
    figure.legend(handles=legend_entries(looks), loc="outside lower center", ncols=len(looks), title="quantization")
    return figure


@styled
def code_changes(rows: pl.DataFrame, schemes: Sequence[str]) -> Figure:
    """What quantization leaves of every edited matrix: changed codes, and the size of the change that survives.

    `rows`: edit, scheme, changed_code_share, surviving_ratio; one row per edited module.
    """
    edits = rows["edit"].unique(maintain_order=True).to_list()
    looks = {name: look for name, look in scheme_looks(["none", *schemes]).items() if name != "none"}
    offsets = spread(list(looks))
    figure, (share, ratio) = panels(2, height=1.6 + 0.36 * len(edits), sharey=True)
    for scheme, (colour, marker) in looks.items():
        part = rows.filter(scheme=scheme)
        places = [edits.index(edit) + offsets[scheme] for edit in part["edit"]]
        for axes, values in (
            (share, part["changed_code_share"] * 100),
            (ratio, part["surviving_ratio"].clip(SMALLEST_RATIO)),
        ):
            axes.plot(values, places, marker, color=colour, markersize=4.5, alpha=0.6, markeredgewidth=0)
    for axes in (share, ratio):
        _rows_of_edits(axes, edits)
    share.set(title="Codes that differ from the quantized target’s", xlim=(-3, 103))
    share.set_xlabel("share of the matrix’s codes, %")
    ratio.axvline(1, color=GREY, linewidth=1, linestyle=(0, (4, 3)))
    ratio.set(title="Size of what survives", xlabel="‖Q(W+P) − Q(W)‖ / ‖P‖ (log scale)", xscale="log")
    ratio.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ratio.xaxis.set_major_formatter(FormatStrFormatter("%g"))
    ratio.xaxis.set_minor_locator(NullLocator())
    figure.legend(handles=legend_entries(looks), loc="outside lower center", ncols=len(looks), title="quantization")
    return figure


def _rows_of_edits(axes: Axes, edits: Sequence[str]) -> None:
    """One row per edit from the top, with lines between them."""
    for border in range(1, len(edits)):
        axes.axhline(border - 0.5, color=FAINT, linewidth=0.8)
    axes.set(yticks=range(len(edits)), yticklabels=edits, ylim=(len(edits) - 0.5, -0.5))
    axes.grid(False, axis="y")
