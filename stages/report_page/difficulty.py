"""Pictures of how hard examples are to unlearn, and of whether that was known beforehand."""

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from matplotlib import colormaps
from matplotlib.figure import Figure

from stages.report_page.style import GREY, INK, WIDTH, Look, legend_entries, panels, styled

CUD = "CUD (0 easy … 1 hard)"
PER_ROW = 4


@styled
def difficulty_distribution(rows: pl.DataFrame, looks: Mapping[str, Look], *, bins: int = 36) -> Figure:
    """CUD of the pool, the forget sets that were chosen by it marked, and the anchors as ticks.

    `rows`: cud, group (easy, hard, or other), anchor (easy, hard or null), anchors not counted in the bars.
    """
    figure, (axes,) = panels(1, height=3.7)
    scored, anchors = rows.filter(pl.col("anchor").is_null()), rows.filter(pl.col("anchor").is_not_null())
    low, high = float(rows["cud"].min()), float(rows["cud"].max())  # type: ignore[arg-type]
    margin = max(0.02 * (high - low), 1e-3)
    edges = np.linspace(low - margin, high + margin, bins + 1)
    groups = {"easy": looks["easy"][0], "other": "#c4c4c4", "hard": looks["hard"][0]}
    labels = {"easy": "forget set easy", "other": "rest of the pool", "hard": "forget set hard"}
    axes.hist(
        [scored.filter(group=group)["cud"].to_numpy() for group in groups],
        bins=list(edges),
        stacked=True,
        color=list(groups.values()),
        edgecolor="white",
        linewidth=0.5,
        label=[f"{labels[group]} ({len(scored.filter(group=group))})" for group in groups],
    )
    for role, height in (("easy", -0.035), ("hard", -0.085)):
        values = anchors.filter(anchor=role)["cud"].to_numpy()
        axes.plot(
            values,
            np.full(len(values), height),
            linestyle="none",
            marker="|",
            markersize=8,
            markeredgewidth=1.4,
            color=looks[role][0],
            transform=axes.get_xaxis_transform(),
            clip_on=False,
            label=f"anchors {role} ({len(values)})",
        )
    axes.set(xlabel=CUD, ylabel="examples")
    axes.spines["bottom"].set_visible(False)
    axes.tick_params(axis="x", pad=28, length=0)
    axes.grid(False, axis="x")
    figure.legend(loc="outside right center")
    return figure


@styled
def difficulty_against_forgetting(
    rows: pl.DataFrame, edits: Sequence[str], looks: Mapping[str, Look], correlations: Mapping[str, tuple[float, int]]
) -> Figure:
    """A panel per edit: each forgotten example's CUD against how much its loss rose.

    `rows`: edit, forget_set, cud, forgetting (nats per token). `correlations`: Spearman's ρ and its
    number of examples by edit.
    """
    lines = -(-len(edits) // PER_ROW)
    figure = Figure(figsize=(WIDTH, 0.6 + 3.0 * lines), layout="constrained")
    grid = figure.subplots(lines, min(len(edits), PER_ROW), squeeze=False).flatten()
    for axes in grid[len(edits) :]:
        axes.set_visible(False)
    for axes, edit in zip(grid, edits, strict=False):
        of_edit = rows.filter(edit=edit)
        axes.axhline(0, color=GREY, linewidth=0.8)
        for name, (colour, marker) in looks.items():
            part = of_edit.filter(forget_set=name)
            axes.plot(
                part["cud"], part["forgetting"], linestyle="none", marker=marker, markersize=4.5, alpha=0.75,
                color=colour, markeredgewidth=0,
            )  # fmt: skip
        rho, n = correlations[edit]
        value = "undefined" if np.isnan(rho) else f"{rho:+.2f}".replace("-", "−")
        axes.set_title(edit, pad=19)
        axes.text(0, 1.03, f"ρ {value}, n {n}", transform=axes.transAxes, fontsize=9, color=INK)
        axes.set_xlabel(CUD)
    for axes in grid[::PER_ROW]:
        axes.set_ylabel("rise of answer loss,\nnats per token")
    shown = {name: look for name, look in looks.items() if name in rows["forget_set"].to_list()}
    figure.legend(handles=legend_entries(shown), loc="outside lower center", ncols=len(shown), title="forget set")
    return figure


@styled
def agreement(rows: pl.DataFrame) -> Figure:
    """How alike the ways of computing CUD order the pool: a matrix of Spearman's ρ.

    `rows`: first, second, rho (null where undefined), every pair once.
    """
    names = list(dict.fromkeys([*rows["first"], *rows["second"]]))
    matrix = np.full((len(names), len(names)), np.nan)
    np.fill_diagonal(matrix, 1)
    for first, second, rho in rows.select("first", "second", "rho").iter_rows():
        a, b = names.index(first), names.index(second)
        matrix[a, b] = matrix[b, a] = np.nan if rho is None else rho
    side = 1.2 + 0.36 * len(names)
    figure = Figure(figsize=(min(WIDTH, side + 2.4), min(WIDTH, side + 1.2)), layout="constrained")
    axes = figure.subplots()
    places = np.arange(len(names))
    image = axes.pcolormesh(
        places, places, matrix, vmin=-1, vmax=1, cmap=colormaps["RdBu"].resampled(20), shading="nearest"
    )
    axes.set_aspect("equal")
    axes.invert_yaxis()
    for (a, b), rho in np.ndenumerate(matrix):
        if not np.isnan(rho):
            colour = "white" if abs(rho) > 0.6 else INK
            axes.text(b, a, f"{rho:.2f}".replace("-", "−"), ha="center", va="center", fontsize=6.5, color=colour)
    axes.set_xticks(places, names, rotation=90, fontsize=8)
    axes.set_yticks(places, names, fontsize=8)
    axes.grid(False)
    axes.spines[:].set_visible(False)
    figure.colorbar(image, ax=axes, shrink=0.6, label="Spearman’s ρ")
    return figure
