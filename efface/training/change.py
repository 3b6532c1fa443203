"""The weight change that a training run makes, with the model put back exactly as it was."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedModel

from efface.training.lora import Factors, Lora, attach_lora, detach_lora, lora_factors

Result = TypeVar("Result")


def dense_change(
    model: nn.Module, train: Callable[[nn.Module], Result], *, parameters: Callable[[str], bool] | None = None
) -> tuple[dict[str, Float[Tensor, "..."]], Result]:
    """W_after − W_before in float32 per parameter that `parameters` chooses (default: all), and what `train` returned.

    `train` must not change any other parameter.
    """
    names = [name for name, _ in model.named_parameters() if parameters is None or parameters(name)]
    with restored(model, names) as before:
        result = train(model)
        return {name: model.get_parameter(name).detach().float() - before[name].float() for name in names}, result


def low_rank_change(
    model: PreTrainedModel,
    train: Callable[[nn.Module], Result],
    *,
    lora: Lora,
    modules: Sequence[str],
    seed: int,
) -> tuple[dict[str, Factors], Result]:
    """(left, right) per weight of the named modules, from training adapters on them, and what `train` returned."""
    wrapped = attach_lora(model, lora, modules=modules, seed=seed)
    try:
        result = train(wrapped)
        return lora_factors(wrapped), result
    finally:
        detach_lora(wrapped)


@contextmanager
def restored(model: nn.Module, names: Sequence[str]) -> Iterator[dict[str, Tensor]]:
    """Copies of the named parameters, which get these values back at the end, also after an error."""
    before = {name: model.get_parameter(name).detach().clone() for name in names}
    try:
        yield before
    finally:
        with torch.no_grad():
            for name, value in before.items():
                model.get_parameter(name).copy_(value)
