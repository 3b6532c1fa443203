"""What the methods share: how they train, the retain side of their loss, and the ranges of their numbers."""

from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from efface.training.loop import Schedule, answer_logits, answer_loss
from efface.training.lora import Lora
from efface.training.losses import Scalar, kl_loss
from efface.unlearning.pairing import Pair, Start

Dtype = Literal["float32", "bfloat16"]
Order = Literal["shuffled", "easy_first", "hard_first"]
RetainLoss = Literal["nll", "kl", "kl_published"]
POSITIVE = (
    "learning_rate", "epochs", "batch_size", "gradient_accumulation", "beta", "beta1", "beta2", "alternatives",
    "temperature", "max_new_tokens",
)  # fmt: skip
NOT_NEGATIVE = (
    "weight_decay", "warmup_epochs", "alpha", "gamma", "skip", "layer", "epsilon", "dual_step", "dual_warmup_epochs",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Descent:
    """Fields of every method, and nothing but fields; what they mean is said in `methods.py`."""

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
    order: Order = "shuffled"


def retain_loss(kind: RetainLoss, model: nn.Module, pair: Pair, start: Start) -> Scalar:
    """NLL of the retain examples, or the KL divergence from the start model on them."""
    assert pair.retain is not None
    if kind == "nll":
        return answer_loss(model, pair.retain)
    mask = pair.retain.attention_mask if kind == "kl" else None
    return kl_loss(answer_logits(model, pair.retain), start.logits(pair.retain), mask)


def check_ranges(method: Any) -> None:
    """Raises: ValueError where a number of the method cannot be used, naming it."""
    for name in POSITIVE:
        value = getattr(method, name, 1)
        if value <= 0:
            raise ValueError(f"{method.method}: {name} is {value}; expected more than 0")
    for name in NOT_NEGATIVE:
        value = getattr(method, name, 0)
        if value < 0:
            raise ValueError(f"{method.method}: {name} is {value}; expected 0 or more")


def check_refusals(method: Any) -> None:
    """Raises: ValueError where the method's own refusals are none, or one of them is empty."""
    if method.refusals is not None and not (method.refusals and all(line.strip() for line in method.refusals)):
        raise ValueError(
            f"{method.method}: refusals is {method.refusals!r:.80}; expected lines with text, or leave it out for ours"
        )
