"""From gradients at readers to scores of edges, for every example of a batch, without a gradient per destination.

The norm before a head is a scale minus a projection: with v = Wᵀg, ∂M/∂x = (v − x̂ mean(x̂ ⊙ v)) / scale. The first part
is linear in g / scale, which is summed over runs and multiplied out once; the second needs only ⟨Δ, x̂⟩ and ⟨W x̂, g⟩.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from efface.circuits.recorded_run import ReaderGradients, Run, Sources, by_head
from efface.circuits.residual_stream import (
    ResidualStream,
    norm_backward,
    norm_of,
    normalised,
    reader_offsets,
    reader_weights,
    writers,
)
from efface.training.losses import at_least_float32


@dataclass(frozen=True)
class GradientSums:
    """Sums over runs: what the contraction multiplies out at the end, and the norms' rank-one parts already done."""

    projections: Float[Tensor, "layer example position read head head_dim"]
    mlps: Float[Tensor, "layer example position width"]
    final: Float[Tensor, "example position width"]
    rank_one: Float[Tensor, "layer example source column"]
    offsets: Float[Tensor, "layer read head head_dim"]


def source_differences(
    stream: ResidualStream, clean: Sources, baseline: Sources, mask: Int[Tensor, "example position"]
) -> Float[Tensor, "example source position width"]:
    """What each source would add to the residual stream if it were ablated: baseline − clean, zero on padding."""
    graph = stream.graph
    first = at_least_float32(baseline.embedding) - at_least_float32(clean.embedding)
    examples, positions, width = first.shape
    found = first.new_zeros(examples, graph.n_sources, positions, width)
    found[:, 0] = first
    for layer in range(graph.layers):
        heads = at_least_float32(baseline.heads[layer]) - at_least_float32(clean.heads[layer])
        by_heads = heads.unflatten(-1, (stream.heads, stream.head_dim))
        found[:, graph.head_rows(layer)] = torch.einsum("bthk,hkd->bhtd", by_heads, writers(stream, layer))
        found[:, graph.mlp_row(layer)] = at_least_float32(baseline.mlps[layer]) - at_least_float32(clean.mlps[layer])
    return found.mul_(mask[:, None, :, None])


def empty_sums(stream: ResidualStream, differences: Float[Tensor, "example source position width"]) -> GradientSums:
    """Sums of no runs yet."""
    graph = stream.graph
    examples, _, positions, width = differences.shape
    per_head = (3, stream.heads, stream.head_dim)
    return GradientSums(
        projections=differences.new_zeros(graph.layers, examples, positions, *per_head),
        mlps=differences.new_zeros(graph.layers, examples, positions, width),
        final=differences.new_zeros(examples, positions, width),
        rank_one=differences.new_zeros(graph.layers, examples, graph.n_sources, 3 * stream.heads),
        offsets=torch.stack([reader_offsets(stream, layer) for layer in range(graph.layers)]),
    )


def add_run(
    sums: GradientSums,
    stream: ResidualStream,
    run: Run,
    gradients: ReaderGradients,
    differences: Float[Tensor, "example source position width"],
) -> None:
    """Adds the gradients of one run to the sums, in place."""
    directions, shares = [], []
    for layer, block in enumerate(stream.blocks):
        x_hat, inverse_scale = normalised(run.kept.attention_inputs[layer].detach(), norm_of(block.attention_norm))
        gradient = gradients.projections[layer] * inverse_scale[..., None, None]
        sums.projections[layer] += gradient
        varying = by_head(run.kept.projections[layer], stream).detach() - sums.offsets[layer]
        shares.append((varying * gradient).sum(-1).flatten(-2) / x_hat.shape[-1])
        directions.append(x_hat)
        sums.mlps[layer] += norm_backward(
            gradients.mlp_normed[layer], run.kept.mlp_inputs[layer].detach(), norm_of(block.mlp_norm)
        )
    sums.final.add_(at_least_float32(gradients.final_input))
    _add_rank_one(sums, torch.stack(directions), torch.stack(shares), differences)


def contracted_scores(
    sums: GradientSums, stream: ResidualStream, differences: Float[Tensor, "example source position width"]
) -> Float[Tensor, "example source destination"]:
    """Σ over positions and width of difference · summed gradient, for every edge; exactly 0 where there is no edge."""
    graph = stream.graph
    flat = differences.flatten(2)
    scores = differences.new_zeros(len(differences), graph.n_sources, graph.n_destinations)
    for layer, block in enumerate(stream.blocks):
        weights = reader_weights(stream, layer).flatten(0, 1)
        if norm_of(block.attention_norm).centred:
            weights = weights - weights.mean(-1, keepdim=True)
        seen, columns = graph.seen_by_attention(layer), graph.attention_columns(layer)
        seen_by_mlp, mlp = graph.seen_by_mlp(layer), graph.mlp_column(layer)
        for example in range(len(flat)):
            heads = sums.projections[layer, example].flatten(1, 2).transpose(0, 1)
            at_readers = torch.cat([torch.bmm(heads, weights), sums.mlps[layer, example][None]]).flatten(1)
            found = flat[example, :seen_by_mlp] @ at_readers.T
            scores[example, :seen, columns] = found[:seen, :-1] - sums.rank_one[layer, example, :seen]
            scores[example, :seen_by_mlp, mlp] = found[:, -1]
    scores[:, :, -1] = torch.bmm(flat, sums.final.flatten(1)[:, :, None])[:, :, 0]
    return scores


def _add_rank_one(
    sums: GradientSums,
    directions: Float[Tensor, "layer example position width"],
    shares: Float[Tensor, "layer example position column"],
    differences: Float[Tensor, "example source position width"],
) -> None:
    """Adds Σ_position ⟨Δ, x̂⟩ · ⟨W x̂, g⟩ / width, of which the norm's backward pass takes away so much."""
    for example in range(len(differences)):
        along = torch.bmm(differences[example].transpose(0, 1), directions[:, example].permute(1, 2, 0))
        sums.rank_one[:, example] += torch.einsum("tsl,ltc->lsc", along, shares[:, example])
