"""Preference against the forget answers: a bounded ascent that slows down where an answer is already unlikely."""

from dataclasses import dataclass
from typing import Literal

from torch import nn

from efface.training.loop import Schedule, scored_logits
from efface.training.lora import Lora
from efface.training.losses import Scalar, npo_loss, scored_counts, sequence_log_probs, simnpo_loss
from efface.unlearning.objective import Dtype, RetainLoss, check_ranges, retain_loss
from efface.unlearning.pairing import Pair, Start


@dataclass(frozen=True)
class Npo:
    """Negative preference optimisation, arXiv:2404.05868; see `npo_loss`. β is the inverse temperature."""

    method: Literal["npo"] = "npo"
    beta: float = 0.1
    gamma: float = 1.0
    alpha: float = 1.0
    retain_loss: RetainLoss = "nll"
    learning_rate: float = 1e-5
    epochs: int = 10
    batch_size: int = 8
    gradient_accumulation: int = 4
    weight_decay: float = 0.01
    warmup_epochs: float = 1.0
    schedule: Schedule = "linear"
    dtype: Dtype = "float32"
    lora: Lora | None = None
    localised: bool = False

    def __post_init__(self) -> None:
        check_ranges(self)

    def loss(self, model: nn.Module, pair: Pair, start: Start) -> Scalar:
        assert start.log_probs is not None
        log_probs = sequence_log_probs(*scored_logits(model, pair.forget))
        forget = npo_loss(log_probs, start.log_probs[list(pair.places)], beta=self.beta)
        return self.gamma * forget + self.alpha * retain_loss(self.retain_loss, model, pair, start)


@dataclass(frozen=True)
class SimNpo:
    """Length-normalised NPO, no reference, arXiv:2410.07163; see `simnpo_loss`. δ is a margin in nats per token."""

    method: Literal["sim_npo"] = "sim_npo"
    beta: float = 4.5
    delta: float = 0.0
    gamma: float = 0.125
    alpha: float = 1.0
    retain_loss: RetainLoss = "nll"
    learning_rate: float = 1e-5
    epochs: int = 10
    batch_size: int = 8
    gradient_accumulation: int = 4
    weight_decay: float = 0.01
    warmup_epochs: float = 1.0
    schedule: Schedule = "linear"
    dtype: Dtype = "float32"
    lora: Lora | None = None
    localised: bool = False

    def __post_init__(self) -> None:
        check_ranges(self)

    def loss(self, model: nn.Module, pair: Pair, start: Start) -> Scalar:
        log_probs, counts = sequence_log_probs(*scored_logits(model, pair.forget)), scored_counts(pair.forget.labels)
        forget = simnpo_loss(log_probs, counts, beta=self.beta, delta=self.delta)
        return self.gamma * forget + self.alpha * retain_loss(self.retain_loss, model, pair, start)
