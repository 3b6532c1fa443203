"""Which layers the forget set is in."""

import pytest

from efface.editing.localisation import localised_layers


def norms(*layers: tuple[float, ...]) -> dict[str, float]:
    return {f"model.layers.{layer}.m{m}": norm for layer, row in enumerate(layers) for m, norm in enumerate(row)}


def test_layers_at_or_above_the_average_share_are_chosen():
    """Layer norms 5 (3-4-5), 1, 3 of 9: shares 5/9, 1/9, 3/9; the threshold is 3/9."""
    assert localised_layers(norms((3.0, 4.0), (0.0, 1.0), (3.0, 0.0))) == (0, 2)


@pytest.mark.parametrize("count", [3, 7, 30])
def test_all_layers_are_chosen_when_all_tie(count):
    assert localised_layers(norms(*[(0.1, 0.3)] * count)) == tuple(range(count))


def test_forget_set_that_is_nowhere_is_refused():
    with pytest.raises(ValueError, match="task matrices of 2 modules are all zero"):
        localised_layers(norms((0.0,), (0.0,)))
