"""ROME: one rank-one change of one layer's down-projection for each fact (arXiv:2202.05262)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from efface.activations.key_statistics import KeyGram
from efface.corpora.facts import Fact
from efface.editing.band import linear_map
from efface.editing.delta import Delta, LowRank, changed_weight
from efface.editing.subject_keys import PLAIN, Templates, second_moment, subject_keys
from efface.editing.value_optimisation import ValueOptimisation
from efface.linalg import primal_ridge
from efface.models import anatomy, module_name
from efface.training.change import restored


def rome_change(
    key: Float[Tensor, " key"],
    plain_key: Float[Tensor, " key"],
    shift: Float[Tensor, " out"],
    covariance: Float[Tensor, "key key"] | None,
) -> LowRank:
    """The change of rank one that adds `shift` to the output of `plain_key` and least to that of the corpus's keys.

    ΔW = (v* − W k₀) uᵀ / (k₀ · u), u = C⁻¹ k, Eq. (2); v* − W k₀ is the shift. Without C, u = k. `key` is the mean over
    contexts, `plain_key` (k₀) that of the prompt alone. Solved in float64, returned in float32.

    Raises: ValueError where C is singular, or k₀ · u vanishes.
    """
    direction = key.double()
    if covariance is not None:
        direction = primal_ridge(covariance.double(), mu=0.0).solve(direction[:, None])[:, 0]
    direction = direction / direction.norm()
    overlap = float(plain_key.double() @ direction)
    if not abs(overlap) > 1e-9 * float(plain_key.norm()):
        raise ValueError(
            f"k₀ · u = {overlap:.3g}: the contexts' mean key says nothing of the prompt's; change templates"
        )
    return LowRank((shift.double() / overlap).float()[:, None], direction.float()[None])


@dataclass(frozen=True)
class Rome:
    """Layer and value search of ROME; defaults of GPT-J: layer 5, and of arXiv:2202.05262's code.

    `adjust` multiplies keys by C⁻¹, as in the paper; EasyEdit's Llama settings do not. The facts are edited one after
    the other, each seeing those before it. Departs from the code: templates are those given, by default none.
    """

    method: Literal["rome"] = "rome"
    layer: int = 5
    target: Literal["end", "new"] = "end"
    adjust: bool = True
    value: ValueOptimisation = field(default_factory=lambda: ValueOptimisation(steps=20, learning_rate=0.5, clamp=4.0))
    batch_size: int = 16

    def delta(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        facts: Sequence[Fact],
        *,
        grams: Mapping[int, KeyGram],
        templates: Templates = PLAIN,
    ) -> Delta:
        """The change of one weight, of rank one for each fact; keys average all templates alike. The model is kept.

        Raises: ValueError where there are no facts, the layer does not exist, or C is singular or missing.
        """
        flat = (tuple(template for group in templates for template in group),)
        keys, plain_keys = (
            subject_keys(model, tokenizer, facts, layer=self.layer, templates=chosen, batch_size=self.batch_size)
            for chosen in (flat, PLAIN)
        )
        covariance = second_moment(grams, self.layer) if self.adjust else None
        module = anatomy(model).layers[self.layer].down_projection
        name = f"{module_name(model, module)}.weight"
        weight = linear_map(module, name).weight
        changes = []
        with restored(model, [name]):
            for fact, key, plain_key in zip(facts, keys, plain_keys, strict=True):
                value = self.value.value(model, tokenizer, fact, module=module, target=self.target, templates=templates)
                changes.append(rome_change(key, plain_key, value.shift, covariance))
                weight.data.copy_(changed_weight(weight, changes[-1]))
        return {name: LowRank(torch.cat([c.left for c in changes], 1), torch.cat([c.right for c in changes]))}
