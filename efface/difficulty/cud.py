"""CUD: where an example's circuit lies between the circuit of easily and of hardly unlearned examples."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from efface.difficulty.similarity import EPSILON, Similarity, Weighting, circuit_vectors, similarities

Role = Literal["easy", "hard"]
ROLES: tuple[Role, Role] = ("easy", "hard")


@dataclass(frozen=True)
class Circuits:
    """Signed edge scores over one fixed order of edges, and the edges that a selection kept."""

    scores: Float[Tensor, "*example edge"]
    mask: Bool[Tensor, "*example edge"]


@dataclass(frozen=True)
class CudScores:
    """One score per example with the two similarities it comes from; `undefined` where the score says nothing."""

    s_easy: Float[Tensor, " example"]
    s_hard: Float[Tensor, " example"]
    cud: Float[Tensor, " example"]
    undefined: Bool[Tensor, " example"]


@dataclass(frozen=True)
class Cud:
    """Which similarity compares circuits, and whether circuits count edges (`binary`) or weigh them by signed score."""

    similarity: Similarity = "cosine"
    weighting: Weighting = "binary"

    def scores(self, circuits: Circuits, easy: Circuits, hard: Circuits) -> CudScores:
        """The scores of all `circuits` between the two anchor circuits.

        Raises: ValueError where an anchor circuit is empty: every score would be 0.5 or lean to the other anchor.
        """
        vectors = [circuit_vectors(c.scores, c.mask, weighting=self.weighting) for c in (circuits, easy, hard)]
        for role, anchor in zip(("easy", "hard"), vectors[1:], strict=True):
            if not anchor.any():
                raise ValueError(
                    f"the {role} anchor circuit has no edges after pruning, expected at least one; "
                    "raise extract_circuits.edges or choose another selection or intervention"
                )
        return cud_scores(*vectors, similarity=self.similarity)


def cud_scores(
    circuits: Float[Tensor, "example edge"],
    easy: Float[Tensor, " edge"],
    hard: Float[Tensor, " edge"],
    *,
    similarity: Similarity,
) -> CudScores:
    """CUD of circuit vectors: 0 at the easy anchor, 1 at the hard one; high is hard.

    CUD, arXiv:2601.09624: CUD(q) = dE / (dE + dH + 1e-12), dE = max(0, 1 − s(q, easy)), dH = max(0, 1 − s(q, hard)).
    It is 0.5 and flagged as undefined where dE + dH ≤ 1e-12 or the example's circuit is empty.
    """
    s_easy = similarities(circuits, easy, similarity=similarity)
    s_hard = similarities(circuits, hard, similarity=similarity)
    to_easy, to_hard = (1 - s_easy).clamp_min(0), (1 - s_hard).clamp_min(0)
    total = to_easy + to_hard
    undefined = (total <= EPSILON) | (circuits.double().norm(dim=1) < EPSILON)
    return CudScores(s_easy, s_hard, torch.where(undefined, 0.5, to_easy / (total + EPSILON)), undefined)


def anchor_circuit(
    mean_scores: Float[Tensor, " edge"], select: Callable[[Float[Tensor, " edge"]], Bool[Tensor, " edge"]]
) -> Circuits:
    """The circuit of an anchor set: the mean of its examples' signed scores first, then one selection.

    It is not a mean of the examples' own circuits. `select` is the selection that made those.
    """
    return Circuits(mean_scores, select(mean_scores))


def easiest_and_hardest(
    cud: Float[Tensor, " example"], *, size: int
) -> tuple[Int[Tensor, " chosen"], Int[Tensor, " chosen"]]:
    """Places of the `size` lowest scores (easy, lowest first) and of the `size` highest (hard, highest first).

    Equal scores count in the order given, so that the two never overlap.

    Raises: ValueError where the two sets would overlap.
    """
    if not 0 < size <= len(cud) // 2:
        raise ValueError(
            f"forget sets of {size} examples from {len(cud)} with a defined score: expected 1 to {len(cud) // 2}, "
            "so that easy and hard stay apart; lower prepare_data.forget_set_size or enlarge the pool"
        )
    order = torch.argsort(cud, stable=True)
    return order[:size], order[-size:].flip(0)
