"""How much of a model's behaviour a circuit carries: the metric with all edges outside it, or inside it, ablated.

Ablation is real: each reader gets its own copy of the residual stream in which ablated sources are replaced.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from transformers import PreTrainedModel

from efface.circuits.metrics import METRICS, MetricName
from efface.circuits.recorded_run import Sources, one_key_per_query
from efface.circuits.residual_stream import (
    ResidualStream,
    norm_of,
    normalised,
    reader_offsets,
    reader_weights,
    residual_stream,
    writers,
)
from efface.tokenization import Batch
from efface.training.losses import at_least_float32


@dataclass(frozen=True)
class Faithfulness:
    """Metric per example with nothing, all but the circuit, the circuit alone, and everything ablated."""

    whole: Float[Tensor, " example"]
    circuit: Float[Tensor, " example"]
    complement: Float[Tensor, " example"]
    empty: Float[Tensor, " example"]

    @property
    def normalised(self) -> Float[Tensor, " example"]:
        """(circuit − empty) / (whole − empty): 1 where the circuit alone behaves like the model, 0 like nothing."""
        return (self.circuit - self.empty) / (self.whole - self.empty)

    @property
    def complement_normalised(self) -> Float[Tensor, " example"]:
        """(complement − empty) / (whole − empty): near 0 where nothing outside the circuit does its work."""
        return (self.complement - self.empty) / (self.whole - self.empty)


def faithfulness(
    model: PreTrainedModel,
    batch: Batch,
    circuits: Bool[Tensor, "example edge"],
    *,
    metric: MetricName,
    baseline: Sources,
) -> Faithfulness:
    """The metric under ablation of everything outside each example's circuit, and of everything inside it.

    Cost: four forward passes with a residual stream per head: fp32 memory for examples × 3 heads × positions × width.
    """
    graph = residual_stream(model).graph
    inside = graph.matrix(circuits).float()
    real = graph.real_edge_mask.to(inside)
    ablations = [torch.zeros_like(inside), real - inside, inside, real.expand_as(inside)]
    return Faithfulness(*(patched_metric(model, batch, share, metric=metric, baseline=baseline) for share in ablations))


@torch.no_grad()
def patched_metric(
    model: PreTrainedModel,
    batch: Batch,
    share: Float[Tensor, "example source destination"],
    *,
    metric: MetricName,
    baseline: Sources,
) -> Float[Tensor, " example"]:
    """The metric where every reader v gets x + Σ_u share(u, v) · (baseline_u − a_u), a_u the outputs of this very run.

    A share of 1 ablates the edge, 0 leaves it alone; the metric's reference are the unpatched logits.
    """
    stream = residual_stream(model)
    keywords = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask, "use_cache": False}
    reference = model(**keywords).logits if metric == "kl" else None
    patching = _Patching(stream, share.to(batch.input_ids.device), baseline)
    with ExitStack() as stack:
        for module, function, before in patching.hooks():
            register = module.register_forward_pre_hook if before else module.register_forward_hook
            stack.callback(register(function).remove)
        for block in stream.blocks:
            stack.enter_context(one_key_per_query(block, stream))
        logits = model(**keywords).logits
    return METRICS[metric](logits, batch.labels, reference)


class _Patching:
    """The state of one patched pass: differences of the sources so far, and the residual stream last read."""

    def __init__(self, stream: ResidualStream, share: Tensor, baseline: Sources) -> None:
        self.stream, self.graph, self.share, self.baseline = stream, stream.graph, share, baseline
        self.differences: list[Tensor] = []
        self.residual: Tensor | None = None

    def hooks(self) -> Iterator[tuple[nn.Module, Callable, bool]]:
        """Module, hook, and whether it runs before the module."""
        yield self.stream.embedding, partial(self._add, baseline=self.baseline.embedding), False
        for layer, block in enumerate(self.stream.blocks):
            yield block.attention_norm, self._read, True
            for read, module in enumerate(block.projections):
                reads = (0, 1, 2) if len(block.projections) == 1 else (read,)
                yield module, partial(self._project, layer=layer, reads=reads), False
            yield block.output, partial(self._add_heads, layer=layer), True
            if not self.stream.parallel:
                yield block.mlp_norm, self._read, True
            yield block.mlp, partial(self._enter_mlp, layer=layer), True
            yield block.mlp, partial(self._add, baseline=self.baseline.mlps[layer]), False
        yield self.stream.final_norm, self._read_last, True

    def _add(self, module: nn.Module, arguments: tuple, output: Tensor, *, baseline: Tensor) -> None:
        self.differences.append((at_least_float32(baseline) - at_least_float32(output))[:, None])

    def _add_heads(self, module: nn.Module, arguments: tuple, *, layer: int) -> None:
        heads = at_least_float32(self.baseline.heads[layer]) - at_least_float32(arguments[0])
        by_head = heads.unflatten(-1, (self.stream.heads, self.stream.head_dim))
        self.differences.append(torch.einsum("bthk,hkd->bhtd", by_head, writers(self.stream, layer)))

    def _read(self, module: nn.Module, arguments: tuple) -> None:
        self.residual = at_least_float32(arguments[0])

    def _patched(self, columns: slice, seen: int) -> Float[Tensor, "example column position width"]:
        """The residual stream of each of these columns."""
        assert self.residual is not None
        differences = torch.cat(self.differences, dim=1)[:, :seen]
        share = self.share[:, :seen, columns].to(differences.dtype)
        return self.residual[:, None] + torch.einsum("bsc,bstd->bctd", share, differences)

    def _project(
        self, module: nn.Module, arguments: tuple, output: Tensor, *, layer: int, reads: tuple[int, ...]
    ) -> Tensor:
        first, heads = self.graph.attention_columns(layer).start, self.graph.heads
        columns = slice(first + reads[0] * heads, first + (reads[-1] + 1) * heads)
        residual = self._patched(columns, self.graph.seen_by_attention(layer))
        x_hat, _ = normalised(residual, norm_of(self.stream.blocks[layer].attention_norm))
        weights = reader_weights(self.stream, layer)[list(reads)].flatten(0, 1)
        offsets = reader_offsets(self.stream, layer)[list(reads)].flatten(0, 1)
        return (torch.einsum("bctd,ckd->btck", x_hat, weights) + offsets).flatten(-2).to(output.dtype)

    def _enter_mlp(self, module: nn.Module, arguments: tuple, *, layer: int) -> tuple:
        column, norm = self.graph.mlp_column(layer), norm_of(self.stream.blocks[layer].mlp_norm)
        residual = self._patched(slice(column, column + 1), self.graph.seen_by_mlp(layer))[:, 0]
        return ((normalised(residual, norm)[0] * norm.gain + norm.shift).to(arguments[0].dtype), *arguments[1:])

    def _read_last(self, module: nn.Module, arguments: tuple) -> tuple:
        self._read(module, arguments)
        last = self.graph.n_destinations - 1
        patched = self._patched(slice(last, last + 1), self.graph.n_sources)[:, 0]
        return (patched.to(arguments[0].dtype), *arguments[1:])
