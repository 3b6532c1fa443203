"""Distillation from a distribution that has the forget answer taken out of it."""

from dataclasses import dataclass
from typing import Literal

from torch import nn

from efface.training.loop import answer_logits, scored_logits
from efface.training.losses import Scalar, ceu_loss, undial_loss
from efface.unlearning.objective import Descent, RetainLoss, check_ranges, retain_loss
from efface.unlearning.pairing import Pair, Start


@dataclass(frozen=True)
class Undial(Descent):
    """Self-distillation with the answer's logit lowered by β, arXiv:2402.10052; see `undial_loss`."""

    method: Literal["undial"] = "undial"
    beta: float = 10.0
    published_mask: bool = False
    gamma: float = 1.0
    alpha: float = 0.0
    retain_loss: RetainLoss = "nll"
    learning_rate: float = 1e-4

    def __post_init__(self) -> None:
        check_ranges(self)

    def loss(self, model: nn.Module, pair: Pair, start: Start) -> Scalar:
        logits, reference = answer_logits(model, pair.forget), start.logits(pair.forget)
        forget = undial_loss(logits, reference, pair.forget.labels, beta=self.beta, published_mask=self.published_mask)
        if self.alpha == 0:
            return self.gamma * forget
        return self.gamma * forget + self.alpha * retain_loss(self.retain_loss, model, pair, start)


@dataclass(frozen=True)
class CeU(Descent):
    """Cross-entropy unlearning, arXiv:2503.01224; see `ceu_loss`. Skips `skip` answer tokens; no retain loss."""

    method: Literal["ce_u"] = "ce_u"
    skip: int = 1

    def __post_init__(self) -> None:
        check_ranges(self)

    def loss(self, model: nn.Module, pair: Pair, start: Start) -> Scalar:
        return ceu_loss(*scored_logits(model, pair.forget), skip=self.skip)
