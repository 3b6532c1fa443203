"""CUD: its two fixed points, its symmetry, its range, its undefined cases, and the sets it makes."""

import itertools

import pytest
import torch

from efface.difficulty.cud import Circuits, Cud, anchor_circuit, cud_scores, easiest_and_hardest
from efface.difficulty.similarity import SIMILARITIES, WEIGHTINGS

EDGES = 40
CHOICES = list(itertools.product(SIMILARITIES, WEIGHTINGS))


def random_sets(count: int, size: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.stack([(torch.randperm(EDGES, generator=generator) < size).double() for _ in range(count)])


def random_weighted(count: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, EDGES, generator=generator, dtype=torch.float64) * random_sets(count, 12, seed)


def circuits_of(vectors: torch.Tensor) -> Circuits:
    return Circuits(vectors, vectors != 0)


def literal_cud(query: torch.Tensor, easy: torch.Tensor, hard: torch.Tensor) -> float:
    """Cosine CUD of one example, written as the digest states it."""

    def cosine(a: torch.Tensor, b: torch.Tensor) -> float:
        if a.norm() < 1e-12 or b.norm() < 1e-12:
            return 0.0
        return float(a @ b / (a.norm() * b.norm() + 1e-12))

    to_easy, to_hard = max(0.0, 1 - cosine(query, easy)), max(0.0, 1 - cosine(query, hard))
    return to_easy / (to_easy + to_hard + 1e-12) if to_easy + to_hard > 1e-12 else 0.5


@pytest.mark.parametrize(("similarity", "weighting"), CHOICES)
def test_anchors_are_the_fixed_points(similarity, weighting):
    easy, hard = random_weighted(2, seed=5)
    scored = Cud(similarity, weighting).scores(
        circuits_of(torch.stack([easy, hard])), circuits_of(easy), circuits_of(hard)
    )
    assert scored.cud.tolist() == pytest.approx([0, 1], abs=1e-10)
    assert not scored.undefined.any()


@pytest.mark.parametrize(("similarity", "weighting"), CHOICES)
def test_swapping_the_anchors_mirrors_the_score_and_all_stay_within_bounds(similarity, weighting):
    circuits, anchors = circuits_of(random_weighted(50)), random_weighted(2, seed=5)
    easy, hard = circuits_of(anchors[0]), circuits_of(anchors[1])
    scored = Cud(similarity, weighting).scores(circuits, easy, hard).cud
    swapped = Cud(similarity, weighting).scores(circuits, hard, easy).cud
    torch.testing.assert_close(scored, 1 - swapped, rtol=0, atol=1e-10)
    assert ((scored >= 0) & (scored <= 1)).all()


def test_agrees_with_the_formula_taken_literally():
    circuits, (easy, hard) = random_weighted(30, seed=1), random_weighted(2, seed=2)
    ours = cud_scores(circuits, easy, hard, similarity="cosine").cud
    twin = torch.tensor([literal_cud(circuit, easy, hard) for circuit in circuits], dtype=torch.float64)
    torch.testing.assert_close(ours, twin, rtol=0, atol=1e-10)


def test_binary_circuits_of_one_size_score_alike_under_cosine_and_hamming():
    circuits, (easy, hard) = random_sets(60, 10), random_sets(2, 10, seed=7)
    cosine = cud_scores(circuits, easy, hard, similarity="cosine").cud
    hamming = cud_scores(circuits, easy, hard, similarity="hamming").cud
    torch.testing.assert_close(cosine, hamming, rtol=0, atol=1e-11)
    assert cosine.unique().numel() > 5


def test_jaccard_similarity_rises_with_cosine_on_binary_circuits_of_one_size():
    circuits, (easy, hard) = random_sets(60, 10), random_sets(2, 10, seed=7)
    cosine = cud_scores(circuits, easy, hard, similarity="cosine").s_easy
    jaccard = cud_scores(circuits, easy, hard, similarity="jaccard").s_easy
    order = cosine.argsort(stable=True)
    rises_in_cosine, rises_in_jaccard = cosine[order].diff() > 1e-9, jaccard[order].diff() > 1e-9
    assert torch.equal(rises_in_cosine, rises_in_jaccard) and (jaccard[order].diff() > -1e-9).all()


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_undefined_scores_are_one_half_and_flagged(similarity):
    same = random_sets(1, 10)[0]
    empty = torch.zeros(EDGES, dtype=torch.float64)
    between_equal_anchors = cud_scores(torch.stack([same, empty]), same, same, similarity=similarity)
    assert between_equal_anchors.cud.tolist() == [0.5, 0.5] and between_equal_anchors.undefined.all()
    other = random_sets(1, 14, seed=4)[0]
    of_empty = cud_scores(torch.stack([same, empty]), same, other, similarity=similarity)
    assert of_empty.cud[1] == 0.5 and of_empty.undefined.tolist() == [False, True]


def test_an_empty_anchor_circuit_is_an_error():
    full, empty = torch.ones(EDGES), Circuits(torch.ones(EDGES), torch.zeros(EDGES, dtype=torch.bool))
    with pytest.raises(ValueError, match="the hard anchor circuit has no edges after pruning, expected at least one"):
        Cud().scores(circuits_of(full[None]), circuits_of(full), empty)


def test_an_anchor_circuit_is_selected_once_from_mean_scores():
    """Two examples whose own top edges are 0 and 1; the mean's top edge is 2, which neither would have chosen."""
    scores = torch.tensor([[1.0, -0.9, 0.8], [-0.9, 1.0, 0.8]])
    anchor = anchor_circuit(scores.mean(dim=0), lambda mean: mean.abs() == mean.abs().max())
    assert anchor.mask.tolist() == [False, False, True]
    assert anchor.scores.tolist() == pytest.approx([0.05, 0.05, 0.8])


def test_forget_sets_are_the_two_ends():
    easy, hard = easiest_and_hardest(torch.tensor([0.4, 0.1, 0.9, 0.1, 0.5, 0.7]), size=2)
    assert easy.tolist() == [1, 3] and hard.tolist() == [2, 5]
    easy, hard = easiest_and_hardest(torch.full((4,), 0.5), size=2)
    assert easy.tolist() == [0, 1] and hard.tolist() == [3, 2]


@pytest.mark.parametrize("size", [0, 3])
def test_sets_that_would_overlap_are_refused(size):
    with pytest.raises(
        ValueError, match=f"forget sets of {size} examples from 5 with a defined score: expected 1 to 2"
    ):
        easiest_and_hardest(torch.rand(5), size=size)
