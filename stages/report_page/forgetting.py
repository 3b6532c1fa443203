"""Pictures of what was forgotten, at what price, and on which forget set."""

from collections.abc import Mapping, Sequence

import polars as pl
from matplotlib.figure import Figure

from stages.report_page.style import FAINT, GREY, Look, legend_entries, panels, point, spread, styled

SIDE_BY_SIDE = {"p_forget": "p(forget)", "ks_statistic": "KS distance to retained", "model_utility": "Model utility"}
DASHED = (0, (4, 3))


@styled
def forgetting_against_utility(rows: pl.DataFrame, looks: Mapping[str, Look]) -> Figure:
    """One forget set: every model at its utility and at how much it forgot, with intervals.

    `rows`: edit, and forgotten and model_utility each with `_low` and `_high`.
    """
    figure, (axes,) = panels(1, height=4.6)
    for row in rows.iter_rows(named=True):
        if row["edit"] == "retained":
            axes.axhline(row["forgotten"], color=GREY, linewidth=1, linestyle=DASHED, zorder=1)
            axes.axvline(row["model_utility"], color=GREY, linewidth=1, linestyle=DASHED, zorder=1)
        point(axes, row, "model_utility", "forgotten", looks[row["edit"]])
    axes.set(
        xlabel="Model utility (nine-part harmonic mean), higher keeps more →",
        ylabel="Forgotten: 1 − p(forget) →",
        ylim=(-0.04, 1.06),
    )
    shown = {edit: looks[edit] for edit in rows["edit"]}
    figure.legend(handles=legend_entries(shown), loc="outside right center", title="model")
    return figure


@styled
def sets_compared(rows: pl.DataFrame, sets: Sequence[str], looks: Mapping[str, Look]) -> Figure:
    """Every edit that ran on several forget sets: how each metric depends on which set was forgotten.

    `rows`: forget_set, edit, and the columns of SIDE_BY_SIDE each with `_low` and `_high`.
    """
    shown = {edit: look for edit, look in looks.items() if edit in rows["edit"].to_list()}
    metrics = [metric for metric in SIDE_BY_SIDE if rows[metric].is_not_null().any()]
    figure, axes = panels(len(metrics), height=3.9)
    offsets = spread(list(shown))
    for each, metric in zip(axes, metrics, strict=True):
        for row in rows.iter_rows(named=True):
            place = sets.index(row["forget_set"]) + offsets[row["edit"]]
            point(each, {**row, "place": place}, "place", metric, shown[row["edit"]])
        for border in range(1, len(sets)):
            each.axvline(border - 0.5, color=FAINT, linewidth=0.8)
        each.set(xticks=range(len(sets)), xlim=(-0.5, len(sets) - 0.5), title=SIDE_BY_SIDE[metric])
        each.set_xticklabels(sets, rotation=20 if len(sets) > 3 else 0)
        each.set_ylim(bottom=min(0.0, each.get_ylim()[0]))
        each.grid(False, axis="x")
    figure.legend(handles=legend_entries(shown), loc="outside lower center", ncols=min(len(shown), 6))
    return figure
