"""Anchors by vote: a hand count, the published lists, and the rule's invariants."""

import math
from pathlib import Path

import pytest
import torch

from efface.difficulty.anchors import AnchorSelection, anchor_votes, loss_ranks, ranked_votes, stability

PUBLISHED = Path(__file__).with_name("published_ranks.csv")


def test_a_vote_by_hand():
    """Three runs over six examples, two anchors a role.

    Highest two: {4, 5}, {4, 5}, {5, 3}: votes 5: 3, 4: 2. Lowest two: {0, 1}, {0, 2}, {0, 1}: votes 0: 3, 1: 2, 2: 1.
    Example 5 is last but one, last, last: places from the top 1, 0, 0.
    """
    losses = torch.tensor(
        [[0.1, 0.2, 0.3, 0.4, 0.9, 0.8], [0.1, 0.3, 0.2, 0.4, 0.8, 0.9], [0.1, 0.2, 0.3, 0.8, 0.4, 0.9]]
    )
    vote = anchor_votes(losses, size=2)
    assert vote["easy"].places.tolist() == [5, 4] and vote["easy"].votes.tolist() == [3, 2]
    assert vote["easy"].mean_rank.tolist() == pytest.approx([1 / 3, 1])
    assert vote["hard"].places.tolist() == [0, 1] and vote["hard"].votes.tolist() == [3, 2]
    assert vote["hard"].agreed == (True, True)


def test_too_few_votes_are_filled_up_by_votes_then_mean_rank():
    """Runs disagree on the lowest: 0 and 1 get one vote each; mean ranks 1 and 1.5 decide their order."""
    losses = torch.tensor([[0.0, 0.5, 0.6, 0.9], [0.3, 0.1, 0.2, 0.8]])
    hard = anchor_votes(losses, size=2, min_votes=2)["hard"]
    assert hard.places.tolist() == [1, 0] and hard.votes.tolist() == [2, 1] and hard.agreed == (True, False)


def test_an_example_in_both_lists_stays_easy_and_hard_is_filled_up():
    """Example 0 is the lowest of one run and the highest of the other, the others lie between."""
    losses = torch.tensor([[0.0, 0.4, 0.5, 0.6], [0.9, 0.4, 0.5, 0.6]])
    vote = anchor_votes(losses, size=2)
    assert 0 in vote["easy"].places.tolist()
    assert set(vote["easy"].places.tolist()).isdisjoint(vote["hard"].places.tolist())
    assert len(vote["hard"].places) == 2


def test_negated_losses_swap_the_roles():
    losses = torch.randn(5, 40, generator=torch.Generator().manual_seed(0))
    vote, mirrored = anchor_votes(losses, size=5), anchor_votes(-losses, size=5)
    assert set(vote["easy"].places.tolist()) == set(mirrored["hard"].places.tolist())


def test_one_run_chooses_its_own_extremes():
    losses = torch.randn(1, 30, generator=torch.Generator().manual_seed(1))
    vote = anchor_votes(losses, size=4)
    assert vote["hard"].places.tolist() == losses[0].argsort()[:4].tolist()
    assert vote["easy"].places.tolist() == losses[0].argsort(descending=True)[:4].tolist()


def test_votes_reproduce_the_published_common_lists():
    """Ids in at least 3 of 5 methods' 50 lowest or highest losses of 400: `common_{easy,hard}_50` of the CUD authors.

    `published_ranks.csv` holds the two ends of each method's order, from `sample_difficulty/tofu/loss.csv` of
    github.com/chengjiali/Explain-Sample-Unlearnability at 61507137; the middle never votes, so its order is left open.
    """
    rows = [line.split(",") for line in PUBLISHED.read_text().splitlines()[1:]]
    losses = torch.full((5, 400), 0.5)
    methods = sorted({method for method, _, _ in rows})
    for method, rank, example in rows:
        losses[methods.index(method), int(example)] = int(rank) / 400
    vote = anchor_votes(losses, size=50, min_votes=3)
    common = {
        role: sorted(
            place for place, agreed in zip(vote[role].places.tolist(), vote[role].agreed, strict=True) if agreed
        )
        for role in ("easy", "hard")
    }
    assert common["easy"] == [152, 158, 233, 236, 286, 288, 291, 307, 316, 341, 352, 366]
    assert common["hard"] == [
        *(20, 21, 40, 60, 80, 82, 92, 121, 135, 160, 171, 180, 181, 205, 245, 267, 320, 361, 364),
    ]


def test_ranks_are_a_permutation_and_ties_keep_their_order():
    assert loss_ranks(torch.tensor([[0.5, 0.1, 0.5, 0.3]])).tolist() == [[2, 0, 3, 1]]


def test_losses_that_are_not_finite_are_refused():
    with pytest.raises(ValueError, match=r"2 post-unlearning losses are not finite; lower the methods' learning_rate"):
        anchor_votes(torch.tensor([[0.1, math.nan, math.inf, 0.2]]), size=1)


@pytest.mark.parametrize("size", [0, 3])
def test_more_anchors_than_candidates_are_refused(size):
    with pytest.raises(
        ValueError, match=f"{size} easy and {size} hard anchors from 5 candidates: expected size 1 to 2"
    ):
        AnchorSelection(size=size).vote(torch.rand(2, 5))


def test_stability_is_the_mean_overlap_of_choices():
    """Pairs of {0,1}, {0,1}, {1,2}: overlaps 1, 1/3, 1/3."""
    assert stability([[0, 1], [1, 0], [1, 2]]) == pytest.approx((1 + 1 / 3 + 1 / 3) / 3)
    assert math.isnan(stability([[0, 1]]))


def test_ranks_may_differ_by_role():
    """As in the bi-level rule, where each role has runs of its own."""
    ranks = {"easy": torch.tensor([[0, 1, 2, 3]]), "hard": torch.tensor([[1, 0, 2, 3]])}
    vote = ranked_votes(ranks, size=1)
    assert vote["easy"].places.tolist() == [0] and vote["hard"].places.tolist() == [1]


@pytest.mark.parametrize("choice", [{"methods": ()}, {"seeds": ()}, {"seeds": (1, 1)}])
def test_runs_that_say_nothing_or_say_it_twice_are_refused(choice):
    with pytest.raises(ValueError, match="expected some of both, each once"):
        AnchorSelection(**choice)
