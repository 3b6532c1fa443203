"""How alike two circuits are: cosine, Jaccard and Hamming over one fixed order of edges."""

from collections.abc import Callable
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor

Similarity = Literal["cosine", "jaccard", "hamming"]
Weighting = Literal["binary", "weighted"]
SIMILARITIES: tuple[Similarity, ...] = get_args(Similarity)
WEIGHTINGS: tuple[Weighting, ...] = get_args(Weighting)
EPSILON = 1e-12


def circuit_vectors(
    scores: Float[Tensor, "*example edge"], mask: Bool[Tensor, "*example edge"], *, weighting: Weighting
) -> Float[Tensor, "*example edge"]:
    """Circuits as vectors over all edges: 1 (`binary`) or the signed score (`weighted`) where an edge is in, else 0."""
    if weighting == "binary":
        return mask.to(scores.dtype)
    if weighting == "weighted":
        return torch.where(mask, scores, 0)
    raise ValueError(f"weighting {weighting!r}: expected one of {list(WEIGHTINGS)}")


def similarities(
    circuits: Float[Tensor, "example edge"], anchor: Float[Tensor, " edge"], *, similarity: Similarity
) -> Float[Tensor, " example"]:
    """The chosen similarity of every circuit with one anchor circuit, in float64."""
    return MEASURES[similarity](circuits.double(), anchor.double())


def cosine_similarities(
    circuits: Float[Tensor, "example edge"], anchor: Float[Tensor, " edge"]
) -> Float[Tensor, " example"]:
    """Cosine of the angle between circuits.

    arXiv:2601.09624: cos(a, b) = ⟨a, b⟩ / (‖a‖‖b‖), and 0 if either norm is below 1e-12.

    Departs from the paper: its code adds 1e-12 to ‖a‖‖b‖; a circuit of small scores is then unlike itself.
    """
    norms, anchor_norm = circuits.norm(dim=1), anchor.norm()
    empty = (norms < EPSILON) | (anchor_norm < EPSILON)
    return torch.where(empty, 0, circuits @ anchor / torch.where(empty, 1, norms * anchor_norm))


def jaccard_similarities(
    circuits: Float[Tensor, "example edge"], anchor: Float[Tensor, " edge"]
) -> Float[Tensor, " example"]:
    """Shared part of two circuits over their union, 0 … 1; 0 if either is empty.

    Binary: |A ∩ B| / |A ∪ B|. Weighted: Σ min(|a|, |b|) over edges of equal sign / (Σ|a| + Σ|b| − that sum), each
    circuit scaled to a mean absolute edge of 1: binary circuits stay as they are, and the measure is free of scale.

    Departs from the paper: it names Jaccard without a formula for weighted circuits.
    """
    circuits, anchor = _unit_mean_edges(circuits), _unit_mean_edges(anchor)
    agree = (circuits * anchor) > 0
    shared = torch.where(agree, torch.minimum(circuits.abs(), anchor.abs()), 0).sum(dim=1)
    union = circuits.abs().sum(dim=1) + anchor.abs().sum() - shared
    return _zero_if_empty(shared / union.clamp_min(EPSILON), circuits, anchor)


def hamming_similarities(
    circuits: Float[Tensor, "example edge"], anchor: Float[Tensor, " edge"]
) -> Float[Tensor, " example"]:
    """One minus the share of edges in which two circuits differ; 0 if either is empty.

    Binary: 1 − |A Δ B| / d with d edges in the graph. Weighted: 1 − Σ|a − b| / d, scaled as for Jaccard; it may fall
    below 0 where circuits hold most of the graph. The constant d cancels in CUD.

    Departs from the paper: it names Hamming without a formula for weighted circuits.
    """
    circuits, anchor = _unit_mean_edges(circuits), _unit_mean_edges(anchor)
    distances = (circuits - anchor).abs().sum(dim=1) / circuits.shape[1]
    return _zero_if_empty(1 - distances, circuits, anchor)


def _unit_mean_edges(circuits: Float[Tensor, "*example edge"]) -> Float[Tensor, "*example edge"]:
    """Circuits scaled so that the mean absolute value of their edges, zeros aside, is 1."""
    sizes = (circuits != 0).sum(dim=-1, keepdim=True)
    totals = circuits.abs().sum(dim=-1, keepdim=True)
    return torch.where(totals > 0, circuits * (sizes / totals.clamp_min(torch.finfo(circuits.dtype).tiny)), 0)


def _zero_if_empty(
    values: Float[Tensor, " example"], circuits: Float[Tensor, "example edge"], anchor: Float[Tensor, " edge"]
) -> Float[Tensor, " example"]:
    return torch.where((circuits != 0).any(dim=1) & (anchor != 0).any(), values, 0)


MEASURES: dict[Similarity, Callable[[Tensor, Tensor], Tensor]] = {
    "cosine": cosine_similarities,
    "jaccard": jaccard_similarities,
    "hamming": hamming_similarities,
}
