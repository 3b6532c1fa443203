"""How strong a linear edit has to be: one-dimensional search, without solving or changing weights again."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear


@dataclass(frozen=True)
class StrengthSearch:
    """What an edit is to reach: mean p(forget) at most `forget_target`, under a floor on what it may cost.

    `utility_floor` is the share of the mean p(retain) before the edit that has to stay, over retained rows that measure
    no utility, at most `retain_rows` of them. Factors on the edit's own strength are tried from 0 to `largest`.
    """

    forget_target: float = 0.05
    utility_floor: float = 0.95
    largest: float = 4.0
    halvings: int = 8
    retain_rows: int = 60

    def __post_init__(self) -> None:
        for name in ("forget_target", "utility_floor"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"search.{name} {getattr(self, name)}: expected 0 to 1")
        for name in ("largest", "halvings", "retain_rows"):
            if not getattr(self, name) > 0:
                raise ValueError(f"search.{name} {getattr(self, name)}: expected more than 0")

    def searched(self, measure: Callable[[float], tuple[float, float]]) -> tuple[float, list["StrengthPoint"]]:
        """The factor chosen and every point tried, by factor; `measure` maps a factor to (p(forget), p(retain)).

        The smallest factor, to within largest / 2^halvings, that reaches the target; where that would break the floor,
        the largest that keeps it. Assumes that both fall as the factor rises.
        """
        points = [StrengthPoint(factor, *measure(factor)) for factor in (0.0, self.largest)]
        floor = self.utility_floor * points[0].retain
        low, high = points
        if high.forget > self.forget_target and high.retain >= floor:
            return self.largest, points
        for _ in range(self.halvings):
            factor = (low.factor + high.factor) / 2
            points.append(StrengthPoint(factor, *measure(factor)))
            too_weak = points[-1].forget > self.forget_target and points[-1].retain >= floor
            low, high = (points[-1], high) if too_weak else (low, points[-1])
        return (high if high.retain >= floor else low).factor, sorted(points, key=lambda point: point.factor)


@dataclass(frozen=True)
class StrengthPoint:
    """Mean answer probability of forget and retain rows under `factor` times the edit."""

    factor: float
    forget: float
    retain: float


@contextmanager
def outputs_changed(model: nn.Module, changes: Mapping[str, Float[Tensor, "out in"]], factor: float) -> Iterator[None]:
    """Every named map with weight W acts as W + factor · P; its weight, which may be tied to another's, stays W."""
    with ExitStack() as hooks:
        for name, change in changes.items():
            module = model.get_submodule(name.removesuffix(".weight"))
            hook = module.register_forward_hook(_adding(factor * change))
            hooks.callback(hook.remove)
        yield


def _adding(change: Tensor) -> Callable[[nn.Module, tuple, Tensor], Tensor]:
    return lambda _module, inputs, output: output + linear(inputs[0], change.to(inputs[0]))
