"""Why an edit survives quantization or not: what is left of a weight change P once W and W + P are both quantized."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel

from efface.quantization.quantized_model import quantizable_modules
from efface.quantization.schemes import Scheme, quantize_weight


@dataclass(frozen=True)
class WeightSurvival:
    """What quantization leaves of one module's change, arXiv:2410.16454.

    `changed_code_share`: share of weights whose code differs, 0 … 1. `delta_norm`: ‖P‖_F. `surviving_delta_norm`:
    ‖Q(W + P) − Q(W)‖_F, 0 where quantization undoes the edit, above ‖P‖_F where rounding adds to it.
    """

    module: str
    changed_code_share: float
    delta_norm: float
    surviving_delta_norm: float


def weight_survivals(base: PreTrainedModel, edited: PreTrainedModel, scheme: Scheme) -> Iterator[WeightSurvival]:
    """One module after the other, every one that the scheme quantizes; tied heads are untied where that is the head.

    Cost: memory for one matrix at a time.

    Raises: ValueError where the two models do not have the same modules.
    """
    before, after = (quantizable_modules(model, scheme) for model in (base, edited))
    if before.keys() != after.keys():
        raise ValueError("base and edited model have different modules; compare an edit with its own base")
    for name, module in before.items():
        yield weight_survival(name, module.weight.detach(), after[name].weight.detach(), scheme)


def weight_survival(
    module: str, before: Float[Tensor, "out in"], after: Float[Tensor, "out in"], scheme: Scheme
) -> WeightSurvival:
    """The survival of P = after − before in one module; all zero where nothing was edited."""
    if torch.equal(before, after):
        return WeightSurvival(module, 0.0, 0.0, 0.0)
    q_before, q_after = quantize_weight(before, scheme), quantize_weight(after, scheme)
    return WeightSurvival(
        module,
        changed_code_share=float((q_before.codes != q_after.codes).double().mean()),
        delta_norm=_distance(before, after),
        surviving_delta_norm=_distance(q_before.values, q_after.values),
    )


def _distance(one: Float[Tensor, "out in"], other: Float[Tensor, "out in"]) -> float:
    """Frobenius norm of the difference, summed in float64."""
    return float(torch.linalg.vector_norm(other.float() - one.float(), dtype=torch.float64))
