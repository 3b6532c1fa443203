"""Low-rank adapters: trained in place of the weights, and read back as the weight change they stand for."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel

if TYPE_CHECKING:
    from peft import PeftModel

Factors = tuple[Float[Tensor, "out rank"], Float[Tensor, "rank in"]]


@dataclass(frozen=True)
class Lora:
    """LoRA, arXiv:2106.09685: W + (alpha / rank) B A, with dropout before A; dropout is a probability."""

    rank: int = 8
    alpha: float = 16.0
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ValueError(f"lora.rank is {self.rank}; expected at least 1")
        if self.alpha <= 0:
            raise ValueError(f"lora.alpha is {self.alpha}; expected more than 0")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"lora.dropout is {self.dropout}; expected a probability below 1")


def attach_lora(model: PreTrainedModel, lora: Lora, *, modules: Sequence[str], seed: int) -> "PeftModel":
    """Puts fresh adapters into the named linear modules of `model` itself; only they require a gradient.

    B starts at zero, so the model computes what it did before. `seed` draws A. Undo with `detach_lora` or `merge_lora`.
    """
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,  # pyright: ignore[reportArgumentType]
        lora_dropout=lora.dropout,
        target_modules=list(modules),
        bias="none",
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return get_peft_model(model, config)


def lora_factors(wrapped: "PeftModel") -> dict[str, Factors]:
    """(left, right) per adapted parameter name, in float32; left @ right is the change of that weight."""
    from peft.tuners.lora import LoraLayer

    prefix = "base_model.model."
    factors = {}
    for name, layer in wrapped.named_modules():
        if isinstance(layer, LoraLayer):
            left, right = (part["default"].get_parameter("weight").detach() for part in (layer.lora_B, layer.lora_A))
            scaled = left.float() * layer.scaling["default"]
            factors[f"{name.removeprefix(prefix)}.weight"] = (scaled, right.float().clone())
    return factors


def detach_lora(wrapped: "PeftModel") -> PreTrainedModel:
    """The model as it was before `attach_lora`, weights untouched, every parameter requiring a gradient."""
    return _plain(wrapped.unload())


def merge_lora(wrapped: "PeftModel") -> PreTrainedModel:
    """The model with the adapters added into its weights."""
    return _plain(wrapped.merge_and_unload())


def _plain(model: PreTrainedModel) -> PreTrainedModel:
    if hasattr(model, "peft_config"):
        del model.peft_config
    return model.requires_grad_(True)
