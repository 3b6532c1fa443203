"""Similarities of circuits: exact on sets, free of scale, and what an empty circuit gives."""

import pytest
import torch

from efface.difficulty.similarity import SIMILARITIES, WEIGHTINGS, circuit_vectors, similarities

EDGES = 40


def random_sets(count: int, size: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.stack([(torch.randperm(EDGES, generator=generator) < size).double() for _ in range(count)])


def random_weighted(count: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, EDGES, generator=generator, dtype=torch.float64) * random_sets(count, 12, seed)


def test_binary_measures_are_the_set_formulas():
    """A = {0, 1, 2}, B = {1, 2, 3, 4}: overlap 2, union 5, difference 3, of 40 edges."""
    a, b = torch.zeros(EDGES), torch.zeros(EDGES)
    a[[0, 1, 2]] = b[[1, 2, 3, 4]] = 1
    assert similarities(a[None], b, similarity="cosine").item() == pytest.approx(2 / 12**0.5, abs=1e-15)
    assert similarities(a[None], b, similarity="jaccard").item() == pytest.approx(2 / 5, abs=1e-15)
    assert similarities(a[None], b, similarity="hamming").item() == pytest.approx(1 - 3 / 40, abs=1e-15)


def test_weighted_measures_by_hand():
    """a = (2, −2, 0), b = (1, 3, 2), of mean 2: a' = (1, −1, 0), b' = (.5, 1.5, 1), shared .5, union 2 + 3 − .5."""
    a, b = torch.tensor([[2.0, -2.0, 0.0]]), torch.tensor([1.0, 3.0, 2.0])
    assert similarities(a, b, similarity="cosine").item() == pytest.approx(-4 / (8**0.5 * 14**0.5), abs=1e-12)
    assert similarities(a, b, similarity="jaccard").item() == pytest.approx(0.5 / 4.5, abs=1e-12)
    assert similarities(a, b, similarity="hamming").item() == pytest.approx(1 - (0.5 + 2.5 + 1) / 3, abs=1e-12)


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("scale", [1e-9, 1e6])
def test_every_circuit_is_fully_alike_itself_and_its_multiples(similarity, scale):
    circuits = torch.cat([random_sets(3, 9), random_weighted(3)])
    for circuit in circuits:
        assert similarities(scale * circuit[None], circuit, similarity=similarity).item() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_similarity_is_symmetric(similarity):
    a, b = random_weighted(2, seed=3)
    forward, backward = similarities(a[None], b, similarity=similarity), similarities(b[None], a, similarity=similarity)
    torch.testing.assert_close(forward, backward, rtol=0, atol=1e-12)


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_an_empty_circuit_is_like_nothing(similarity):
    circuits = torch.stack([torch.zeros(EDGES), torch.ones(EDGES)])
    assert similarities(circuits, torch.zeros(EDGES), similarity=similarity).tolist() == [0, 0]
    assert similarities(circuits, torch.ones(EDGES), similarity=similarity)[0] == 0


def test_a_whole_batch_equals_one_at_a_time():
    circuits = torch.cat([random_weighted(5), random_sets(2, 4), torch.zeros(1, EDGES)])
    anchor = random_weighted(1, seed=9)[0]
    for similarity in SIMILARITIES:
        together = similarities(circuits, anchor, similarity=similarity)
        apart = torch.cat([similarities(circuit[None], anchor, similarity=similarity) for circuit in circuits])
        torch.testing.assert_close(together, apart, rtol=0, atol=1e-14)


def test_circuit_vectors_keep_only_selected_edges():
    scores, mask = torch.tensor([[0.5, -0.2, 0.9]]), torch.tensor([[True, True, False]])
    assert circuit_vectors(scores, mask, weighting="binary").tolist() == [[1, 1, 0]]
    assert circuit_vectors(scores, mask, weighting="weighted")[0].tolist() == pytest.approx([0.5, -0.2, 0])
    assert WEIGHTINGS == ("binary", "weighted")
