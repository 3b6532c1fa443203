"""Preference against the forget answers, alone or for others: bounded, slower where an answer is already unlikely."""

from dataclasses import dataclass
from typing import Literal

from torch import nn

from efface.training.loop import scored_logits
from efface.training.losses import Scalar, dpo_loss, npo_loss, scored_counts, sequence_log_probs, simnpo_loss
from efface.unlearning.objective import Descent, RetainLoss, check_ranges, check_refusals, retain_loss
from efface.unlearning.pairing import Pair, Start


@dataclass(frozen=True)
class Npo(Descent):
    """Negative preference optimisation, arXiv:2404.05868; see `npo_loss`. β is the inverse temperature."""

    method: Literal["npo"] = "npo"
    beta: float = 0.1
    gamma: float = 1.0
    alpha: float = 1.0
    retain_loss: RetainLoss = "nll"

    def __post_init__(self) -> None:
        check_ranges(self)

    def loss(self, model: nn.Module, pair: Pair, start: Start) -> Scalar:
        assert start.log_probs is not None
        log_probs = sequence_log_probs(*scored_logits(model, pair.forget))
        forget = npo_loss(log_probs, start.log_probs[list(pair.places)], beta=self.beta)
        return self.gamma * forget + self.alpha * retain_loss(self.retain_loss, model, pair, start)


@dataclass(frozen=True)
class SimNpo(Descent):
    """Length-normalised NPO, no reference, arXiv:2410.07163; see `simnpo_loss`. δ is a margin in nats per token."""

    method: Literal["sim_npo"] = "sim_npo"
    beta: float = 4.5
    delta: float = 0.0
    gamma: float = 0.125
    alpha: float = 1.0
    retain_loss: RetainLoss = "nll"

    def __post_init__(self) -> None:
        check_ranges(self)

    def loss(self, model: nn.Module, pair: Pair, start: Start) -> Scalar:
        log_probs, counts = sequence_log_probs(*scored_logits(model, pair.forget)), scored_counts(pair.forget.labels)
        forget = simnpo_loss(log_probs, counts, beta=self.beta, delta=self.delta)
        return self.gamma * forget + self.alpha * retain_loss(self.retain_loss, model, pair, start)


@dataclass(frozen=True)
class IdkDpo(Descent):
    """Preference for a refusal: DPO (arXiv:2305.18290) as a baseline of arXiv:2404.05868 has it; see `dpo_loss`.

    β is the inverse temperature. The other answers are lines of `refusals`, or of our own list without it. Departs from
    the reference implementation: a question meets the lines in a random order instead of a line drawn anew each time.
    """

    method: Literal["idk_dpo"] = "idk_dpo"
    beta: float = 0.1
    refusals: tuple[str, ...] | None = None
    gamma: float = 1.0
    alpha: float = 1.0
    retain_loss: RetainLoss = "nll"

    def __post_init__(self) -> None:
        check_ranges(self)
        check_refusals(self)

    def loss(self, model: nn.Module, pair: Pair, start: Start) -> Scalar:
        return _preference_loss(self, model, pair, start)


@dataclass(frozen=True)
class AltPo(Descent):
    """Preference for answers that the start model makes up, arXiv:2409.13474; see `dpo_loss`.

    Before training it is asked `alternatives` times per question, at `temperature`, to follow `instruction`; an answer
    ends after `max_new_tokens`. An epoch shows each question once, with one of its answers: the 10 epochs and 5 of
    warm-up are the reference implementation's 2 and 1 over every question and answer. Departs from it in the
    instruction's wording.
    """

    method: Literal["alt_po"] = "alt_po"
    beta: float = 0.1
    alternatives: int = 5
    temperature: float = 1.0
    max_new_tokens: int = 200
    instruction: str = "Now rewrite the answer: keep it plausible, but change every fact in it."
    gamma: float = 1.0
    alpha: float = 1.0
    retain_loss: RetainLoss = "nll"
    warmup_epochs: float = 5.0

    def __post_init__(self) -> None:
        check_ranges(self)

    def loss(self, model: nn.Module, pair: Pair, start: Start) -> Scalar:
        return _preference_loss(self, model, pair, start)


def _preference_loss(method: IdkDpo | AltPo, model: nn.Module, pair: Pair, start: Start) -> Scalar:
    assert pair.alternative is not None and start.log_probs is not None
    forget = dpo_loss(
        sequence_log_probs(*scored_logits(model, pair.alternative)),
        start.answer_log_probs(pair.alternative),
        sequence_log_probs(*scored_logits(model, pair.forget)),
        start.log_probs[list(pair.places)],
        beta=method.beta,
    )
    return method.gamma * forget + method.alpha * retain_loss(method.retain_loss, model, pair, start)
