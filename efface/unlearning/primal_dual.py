"""Unlearning under a constraint: the flattest forget logits for which the retain loss stays below a bound."""

from dataclasses import dataclass
from typing import Literal

from torch import nn

from efface.training.loop import answer_logits
from efface.training.losses import Scalar, pdu_loss
from efface.unlearning.objective import Descent, RetainLoss, check_ranges, retain_loss
from efface.unlearning.pairing import Pair, Start


@dataclass(frozen=True)
class Pdu(Descent):
    """Primal–dual unlearning, arXiv:2506.05314: γ forget loss + λ (retain loss − ε); see `pdu_loss`.

    λ begins at `alpha`. From epoch `dual_warmup_epochs` on (counted from 0) every batch moves it, after its loss is
    taken, to max(0, λ + dual_step · (retain loss − ε)), as the reference implementation does: per batch, not per
    optimizer step. ε is in units of the retain loss (nats per token). Defaults are those of its TOFU runs. With
    `published_shift` the forget loss is taken one position late, as there. Not offered: its update once per epoch.
    """

    method: Literal["pdu"] = "pdu"
    epsilon: float = 0.3
    dual_step: float = 5.0
    dual_warmup_epochs: int = 5
    published_shift: bool = False
    gamma: float = 1.0
    alpha: float = 100.0
    retain_loss: RetainLoss = "nll"

    def __post_init__(self) -> None:
        check_ranges(self)

    def loss(self, model: nn.Module, pair: Pair, start: Start) -> Scalar:
        """Changes `start.multiplier` in place, once the warm-up is over."""
        assert start.multiplier is not None
        forget = pdu_loss(answer_logits(model, pair.forget), pair.forget.labels, published_shift=self.published_shift)
        excess = retain_loss(self.retain_loss, model, pair, start) - self.epsilon
        loss = self.gamma * forget + float(start.multiplier) * excess
        if pair.epoch >= self.dual_warmup_epochs:
            start.multiplier.add_(self.dual_step * float(excess.detach())).clamp_(min=0)
        return loss
