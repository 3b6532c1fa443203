"""The search for a strength, on curves whose answer is known."""

import math

import pytest
import torch
from torch import nn

from efface.editing.strength import StrengthSearch, outputs_changed


def forgetting(factor: float) -> tuple[float, float]:
    """p(forget) falls fast, p(retain) slowly: 0.05 at factor 2, a retain share of 0.95 at factor 3."""
    return 0.8 * (1 / 16) ** (factor / 2), 0.9 * 0.95 ** (factor / 3)


def test_smallest_factor_that_reaches_the_target_is_chosen():
    factor, curve = StrengthSearch(forget_target=0.05, utility_floor=0.9, halvings=20).searched(forgetting)
    assert 2 <= factor <= 2 + 4 / 2**20
    assert [point.factor for point in curve] == sorted(point.factor for point in curve)
    assert len(curve) == 22 and curve[0].factor == 0


def test_floor_holds_where_the_target_would_break_it():
    factor, curve = StrengthSearch(forget_target=0.001, utility_floor=0.95, halvings=20).searched(forgetting)
    assert 3 - 4 / 2**20 <= factor <= 3
    assert min(point.retain for point in curve if point.factor <= factor) >= 0.95 * 0.9


def test_largest_factor_is_taken_where_even_that_is_too_weak():
    factor, curve = StrengthSearch(forget_target=0.01, utility_floor=0.5, largest=1.0).searched(forgetting)
    assert factor == 1.0 and len(curve) == 2


def test_nothing_is_done_where_the_target_holds_already():
    factor, _ = StrengthSearch(forget_target=0.9, halvings=12).searched(forgetting)
    assert factor <= 4 / 2**12


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"forget_target": 1.5}, r"search\.forget_target 1\.5: expected 0 to 1"),
        ({"utility_floor": math.nan}, r"search\.utility_floor nan: expected 0 to 1"),
        ({"largest": 0.0}, r"search\.largest 0\.0: expected more than 0"),
    ],
)
def test_parameters_out_of_range_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        StrengthSearch(**values)


def test_changed_outputs_are_those_of_changed_weights_and_pass():
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3, bias=False))
    inputs, changes = torch.randn(6, 4), {"0.weight": torch.randn(5, 4), "2.weight": torch.randn(3, 5)}
    before = model(inputs)
    with outputs_changed(model, changes, 0.5):
        changed = model(inputs)
    assert torch.equal(model(inputs), before)
    with torch.no_grad():
        for name, change in changes.items():
            model.get_parameter(name).add_(0.5 * change)
    torch.testing.assert_close(changed, model(inputs))
