"""How pictures look: colours that colour-blind readers can tell apart, never without a marker, and stable bytes."""

import base64
import functools
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

INK, GREY, FAINT = "#222222", "#767676", "#d0d0d0"
WIDTH = 9.6
REFERENCES = {"target": (INK, "s"), "retained": (INK, "*")}
# Okabe and Ito's palette without black and yellow, then four of Paul Tol's.
COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#332288", "#882255", "#999933", "#44AA99",
)  # fmt: skip
MARKERS = ("o", "D", "^", "v", "P", "X", "<", ">", "h", "p")
SET_LOOKS = {"easy": ("#0072B2", "o"), "default": ("#009E73", "^"), "hard": ("#D55E00", "D")}
OTHER_SETS = (("#CC79A7", "v"), ("#56B4E9", "P"), ("#882255", "X"), ("#999933", "h"))
SCHEMES = (
    (INK, "o"), ("#0072B2", "D"), ("#E69F00", "^"), ("#CC79A7", "v"), ("#009E73", "P"), ("#882255", "X"),
    ("#56B4E9", "h"),
)  # fmt: skip
RC = {
    "axes.axisbelow": True,
    "axes.edgecolor": GREY,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "font.size": 10,
    "grid.color": "#ececec",
    "legend.fontsize": 9.5,
    "legend.frameon": False,
    "svg.fonttype": "path",
    "svg.hashsalt": "efface",
    "xtick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.color": GREY,
    "ytick.labelcolor": INK,
}
Look = tuple[str, str]


def edit_looks(edits: Sequence[str]) -> dict[str, Look]:
    """Colour and marker of the two references and of every edit, the same in all pictures; no two edits share both."""
    own = {
        edit: (COLOURS[i % len(COLOURS)], MARKERS[(i + i // len(COLOURS)) % len(MARKERS)])
        for i, edit in enumerate(edits)
    }
    return {**REFERENCES, **own}


def set_looks(sets: Sequence[str]) -> dict[str, Look]:
    """Colour and marker of every forget set, the same in all pictures."""
    others = [name for name in sets if name not in SET_LOOKS]
    own = {name: OTHER_SETS[i % len(OTHER_SETS)] for i, name in enumerate(others)}
    return {name: SET_LOOKS.get(name) or own[name] for name in sets}


def scheme_looks(schemes: Sequence[str]) -> dict[str, Look]:
    """Colour and marker of every quantization scheme, `none` first."""
    return {name: SCHEMES[i % len(SCHEMES)] for i, name in enumerate(schemes)}


def spread(names: Sequence[str], *, half: float = 0.26) -> dict[str, float]:
    """Offsets from the middle of a row or column, so that markers do not cover each other."""
    return dict(zip(names, np.linspace(-half, half, len(names)) if len(names) > 1 else [0.0], strict=True))


def styled(draw: Callable[..., Figure]) -> Callable[..., Figure]:
    """Runs a drawing function under this style, whatever the user's own matplotlibrc says."""

    @functools.wraps(draw)
    def in_style(*args: Any, **kwargs: Any) -> Figure:
        with matplotlib.style.context(["default", RC]):
            return draw(*args, **kwargs)

    return in_style


def panels(count: int, *, height: float, width: float = WIDTH, **shared: Any) -> tuple[Figure, list[Axes]]:
    """A figure of this size in inches with `count` axes side by side."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(figure.subplots(1, count, squeeze=False, **shared)[0])


def legend_entries(named: dict[str, Look]) -> list[Line2D]:
    """Marker and colour by name."""
    return [
        Line2D([], [], color=colour, marker=marker, label=name, linestyle="none", markersize=10 if marker == "*" else 7)
        for name, (colour, marker) in named.items()
    ]


def point(axes: Axes, row: Mapping[str, Any], x: str, y: str, look: Look, *, size: float = 7) -> None:
    """One marker at (row[x], row[y]) with the interval of each that has one; nothing where a value is missing."""
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


def svg(figure: Figure) -> str:
    """The picture as a data URI, the same bytes for the same picture."""
    return "data:image/svg+xml;base64," + base64.b64encode(_saved(figure, "svg", Date=None, Creator=None)).decode()


def png(figure: Figure) -> bytes:
    """The picture as a PNG file of twice the usual density."""
    return _saved(figure, "png", Software=None)


def _interval(row: Mapping[str, Any], name: str) -> np.ndarray | None:
    """Distances from the value to the ends of its interval, as matplotlib wants them."""
    low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
    if low is None or high is None:
        return None
    return np.array([[max(row[name] - low, 0.0)], [max(high - row[name], 0.0)]])


def _saved(figure: Figure, kind: str, **metadata: None) -> bytes:
    file = io.BytesIO()
    with matplotlib.style.context(["default", RC]):
        figure.savefig(file, format=kind, dpi=200, metadata=metadata)
    return file.getvalue()
