"""Gradient ascent on the forget set: plain, against a retain loss, or weighted token by token."""

from dataclasses import dataclass
from typing import Literal

from torch import nn

from efface.training.loop import scored_logits
from efface.training.losses import Scalar, grad_ascent_loss, satimp_loss, weighted_ascent_loss
from efface.unlearning.objective import Descent, RetainLoss, check_ranges, retain_loss
from efface.unlearning.pairing import Pair, Start


@dataclass(frozen=True)
class GradAscent(Descent):
    """Gradient ascent on the forget set: −NLL, no retain loss."""

    method: Literal["grad_ascent"] = "grad_ascent"

    def __post_init__(self) -> None:
        check_ranges(self)

    def loss(self, model: nn.Module, pair: Pair, start: Start) -> Scalar:
        return grad_ascent_loss(*scored_logits(model, pair.forget))


@dataclass(frozen=True)
class GradDiff(Descent):
    """Gradient difference: γ (−NLL(forget)) + α retain loss."""

    method: Literal["grad_diff"] = "grad_diff"
    gamma: float = 1.0
    alpha: float = 1.0
    retain_loss: RetainLoss = "nll"

    def __post_init__(self) -> None:
        check_ranges(self)

    def loss(self, model: nn.Module, pair: Pair, start: Start) -> Scalar:
        forget = grad_ascent_loss(*scored_logits(model, pair.forget))
        return self.gamma * forget + self.alpha * retain_loss(self.retain_loss, model, pair, start)


@dataclass(frozen=True)
class Wga(Descent):
    """Weighted gradient ascent, arXiv:2502.19301; see `weighted_ascent_loss`."""

    method: Literal["wga"] = "wga"
    beta: float = 1.0
    gamma: float = 1.0
    alpha: float = 1.0
    retain_loss: RetainLoss = "nll"
    epochs: int = 5

    def __post_init__(self) -> None:
        check_ranges(self)

    def loss(self, model: nn.Module, pair: Pair, start: Start) -> Scalar:
        forget = weighted_ascent_loss(*scored_logits(model, pair.forget), beta=self.beta)
        return self.gamma * forget + self.alpha * retain_loss(self.retain_loss, model, pair, start)


@dataclass(frozen=True)
class SatImp(Descent):
    """Ascent weighted by saturation and importance, arXiv:2505.11953; see `satimp_loss`."""

    method: Literal["sat_imp"] = "sat_imp"
    beta1: float = 5.0
    beta2: float = 1.0
    gamma: float = 0.1
    alpha: float = 1.0
    retain_loss: RetainLoss = "nll"
    epochs: int = 5

    def __post_init__(self) -> None:
        check_ranges(self)

    def loss(self, model: nn.Module, pair: Pair, start: Start) -> Scalar:
        forget = satimp_loss(*scored_logits(model, pair.forget), beta1=self.beta1, beta2=self.beta2)
        return self.gamma * forget + self.alpha * retain_loss(self.retain_loss, model, pair, start)
