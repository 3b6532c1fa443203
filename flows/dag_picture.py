"""A picture of the pipeline: one box per stage, its items counted, coloured by how its tasks ended."""

import base64
import html
from collections.abc import Mapping

WIDTH, HEIGHT, GAP = 205, 34, 40
COLOURS = {"Failed": "#f4b6b0", "NotReady": "#e4e4e4", "Completed": "#bfe3c0", "Cached": "#c9dcf5"}


def dag_svg(upstream: Mapping[str, tuple[str, ...]], states: Mapping[str, str]) -> str:
    """SVG, columns from left to right by distance from the sources; lines that others imply are left out.

    `upstream`: stage → those it waits for, in an order that respects it. `states`: stage → name of its task's state.
    """
    groups: dict[str, set[str]] = {}
    for stage, before in upstream.items():
        groups.setdefault(_group(stage), set()).update(_group(name) for name in before)
    places = _places(groups)
    lines = [
        f'<line x1="{places[one][0] + WIDTH}" y1="{places[one][1] + HEIGHT / 2}" x2="{places[other][0]}" '
        f'y2="{places[other][1] + HEIGHT / 2}" stroke="#999"/>'
        for other, before in groups.items()
        for one in sorted(_direct(before - {other}, groups))
    ]
    boxes = [_box(group, [s for s in upstream if _group(s) == group], states, *places[group]) for group in groups]
    width, height = (max(place[axis] for place in places.values()) for axis in (0, 1))
    size = f'width="{width + WIDTH + GAP}" height="{height + HEIGHT + GAP}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">{"".join([*lines, *boxes])}</svg>'


def as_data_url(svg: str) -> str:
    """The picture as an address that holds it."""
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"


def _group(stage: str) -> str:
    return stage.partition("@")[0]


def _direct(before: set[str], groups: Mapping[str, set[str]]) -> set[str]:
    """Those of `before` that none of the others waits for."""
    return {one for one in before if not any(one in _behind({other}, groups) for other in before - {one})}


def _behind(first: set[str], groups: Mapping[str, set[str]]) -> set[str]:
    """Everything that these groups wait for, directly or not."""
    found: set[str] = set()
    waiting = list(first)
    while waiting:
        new = groups[waiting.pop()] - found
        found |= new
        waiting.extend(new)
    return found


def _places(groups: Mapping[str, set[str]]) -> dict[str, tuple[int, int]]:
    """Left upper corner of every box."""
    rows: dict[int, int] = {}
    places = {}
    for group in groups:
        column = _column(group, groups, frozenset())
        row = rows[column] = rows.get(column, -1) + 1
        places[group] = (GAP // 2 + column * (WIDTH + GAP), GAP // 2 + row * (HEIGHT + GAP // 2))
    return places


def _column(group: str, groups: Mapping[str, set[str]], behind: frozenset[str]) -> int:
    """Distance from the sources; items of one stage may wait for each other, which counts for nothing."""
    behind |= {group}
    return 1 + max((_column(before, groups, behind) for before in groups[group] - behind), default=-1)


def _box(group: str, stages: list[str], states: Mapping[str, str], left: int, top: int) -> str:
    names = {states.get(stage, "") for stage in stages}
    colour = next((colour for name, colour in COLOURS.items() if name in names), "#ffffff")
    label = html.escape(group if stages == [group] else f"{group} × {len(stages)}")
    return (
        f'<rect x="{left}" y="{top}" width="{WIDTH}" height="{HEIGHT}" rx="5" fill="{colour}" stroke="#666"/>'
        f'<text x="{left + 8}" y="{top + 22}" font-size="14">{label}</text>'
    )
