"""One run of the anchor selection: the candidates' losses after it, and their ranks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from efface.difficulty.anchors import AnchorSelection, AnchorVote, loss_ranks, ranked_votes
from efface.difficulty.bilevel import bilevel_choice
from efface.difficulty.cud import ROLES, Role
from efface.difficulty.kept_weights import kept_weights
from efface.difficulty.weighted_unlearning import weighted_unlearning_losses
from efface.editing.delta import apply_delta
from efface.evaluation.scoring import score_answers
from efface.tokenization import Encoding
from efface.unlearning.descent import unlearned_delta
from efface.unlearning.methods import Unlearning

RankedFor = Literal["easy", "hard", "both"]


@dataclass(frozen=True)
class AnchorRun:
    """Mean answer NLL of every candidate after a run, and its rank; ranked for `both`, 0 is the hardest."""

    ranked_for: RankedFor
    losses: Float[Tensor, " example"]
    ranks: Int[Tensor, " example"]

    def ranks_for(self, role: Role) -> Int[Tensor, " example"] | None:
        """Ranks with 0 the best for a role; None where the run ranked for the other one."""
        if self.ranked_for == "both" and role == "easy":
            return len(self.ranks) - 1 - self.ranks
        return self.ranks if self.ranked_for in (role, "both") else None


def roles_ranked(selection: AnchorSelection) -> tuple[RankedFor, ...]:
    """What the runs of one method and seed rank for: a voting run both roles at once, a bi-level run one."""
    return ("both",) if selection.rule == "voting" else ROLES


def anchor_run(
    model: PreTrainedModel,
    candidates: Sequence[Encoding],
    retain: Sequence[Encoding],
    *,
    selection: AnchorSelection,
    method: Unlearning,
    ranked_for: RankedFor,
    pad_id: int,
    seed: int,
    checkpoint_folder: str | Path | None = None,
) -> AnchorRun:
    """The run of one method and seed under the selection's rule; the model is as it was afterwards.

    A bi-level run retains other candidates, not `retain`. With `checkpoint_folder` a killed voting run resumes.
    """
    if ranked_for != "both":
        return _bilevel_run(model, candidates, ranked_for, selection, method, pad_id, seed)
    delta = unlearned_delta(
        method,
        model,
        candidates,
        retain,
        pad_id=pad_id,
        seed=seed,
        checkpoint_folder=checkpoint_folder,
        progress=f"{method.method}, seed {seed}",
    )
    with kept_weights(model):
        apply_delta(model, delta)
        losses = answer_losses(model, candidates, batch_size=selection.batch_size, pad_id=pad_id)
    return AnchorRun("both", losses, loss_ranks(losses[None])[0])


def _bilevel_run(
    model: PreTrainedModel,
    candidates: Sequence[Encoding],
    role: Role,
    selection: AnchorSelection,
    method: Unlearning,
    pad_id: int,
    seed: int,
) -> AnchorRun:
    """Ranks by final weight; the losses are those of the last epoch."""
    schedule = selection.bilevel
    choice = bilevel_choice(
        lambda weights: weighted_unlearning_losses(
            model,
            candidates,
            weights,
            method=method,
            epochs=schedule.unlearn_epochs,
            learning_rate=schedule.unlearn_learning_rate,
            batch_size=method.batch_size,
            pad_id=pad_id,
            seed=seed,
        ),
        role=role,
        count=len(candidates),
        size=selection.size,
        epochs=schedule.epochs,
        learning_rate=schedule.learning_rate,
        penalty=schedule.penalty,
        binarise_every=schedule.binarise_every,
        seed=seed,
    )
    order = choice.weights.argsort(descending=True, stable=True)
    return AnchorRun(role, choice.losses[-1], order.argsort(stable=True))


def vote_of_runs(runs: Sequence[AnchorRun], *, size: int, min_votes: int | None) -> dict[Role, AnchorVote]:
    """Anchors by `ranked_votes` over all runs.

    Raises: ValueError where no run ranked for a role, or the anchors do not fit.
    """
    ranks: Mapping[Role, list[Tensor]] = {
        role: [ranked for run in runs if (ranked := run.ranks_for(role)) is not None] for role in ROLES
    }
    if not all(ranks.values()):
        raise ValueError(f"runs ranked for {[run.ranked_for for run in runs]}: expected some for each of {list(ROLES)}")
    return ranked_votes({role: torch.stack(rows) for role, rows in ranks.items()}, size=size, min_votes=min_votes)


def answer_losses(
    model: PreTrainedModel, encodings: Sequence[Encoding], *, batch_size: int, pad_id: int
) -> Float[Tensor, " example"]:
    """Mean answer NLL of every example, nats per token."""
    scores = score_answers(model, encodings, batch_size=batch_size, pad_id=pad_id, label="losses")
    return torch.tensor([score.nll for score in scores], dtype=torch.float64)
