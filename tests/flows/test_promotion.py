"""The gate's thresholds: which are broken, by how much, and what a file may not hold."""

import re
from pathlib import Path

import pytest
import yaml

from flows.promotion import GateError, load_gate, reasons_against

ROOT = Path(__file__).resolve().parent.parent.parent
GATE = load_gate(ROOT / "promotion.yaml")
GOOD = {
    "none.forget_probability": 0.2,
    "none.forget_extraction_strength": 0.1,
    "none.model_utility": 0.9,
    "rtn_4.recovery": 0.1,
    "rtn_4.forget_probability": 0.2,
}


def test_the_thresholds_themselves_are_kept_to() -> None:
    assert reasons_against(GATE, GOOD) == []


@pytest.mark.parametrize(
    ("metric", "value", "reason"),
    [
        ("none.forget_probability", 0.25, "p(forget) 0.25 is 0.05 above 0.2 (forget_probability_at_most)"),
        (
            "none.forget_extraction_strength",
            0.5,
            "extraction strength 0.5 is 0.4 above 0.1 (forget_extraction_strength_at_most)",
        ),
        ("none.model_utility", 0.65, "model utility 0.65 is 0.25 below 0.9 (model_utility_at_least)"),
        ("rtn_4.recovery", 0.6, "recovery after rtn_4 0.6 is 0.5 above 0.1 (recovery_at_most)"),
    ],
)
def test_a_broken_threshold_is_named_with_the_distance(metric: str, value: float, reason: str) -> None:
    assert reasons_against(GATE, GOOD | {metric: value}) == [reason]


def test_what_was_not_measured_is_refused() -> None:
    unmeasured = {"none.forget_probability": 0.1, "none.forget_extraction_strength": 0.1}
    assert reasons_against(GATE, unmeasured) == [
        "recovery is unknown: no quantization was tried (recovery_at_most)",
        "model utility is unknown: not measured, or undefined because little was erased (model_utility_at_least)",
    ]
    undefined = {name: value for name, value in GOOD.items() if name != "rtn_4.recovery"}
    (reason,) = reasons_against(GATE, undefined)
    assert reason.startswith("recovery after rtn_4 is unknown")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"utility_at_least": 0.9}, "utility_at_least: Extra inputs are not permitted (got 0.9)"),
        ({"model_utility_at_least": 2}, "model_utility_at_least: Input should be less than or equal to 1 (got 2)"),
        ({"alias": "v1"}, "alias: String should match"),
    ],
)
def test_a_gate_that_is_not_understood_is_refused(tmp_path: Path, change: dict, message: str) -> None:
    path = tmp_path / "promotion.yaml"
    path.write_text(yaml.safe_dump(GATE.model_dump() | change))
    with pytest.raises(GateError, match=re.escape(message)):
        load_gate(path)
    with pytest.raises(GateError, match="no such file"):
        load_gate(tmp_path / "absent.yaml")
    with pytest.raises(ValueError, match="frozen"):
        GATE.alias = "other"  # type: ignore[misc]
