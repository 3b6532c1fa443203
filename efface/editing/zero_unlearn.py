"""ZeroUnlearn: a matrix times the weight, which sends facts elsewhere and dims their values (arXiv:2605.18879).

Written after the authors' published code.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from efface.activations.key_statistics import KeyGram
from efface.corpora.facts import Fact
from efface.editing.delta import Delta
from efface.editing.memit import spread_delta
from efface.editing.subject_keys import PLAIN, Templates, second_moment
from efface.editing.value_optimisation import ValueOptimisation
from efface.linalg import EPSILON, cholesky_factor, decay_rank
from efface.models import anatomy


def multiplier(
    weight: Float[Tensor, "out key"],
    keys: Float[Tensor, "fact key"],
    residuals: Float[Tensor, "fact out"],
    covariance: Float[Tensor, "key key"],
    *,
    covariance_weight: float,
    forget_weight: float,
    ridge: float,
) -> Float[Tensor, "out out"]:
    """M = argmin w_c E‖(M W − W) k‖² + w_f Σ_i ‖M W k_i − (W k_i + r_i)‖² + λ ‖M W − W‖² (Frobenius), in float64.

    M = (V Kᵀ + λ W) Wᵀ (W (K Kᵀ + λ I) Wᵀ)⁻¹ with K Kᵀ and V Kᵀ summed over corpus and facts by their weights. Since
    values are W k before the change, M = I + w_f R K_fᵀ Wᵀ (W A Wᵀ)⁻¹ with A = w_c C + w_f K_f K_fᵀ + λ I: no second
    moment of values is needed. Facts are rows here.

    Raises: ValueError where W A Wᵀ is singular (a weight with dependent rows) or not finite.
    """
    w, k = weight.double(), keys.double()
    inner = covariance_weight * covariance.double() + forget_weight * k.mT @ k
    inner.diagonal().add_(ridge)
    factor = cholesky_factor(w @ inner @ w.mT)
    moved = torch.cholesky_solve(forget_weight * (w @ k.mT) @ residuals.double(), factor).mT
    return torch.eye(len(w)).to(w) + moved


def value_projector(values: Float[Tensor, "fact out"], *, slack: float) -> Float[Tensor, "out out"]:
    """P = (1 + ε) I − V Vᵀ, V an orthonormal basis of the facts' values, ε = `slack`; in float64.

    Not a projector: outputs within the values shrink to ε of themselves, all others grow by 1 + ε. Departs from the
    code: directions of V without energy (facts that share a value) are left out of it, since they are arbitrary.

    Raises: ValueError where the facts' values span every direction of the output.
    """
    _, energies, directions = torch.linalg.svd(values.double(), full_matrices=False)
    v = directions[: decay_rank(energies, max(values.shape) * EPSILON)]
    if len(v) == values.shape[1]:
        raise ValueError(
            f"the values of {len(values)} facts span all {values.shape[1]} directions of the output, so the whole "
            "weight would be dimmed; erase fewer facts at a time"
        )
    return (1 + slack) * torch.eye(values.shape[1]).to(v) - v.mT @ v


@dataclass(frozen=True)
class ZeroUnlearn:
    """Layers and weights of ZeroUnlearn; defaults of its code for Llama-3.2-3B (8B: layers 19 to 21).

    `forget_weight` is 10 in its variant GD. The value basis is that of the layer's own output for the true answers.
    """

    method: Literal["zero_unlearn"] = "zero_unlearn"
    layers: tuple[int, ...] = (16, 17, 18)
    target: Literal["end", "new"] = "end"
    covariance_weight: float = 15_000.0
    forget_weight: float = 50.0
    ridge: float = 1.0
    slack: float = 0.01
    value: ValueOptimisation = field(default_factory=ValueOptimisation)
    batch_size: int = 16

    def __post_init__(self) -> None:
        for name in ("covariance_weight", "forget_weight", "ridge", "slack"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} {getattr(self, name)}: expected 0 or more")

    def delta(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        facts: Sequence[Fact],
        *,
        grams: Mapping[int, KeyGram],
        templates: Templates = PLAIN,
    ) -> Delta:
        """The change (P M − I) W of each layer; see `spread_delta`. Dense, since P touches every output."""
        layers = anatomy(model).layers

        def change(layer: int, keys: Tensor, residuals: Tensor) -> Tensor:
            module = layers[layer].down_projection
            values = self.value.values(model, tokenizer, facts, module=module, target="true", templates=templates)
            weight = module.get_parameter("weight").detach().double()
            matrix = value_projector(values, slack=self.slack) @ multiplier(
                weight, keys, residuals, second_moment(grams, layer),
                covariance_weight=self.covariance_weight, forget_weight=self.forget_weight, ridge=self.ridge,
            )  # fmt: skip
            return (matrix @ weight - weight).float()

        return spread_delta(
            model, tokenizer, facts, layers=self.layers, value=self.value, target=self.target, templates=templates,
            batch_size=self.batch_size, change=change,
        )  # fmt: skip
