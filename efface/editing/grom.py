"""GROM: one ridge system per layer makes a forget set's own tokens unlikely and leaves retain keys where they were."""

from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from efface.activations.key_statistics import KeyGram, Keys
from efface.editing.audit import influence_factors, influence_norms
from efface.editing.random_direction import corruption_targets
from efface.editing.ridge_edit import Targets, ridge_edit
from efface.editing.strength import StrengthSearch
from efface.editing.suppression import logit_targets, residual_targets


@dataclass(frozen=True)
class LayerEdit:
    """The change P of one linear map in float32, and how much of it each forget example accounts for (‖ΔP_i‖_F).

    `withdrawal` is the part of it that withdrawn examples account for together, exact under the conditions of
    `efface.editing.audit.influence_factors`: P less this is the edit without their requests.
    """

    change: Float[Tensor, "out key"]
    mu: float
    influence: dict[int, float] = field(default_factory=dict)
    withdrawal: Float[Tensor, "out key"] | None = None

    def without_withdrawn(self) -> "LayerEdit":
        """The edit that remains."""
        if self.withdrawal is None:
            return self
        return replace(self, change=self.change - self.withdrawal, withdrawal=None)

    def scaled(self, factor: float) -> "LayerEdit":
        """The edit with targets multiplied by a factor, in which it is linear."""
        influence = {example: factor * norm for example, norm in self.influence.items()}
        withdrawal = None if self.withdrawal is None else factor * self.withdrawal
        return LayerEdit(factor * self.change, self.mu, influence, withdrawal)


@dataclass(frozen=True)
class Grom:
    """Strengths, anchors and layers of a GROM edit, arXiv:2608.05783.

    `layers` names the blocks whose down-projections change; without it the `width` neighbouring blocks with the highest
    logit-lens score do. `beta` is the length of the output change asked of a forget key, in residual units; `head_beta`
    is the same at the unembedding, in logits, 0 to leave it alone. `retain_weight` is w_r beside w_f = 1, `ridge` is ρ.
    `sequential` edits a layer after the layers below it have changed; otherwise every layer is solved from the keys of
    the unedited model, stored once for all forget sets. `retain_anchors: no_leak` keeps every row that measures utility
    out of the retain side; `published` takes them all. `published_alpha` leaves end tokens out of the retain
    frequencies. The caps are numbers of answer tokens; one-shot edits take every retain token, since only their Gram
    matrix is stored.

    `target: corruption` sends every forget key in one random direction of length `beta` instead of away from its token;
    `direction_seed` fixes it. `difficulty_gain` g scales the targets of an example by 1 + g · its rank of CUD in the
    forget set, −1 (easiest) to 1. `search` multiplies a one-shot or one-layer edit by the factor it finds.
    """

    method: Literal["grom"] = "grom"
    target: Literal["suppression", "corruption"] = "suppression"
    layers: tuple[int, ...] | None = None
    width: int = 2
    beta: float = 300.0
    head_beta: float = 0.0
    retain_weight: float = 100.0
    ridge: float = 0.03
    sequential: bool = True
    retain_anchors: Literal["no_leak", "published"] = "no_leak"
    published_alpha: bool = False
    forget_columns: int = 20_000
    retain_columns: int = 40_000
    influence: bool = True
    batch_size: int = 16
    direction_seed: int = 0
    difficulty_gain: float = 0.0
    search: StrengthSearch | None = None

    def __post_init__(self) -> None:
        for name in ("beta", "head_beta", "retain_weight", "ridge"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} {getattr(self, name)}: expected 0 or more")
        for name in ("width", "forget_columns", "retain_columns", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} {getattr(self, name)}: expected at least 1")
        if not self.head_beta and (not self.beta or self.layers == ()):
            raise ValueError("nothing to edit: give beta and layers, or head_beta")
        if not 0 <= self.difficulty_gain <= 1:
            raise ValueError(f"difficulty_gain {self.difficulty_gain}: expected 0 to 1")
        if self.target == "corruption" and self.head_beta:
            raise ValueError(f"head_beta {self.head_beta}: corruption has no targets at the unembedding; expected 0")
        maps = (0 if not self.beta else self.width if self.layers is None else len(self.layers)) + bool(self.head_beta)
        if self.search and self.sequential and maps > 1:
            raise ValueError(
                f"search with a sequential band of {maps} maps: such an edit is not linear in its strength; "
                "set sequential: false, or edit one layer"
            )

    def residual_edit(
        self,
        keys: Keys,
        retain: KeyGram | Tensor,
        *,
        alpha: Float[Tensor, " vocabulary"],
        unembedding: Tensor,
        emphasis: Float[Tensor, " example"] | None = None,
        withdrawn: Bool[Tensor, " example"] | None = None,
    ) -> LayerEdit:
        """The edit of one down-projection from the keys it reads; `emphasis` scales the targets of each example."""
        if self.target == "corruption":
            width = unembedding.shape[1]
            targets = corruption_targets(len(keys), width, strength=self.beta, seed=self.direction_seed)
        else:
            targets = residual_targets(keys.tokens, alpha, unembedding, beta=self.beta)
        return self._solve(keys, targets, retain, emphasis, withdrawn)

    def head_edit(
        self,
        keys: Keys,
        retain: KeyGram | Tensor,
        *,
        alpha: Float[Tensor, " vocabulary"],
        emphasis: Float[Tensor, " example"] | None = None,
        withdrawn: Bool[Tensor, " example"] | None = None,
    ) -> LayerEdit:
        """The edit of the unembedding; only rows of forget tokens change."""
        targets, rows = logit_targets(keys.tokens, alpha, beta=self.head_beta)
        edit = self._solve(keys, targets, retain, emphasis, withdrawn)

        def of_all_rows(part: Tensor) -> Tensor:
            change = part.new_zeros(len(alpha), part.shape[1])
            change[rows] = part
            return change

        withdrawal = None if edit.withdrawal is None else of_all_rows(edit.withdrawal)
        return replace(edit, change=of_all_rows(edit.change), withdrawal=withdrawal)

    def _solve(
        self,
        keys: Keys,
        targets: Targets,
        retain: KeyGram | Tensor,
        emphasis: Float[Tensor, " example"] | None,
        withdrawn: Bool[Tensor, " example"] | None,
    ) -> LayerEdit:
        if emphasis is not None:
            targets = targets.scaled(emphasis[keys.examples])
        edit = ridge_edit(keys.values, targets, retain, retain_weight=self.retain_weight, ridge=self.ridge)
        influence = influence_norms(edit, keys.values, targets, keys.examples) if self.influence else {}
        columns = torch.empty(0) if withdrawn is None else withdrawn.to(keys.examples.device)[keys.examples].nonzero()
        if not columns.numel():
            return LayerEdit(edit.change.float(), edit.mu, influence)
        left, right = influence_factors(edit, keys.values, targets, columns.flatten())
        return LayerEdit(edit.change.float(), edit.mu, influence, (left @ right).float())
