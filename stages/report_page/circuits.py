"""Pictures of where circuits run, and of what sets easy ones apart from hard ones."""

from collections.abc import Mapping

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stages.report_page.signatures import Shapes
from stages.report_page.style import COLOURS, GREY, INK, WIDTH, Look, legend_entries, panels, styled


@styled
def circuit_depth(shapes: Mapping[str, Shapes], looks: Mapping[str, Look]) -> Figure:
    """Mean path length per example, and in which layers edges start and end, by forget set."""
    figure, (length, start, stop) = panels(3, height=3.5)
    every = [value for of_set in shapes.values() for value in of_set.path_lengths]
    bins = list(np.linspace(min(every), max(every) + 1e-9, 13))
    for place, (name, of_set) in enumerate(shapes.items()):
        colour, offset = looks[name][0], (place - (len(shapes) - 1) / 2) * 0.8 / len(shapes)
        length.hist(of_set.path_lengths, bins=bins, histtype="stepfilled", color=colour, alpha=0.35)
        length.hist(of_set.path_lengths, bins=bins, histtype="step", color=colour, linewidth=1.6)
        for axes, shares in ((start, of_set.sources), (stop, of_set.destinations)):
            axes.bar(np.arange(len(shares)) + offset, np.array(shares) * 100, width=0.8 / len(shapes), color=colour)
    length.set(title="Length of the mean path", xlabel="edges from input to logits", ylabel="examples")
    layers = len(next(iter(shapes.values())).sources) - 1
    _layer_axis(start, layers, title="Where edges start", kind="source", first="input")
    _layer_axis(stop, layers, title="Where edges end", kind="destination", last="logits")
    shown = {name: (looks[name][0], "s") for name in shapes}
    figure.legend(handles=legend_entries(shown), loc="outside lower center", ncols=len(shown), title="forget set")
    return figure


@styled
def signature_contrasts(rows: pl.DataFrame) -> Figure:
    """Cliff's δ of every statistic with its interval; coloured where the interval leaves out 0.

    `rows`: quantity, cliffs_delta, ci_low, ci_high, from top to bottom.
    """
    figure = Figure(figsize=(WIDTH, 0.9 + 0.22 * len(rows)), layout="constrained")
    axes = figure.subplots()
    axes.axvline(0, color=GREY, linewidth=0.8)
    for place, row in enumerate(rows.iter_rows(named=True)):
        low, high = row["ci_low"], row["ci_high"]
        apart = low is not None and (low > 0 or high < 0)
        colour = INK if not apart else COLOURS[1] if row["cliffs_delta"] > 0 else COLOURS[0]
        if low is not None:
            axes.plot([low, high], [place, place], color=colour, linewidth=1.3)
        axes.plot(row["cliffs_delta"], place, marker="o", color=colour, markersize=5)
    axes.set_yticks(range(len(rows)), rows["quantity"].to_list(), fontsize=8.5)
    axes.set(xlim=(-1.02, 1.02), xlabel="Cliff’s δ: below 0 larger on easy examples, above 0 on hard ones")
    axes.invert_yaxis()
    axes.grid(False, axis="y")
    return figure


def _layer_axis(axes: Axes, layers: int, *, title: str, kind: str, first: str = "", last: str = "") -> None:
    """Layers as ticks, at most seven of them, before or after the one that is no layer."""
    numbers = range(0, layers, max(1, -(-layers // 7)))
    ticks = {number + bool(first): str(number) for number in numbers}
    ticks |= {0: first} if first else {layers: last}
    axes.set_xticks(sorted(ticks), [ticks[place] for place in sorted(ticks)])
    axes.set(title=title, xlabel=f"layer of the {kind}", ylabel="share of a circuit’s edges, %")
    axes.grid(False, axis="x")
