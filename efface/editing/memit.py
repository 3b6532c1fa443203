"""MEMIT: many facts at once, their values spread over a band of down-projections (arXiv:2210.07229)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from efface.activations.key_statistics import KeyGram
from efface.corpora.facts import Fact
from efface.editing.band import linear_map
from efface.editing.delta import Delta, LowRank, changed_weight
from efface.editing.subject_keys import (
    PLAIN,
    Templates,
    check_facts,
    second_moment,
    subject_keys,
    subject_prompt,
    subject_states,
)
from efface.editing.value_optimisation import Target, ValueOptimisation
from efface.linalg import primal_ridge
from efface.models import anatomy, check_layers, module_name
from efface.tokenization import padding_id
from efface.training.change import restored

Change = Callable[[int, Float[Tensor, "fact key"], Float[Tensor, "fact out"]], Tensor | LowRank]


def memit_change(
    keys: Float[Tensor, "fact key"],
    residuals: Float[Tensor, "fact out"],
    covariance: Float[Tensor, "key key"],
    *,
    weight: float,
) -> LowRank:
    """argmin λ E‖ΔW k‖² + Σ_i ‖ΔW k_i − r_i‖² over the corpus's keys k and the facts' keys k_i, of rank ≤ facts.

    ΔW = R Kᵀ (λ C + K Kᵀ)⁻¹, Eq. (14), λ = `weight`. Facts are rows here. Solved in float64, returned in float32.

    Raises: ValueError where λ C + K Kᵀ is singular or not finite.
    """
    keys = keys.double()
    system = primal_ridge(weight * covariance.double() + keys.mT @ keys, mu=0.0)
    return LowRank(residuals.mT.float(), system.solve(keys.mT).mT.float())


def spread_delta(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    facts: Sequence[Fact],
    *,
    layers: Sequence[int],
    value: ValueOptimisation,
    target: Target,
    templates: Templates,
    batch_size: int,
    change: Change,
) -> Delta:
    """The change of each layer's down-projection, lowest first, each seeing the layers below it changed.

    The values z are what the last layer's block should write. At the j-th of L layers (from 0) `change` gets its
    number, the facts' keys and (z − h_L)/(L − j), where h_L is what that block writes by now; Algorithm 1,
    arXiv:2210.07229. The model is left as it was found.

    Raises: ValueError where there are no facts or layers, or a layer does not exist.
    """
    check_facts(facts)
    parts, band = anatomy(model), sorted(layers)
    check_layers(band, len(parts.layers))
    if not band:
        raise ValueError("layers (): expected at least one; name the layers to edit")
    names = {layer: f"{module_name(model, parts.layers[layer].down_projection)}.weight" for layer in band}
    maps = {layer: linear_map(parts.layers[layer].down_projection, name) for layer, name in names.items()}
    last = parts.layers[band[-1]].block
    prompts = [subject_prompt(tokenizer, fact.prompt, fact.subject) for fact in facts]
    z = value.values(model, tokenizer, facts, module=last, target=target, templates=templates)
    changes: Delta = {}
    with restored(model, list(names.values())):
        for place, layer in enumerate(band):
            keys = subject_keys(model, tokenizer, facts, layer=layer, templates=templates, batch_size=batch_size)
            written = subject_states(
                model, prompts, last, side="output", batch_size=batch_size, pad_id=padding_id(tokenizer)
            )
            changes[names[layer]] = change(layer, keys, (z - written) / (len(band) - place))
            weight = maps[layer].weight
            weight.data.copy_(changed_weight(weight, changes[names[layer]]))
    return changes


@dataclass(frozen=True)
class Memit:
    """Layers, weight of the corpus and value search of MEMIT; defaults of its code for GPT-J (GPT-2 XL: 20 000)."""

    method: Literal["memit"] = "memit"
    layers: tuple[int, ...] = (3, 4, 5, 6, 7, 8)
    target: Literal["end", "new"] = "end"
    covariance_weight: float = 15_000.0
    value: ValueOptimisation = field(default_factory=lambda: ValueOptimisation(learning_rate=0.5))
    batch_size: int = 16

    def __post_init__(self) -> None:
        if not self.covariance_weight >= 0:
            raise ValueError(f"covariance_weight {self.covariance_weight}: expected 0 or more")

    def delta(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        facts: Sequence[Fact],
        *,
        grams: Mapping[int, KeyGram],
        templates: Templates = PLAIN,
    ) -> Delta:
        """The change of each layer; see `spread_delta`."""

        def change(layer: int, keys: Tensor, residuals: Tensor) -> LowRank:
            return memit_change(keys, residuals, second_moment(grams, layer), weight=self.covariance_weight)

        return spread_delta(
            model, tokenizer, facts, layers=self.layers, value=self.value, target=self.target, templates=templates,
            batch_size=self.batch_size, change=change,
        )  # fmt: skip
