"""AlphaEdit: MEMIT's changes within the directions that no key of the corpus has (arXiv:2410.02355)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from efface.activations.key_statistics import KeyGram
from efface.corpora.facts import Fact
from efface.editing.delta import Delta, LowRank
from efface.editing.memit import spread_delta
from efface.editing.subject_keys import PLAIN, Templates, second_moment
from efface.editing.value_optimisation import ValueOptimisation
from efface.linalg import primal_ridge


def null_space(covariance: Float[Tensor, "key key"], *, threshold: float) -> Float[Tensor, "key free"]:
    """U, an orthonormal basis of the directions in which the corpus's keys have a mean square below `threshold`.

    P = U Uᵀ is the projector of arXiv:2410.02355. The threshold is absolute, in squared units of keys.

    Raises: ValueError where C is not finite or has no such direction.
    """
    if not torch.isfinite(covariance).all():
        raise ValueError("the second moment of keys is not finite; load the model in float32 or check its weights")
    energies, directions = torch.linalg.eigh(covariance.double())
    free = energies < threshold
    if not free.any():
        raise ValueError(
            f"null space threshold {threshold}: expected above {float(energies[0]):.3g}, the least eigenvalue of the "
            "corpus's keys; raise nullspace_threshold"
        )
    return directions[:, free]


def alpha_edit_change(
    keys: Float[Tensor, "fact key"],
    residuals: Float[Tensor, "fact out"],
    free: Float[Tensor, "key free"],
    *,
    ridge: float,
) -> LowRank:
    """argmin Σ_i ‖ΔW P k_i − r_i‖² + L2 ‖ΔW P‖², of rank ≤ facts, within the directions `free`.

    ΔW = R Kᵀ P (K Kᵀ P + L2 I)⁻¹, arXiv:2410.02355, = R (Kᵀ P K + L2 I)⁻¹ Kᵀ P, solved in the space of facts, in
    float64. Facts are rows here. Departs from the paper: keys of earlier edits are not remembered.

    Raises: ValueError where L2 is 0 and the projected keys are dependent.
    """
    inside = keys.double() @ free.double()
    system = primal_ridge(inside @ inside.mT, mu=ridge)
    return LowRank(system.solve(residuals.double()).mT.float(), (inside @ free.double().mT).float())


@dataclass(frozen=True)
class AlphaEdit:
    """Layers, null space, ridge L2 and values of AlphaEdit; defaults of its code for Llama-3-8B (EasyEdit: L2 = 1)."""

    method: Literal["alpha_edit"] = "alpha_edit"
    layers: tuple[int, ...] = (4, 5, 6, 7, 8)
    target: Literal["end", "new"] = "end"
    nullspace_threshold: float = 2e-2
    ridge: float = 10.0
    value: ValueOptimisation = field(default_factory=ValueOptimisation)
    batch_size: int = 16

    def __post_init__(self) -> None:
        for name in ("nullspace_threshold", "ridge"):
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
        """The change of each layer; see `spread_delta`. One layer's projector is in memory at a time."""

        def change(layer: int, keys: Tensor, residuals: Tensor) -> LowRank:
            free = null_space(second_moment(grams, layer), threshold=self.nullspace_threshold)
            return alpha_edit_change(keys, residuals, free, ridge=self.ridge)

        return spread_delta(
            model, tokenizer, facts, layers=self.layers, value=self.value, target=self.target, templates=templates,
            batch_size=self.batch_size, change=change,
        )  # fmt: skip
