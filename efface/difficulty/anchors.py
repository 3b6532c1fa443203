"""Anchors: the examples that unlearning forgets most easily and least, by a vote over runs.

A run is one method with one seed. Either it unlearns all candidates, and a low loss afterwards was hard to forget; or
it chooses by itself, see `bilevel.py`. In both cases it ranks the candidates, and the ranks are put to the vote.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from efface.difficulty.cud import Role
from efface.unlearning.methods import GradDiff, Undial, Unlearning

Method = Annotated[Unlearning, Field(discriminator="method")]


@dataclass(frozen=True)
class BilevelSchedule:
    """Steps of the bi-level selection: projected gradient on weights of membership above, sign-SGD on θ below.

    Forget and retain weight and the loss come from the method; its training settings are replaced by these.
    """

    epochs: int = 10
    learning_rate: float = 0.01
    penalty: float = 0.0
    binarise_every: int = 20
    unlearn_epochs: int = 10
    unlearn_learning_rate: float = 1e-5


@dataclass(frozen=True)
class AnchorSelection:
    """How many anchors per role, by which rule, from which unlearning runs: every method with every seed.

    An anchor counts as voted, not filled up, where `min_votes` runs agree on it; default: half of the runs. Losses are
    measured in batches of `batch_size`.

    Raises: ValueError where there is no run, or two methods share a name.
    """

    rule: Literal["voting", "bilevel"] = "voting"
    size: int = 15
    methods: tuple[Method, ...] = (
        GradDiff(learning_rate=3e-4, epochs=5, batch_size=16, gradient_accumulation=1),
        Undial(learning_rate=3e-4, epochs=5, batch_size=16, gradient_accumulation=1),
    )
    seeds: tuple[int, ...] = (0, 1)
    min_votes: int | None = None
    batch_size: int = 32
    bilevel: BilevelSchedule = field(default_factory=BilevelSchedule)

    def __post_init__(self) -> None:
        names = [method.method for method in self.methods]
        if not names or not self.seeds or len(set(names)) < len(names) or len(set(self.seeds)) < len(self.seeds):
            raise ValueError(
                f"select_anchors: methods {names} with seeds {list(self.seeds)}: expected some of both, each once"
            )

    def vote(self, losses: Float[Tensor, "run example"]) -> dict[Role, "AnchorVote"]:
        """Easy and hard anchors by `anchor_votes`."""
        return anchor_votes(losses, size=self.size, min_votes=self.min_votes)


@dataclass(frozen=True)
class AnchorVote:
    """Anchors of one role, best first: places among the candidates, votes, mean rank over runs, agreed or filled up."""

    places: Int[Tensor, " anchor"]
    votes: Int[Tensor, " anchor"]
    mean_rank: Float[Tensor, " anchor"]
    agreed: tuple[bool, ...]


def anchor_votes(
    losses: Float[Tensor, "run example"], *, size: int, min_votes: int | None = None
) -> dict[Role, AnchorVote]:
    """Easy and hard anchors by `ranked_votes` over post-unlearning losses: the highest are easy, the lowest hard.

    Raises: ValueError where `size` anchors of both roles do not fit, or a loss is not finite.
    """
    hard = loss_ranks(losses)
    return ranked_votes({"easy": losses.shape[1] - 1 - hard, "hard": hard}, size=size, min_votes=min_votes)


def loss_ranks(losses: Float[Tensor, "run example"]) -> Int[Tensor, "run example"]:
    """Rank of each example in its run, 0 for the lowest loss, the least forgotten; equal losses keep the order given.

    Raises: ValueError where a loss is not finite.
    """
    if not torch.isfinite(losses).all():
        count = int((~torch.isfinite(losses)).sum())
        raise ValueError(f"{count} post-unlearning losses are not finite; lower the methods' learning_rate or epochs")
    return losses.argsort(dim=1, stable=True).argsort(dim=1, stable=True)


def ranked_votes(
    ranks: Mapping[Role, Int[Tensor, "run example"]], *, size: int, min_votes: int | None = None
) -> dict[Role, AnchorVote]:
    """Easy and hard anchors by a vote of runs, each of which ranks every example for each role, 0 for the best.

    A rank below `size` is a vote. Anchors are the first `size` examples by (votes descending, mean rank ascending); an
    example in both lists stays easy only, and hard is filled up again.

    Raises: ValueError where `size` anchors of both roles do not fit.
    """
    runs, examples = ranks["easy"].shape
    check_size(size, examples)
    needed = math.ceil(runs / 2) if min_votes is None else min_votes
    easy = _voted(ranks["easy"], size=size, needed=needed, barred=())
    return {"easy": easy, "hard": _voted(ranks["hard"], size=size, needed=needed, barred=easy.places.tolist())}


def check_size(size: int, candidates: int) -> None:
    """Raises: ValueError where `size` easy and `size` hard anchors do not fit into the candidates."""
    if not 0 < size <= candidates // 2:
        raise ValueError(
            f"{size} easy and {size} hard anchors from {candidates} candidates: expected size 1 to {candidates // 2}; "
            "lower select_anchors.size or raise prepare_data.anchor_candidates"
        )


def stability(choices: Sequence[Sequence[int]]) -> float:
    """Mean Jaccard overlap |A ∩ B| / |A ∪ B| over all pairs of choices, 1 where all agree; NaN for fewer than two."""
    sets = [set(choice) for choice in choices]
    overlaps = [len(a & b) / max(1, len(a | b)) for place, a in enumerate(sets) for b in sets[place + 1 :]]
    return sum(overlaps) / len(overlaps) if overlaps else math.nan


def _voted(ranks: Int[Tensor, "run example"], *, size: int, needed: int, barred: Sequence[int]) -> AnchorVote:
    votes, mean_rank = (ranks < size).sum(dim=0), ranks.double().mean(dim=0)
    forbidden = set(barred)
    order = sorted(range(ranks.shape[1]), key=lambda place: (-int(votes[place]), float(mean_rank[place]), place))
    places = torch.tensor([place for place in order if place not in forbidden][:size])
    return AnchorVote(places, votes[places], mean_rank[places], tuple((votes[places] >= needed).tolist()))
