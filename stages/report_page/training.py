"""Pictures of training: how the models learnt, and which layers learning changed."""

from collections.abc import Mapping, Sequence

import polars as pl
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter, LogLocator, NullLocator

from stages.report_page.style import INK, Look, panels, styled


@styled
def layer_energies(rows: pl.DataFrame, sets: Sequence[str]) -> Figure:
    """A panel per forget set: which layers training on its rows changes, beside training on retained rows.

    `rows`: forget_set, layer, partition, energy_share; one row per layer and partition.
    """
    figure, axes = panels(len(sets), height=3.2, sharey=True)
    colours = {"forget": "#D55E00", "retain": "#56B4E9"}
    for each, name in zip(axes, sets, strict=True):
        of_set = rows.filter(forget_set=name)
        layers = sorted(of_set["layer"].unique())
        for place, (partition, colour) in enumerate(colours.items()):
            part = of_set.filter(partition=partition).sort("layer")
            each.bar(
                part["layer"].to_numpy() + (place - 0.5) * 0.4, part["energy_share"] * 100, width=0.4, color=colour,
                label=f"T of {partition} rows",
            )  # fmt: skip
        each.axhline(100 / len(layers), color=INK, linewidth=1, linestyle=(0, (4, 3)), label="1 / number of layers")
        each.set(title=name, xlabel="layer", xticks=layers[:: max(1, len(layers) // 8)])
        each.grid(False, axis="x")
    axes[0].set_ylabel("energy share E, %")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


@styled
def loss_curves(curves: Mapping[str, pl.DataFrame], looks: Mapping[str, Look]) -> Figure:
    """Training loss of the target and of the retained models. `curves`: epoch and loss by model."""
    figure, (axes,) = panels(1, height=3.4)
    for name, curve in curves.items():
        colour = INK if name == "target" else looks[name.removeprefix("retained-")][0]
        axes.plot(curve["epoch"], curve["loss"], color=colour, linewidth=1.8 if name == "target" else 1.1, label=name)
    axes.set(xlabel="epoch", ylabel="answer loss, nats per token (log scale)", yscale="log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FormatStrFormatter("%g"))
    axes.yaxis.set_minor_locator(NullLocator())
    figure.legend(loc="outside right center")
    return figure
