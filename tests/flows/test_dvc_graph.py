"""What is read from DVC's output and graph."""

import pytest

from flows.dvc_graph import _in_order, how_it_came


@pytest.mark.parametrize(
    ("output", "how"),
    [
        ("Stage 'a@x' didn't change, skipping\n", "unchanged"),
        ("Stage 'a' is cached - skipping run, checking out outputs\n", "run cache"),
        ("Running stage 'a':\n> python -m stages a\nStage 'a' didn't change\n", "executed"),
    ],
)
def test_how_a_stage_came_about(output: str, how: str) -> None:
    assert how_it_came(output) == how


def test_every_stage_is_placed_behind_those_it_waits_for() -> None:
    upstream = {"report": ("b", "a@2"), "b": ("a@1",), "a@2": (), "a@1": (), "c": ("b", "a@2")}
    assert list(_in_order(upstream)) == ["a@1", "a@2", "b", "c", "report"]
