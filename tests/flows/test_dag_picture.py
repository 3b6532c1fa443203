"""The picture shows every stage once, behind those it waits for, in the colour of its worst task."""

import re
from xml.etree import ElementTree

from flows.dag_picture import COLOURS, dag_svg

UPSTREAM = {"first": (), "edit@a": ("first",), "edit@<b>": ("first",), "report": ("edit@<b>", "edit@a")}


def test_boxes_stand_behind_those_they_wait_for() -> None:
    states = {"first": "Cached", "edit@a": "Completed", "edit@<b>": "Failed", "report": "NotReady"}
    root = ElementTree.fromstring(dag_svg(UPSTREAM, states))
    boxes = [element for element in root if element.tag.endswith("rect")]
    assert [element.text for element in root if element.tag.endswith("text")] == ["first", "edit × 2", "report"]
    assert [box.get("fill") for box in boxes] == [COLOURS[name] for name in ("Cached", "Failed", "NotReady")]
    assert sorted(lefts := [int(str(box.get("x"))) for box in boxes]) == lefts and len(set(lefts)) == 3
    assert len(re.findall("<line", dag_svg(UPSTREAM, {}))) == 2
