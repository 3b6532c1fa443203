"""One forward pass of a Hugging Face model with everything that edge scores need kept from it, by hooks alone.

The model's outputs stay what they are; hooks, flags and head counts are put back when the pass is over.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from efface.circuits.metrics import METRICS, MetricName
from efface.circuits.residual_stream import Block, ResidualStream
from efface.training.losses import at_least_float32

SUM_TOLERANCE = 0.05


@dataclass(frozen=True)
class Sources:
    """Outputs of all sources: embedding, per layer the heads before the output projection, and the MLP."""

    embedding: Float[Tensor, "*place width"]
    heads: tuple[Float[Tensor, "*place head_width"], ...]
    mlps: tuple[Float[Tensor, "*place width"], ...]

    def group(self, name: str) -> Tensor:
        """The outputs of a group: `input`, `a{layer}` (all heads of a layer at once) or `m{layer}`."""
        if name == "input":
            return self.embedding
        return (self.heads if name[0] == "a" else self.mlps)[int(name[1:])]


@dataclass(frozen=True)
class Recording:
    """What hooks keep of a pass, one entry per layer: tensors still tied to the graph where gradients are on."""

    embedding: list[Tensor] = field(default_factory=list)
    heads: list[Tensor] = field(default_factory=list)
    mlps: list[Tensor] = field(default_factory=list)
    attention_outputs: list[Tensor] = field(default_factory=list)
    attention_inputs: list[Tensor] = field(default_factory=list)
    projections: list[tuple[Tensor, ...]] = field(default_factory=list)
    mlp_inputs: list[Tensor] = field(default_factory=list)
    mlp_normed: list[Tensor] = field(default_factory=list)
    final_input: list[Tensor] = field(default_factory=list)


@dataclass(frozen=True)
class Run:
    """One pass: what it recorded, the logits from the first prediction of an answer on, and the metric per example."""

    kept: Recording
    logits: Float[Tensor, "example kept vocabulary"]
    metric: Float[Tensor, " example"]

    @property
    def sources(self) -> Sources:
        heads, mlps = (tuple(part.detach() for part in parts) for parts in (self.kept.heads, self.kept.mlps))
        return Sources(self.kept.embedding[0].detach(), heads, mlps)


@dataclass(frozen=True)
class ReaderGradients:
    """∂metric / ∂ what readers get: projections after the norm, MLP inputs after the norm, the final residual."""

    projections: tuple[Float[Tensor, "example position read head head_dim"], ...]
    mlp_normed: tuple[Float[Tensor, "example position width"], ...]
    final_input: Float[Tensor, "example position width"]


def recorded_run(
    model: PreTrainedModel,
    stream: ResidualStream,
    *,
    input_ids: Int[Tensor, "example position"],
    attention_mask: Int[Tensor, "example position"],
    labels: Int[Tensor, "example position"],
    metric: MetricName,
    gradients: bool,
    replaced: Mapping[str, Tensor] | None = None,
    reference: Float[Tensor, "example kept vocabulary"] | None = None,
) -> Run:
    """A forward pass with its metric per example; `replaced` overwrites the outputs of groups by constants.

    `reference` are the logits of the clean run, which is its own reference. Logits are computed from the first
    prediction of an answer on. No gradient of a parameter is ever computed.
    """
    recorded = Recording()
    kept = min(labels.shape[1], labels.shape[1] - _first_answer(labels) + 1)
    with recording(model, stream, recorded, replaced or {}), torch.set_grad_enabled(gradients):
        output = model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False, logits_to_keep=kept)
        clean = output.logits if reference is None else reference
        values = METRICS[metric](output.logits, labels[:, -kept:], clean.detach())
    return Run(recorded, output.logits, values)


@contextmanager
def recording(
    model: PreTrainedModel, stream: ResidualStream, kept: Recording, replaced: Mapping[str, Tensor]
) -> Iterator[None]:
    """Hooks that fill `kept` during one forward pass."""
    with ExitStack() as stack:
        stack.enter_context(frozen_parameters(model))

        def hook(module: nn.Module, function, *, before: bool = False) -> None:
            register = module.register_forward_pre_hook if before else module.register_forward_hook
            stack.callback(register(function).remove)

        hook(stream.embedding, partial(_begin, kept=kept.embedding, constant=replaced.get("input")))
        for layer, block in enumerate(stream.blocks):
            kept.projections.append(())
            stack.enter_context(one_key_per_query(block, stream))
            hook(block.attention_norm, partial(_keep_input, kept=kept.attention_inputs), before=True)
            for read, module in enumerate(block.projections):
                repeats = 1 if read == 0 else stream.heads // stream.kv_heads
                hook(
                    module,
                    partial(
                        _keep_projection, kept=kept.projections, layer=layer, repeats=repeats, size=stream.head_dim
                    ),
                )
            constant = replaced.get(f"a{layer}")
            hook(block.output, partial(_replace_input, kept=kept.heads, constant=constant), before=True)
            hook(block.output, partial(_replace_output, kept=kept.attention_outputs, constant=None))
            if not stream.parallel:
                hook(block.mlp_norm, partial(_keep_input, kept=kept.mlp_inputs), before=True)
            hook(block.mlp, partial(_keep_own_copy, kept=kept.mlp_normed), before=True)
            hook(block.mlp, partial(_replace_output, kept=kept.mlps, constant=replaced.get(f"m{layer}")))
        hook(stream.final_norm, partial(_keep_input, kept=kept.final_input), before=True)
        yield
    if stream.parallel:
        kept.mlp_inputs.extend(kept.attention_inputs)


def reader_gradients(run: Run, stream: ResidualStream) -> ReaderGradients:
    """Gradients of every example's own metric at all readers, by one backward pass that stops at activations."""
    flat = [part for parts in run.kept.projections for part in parts]
    wanted = [*flat, *run.kept.mlp_normed, run.kept.final_input[0]]
    found = torch.autograd.grad(run.metric.sum(), wanted, allow_unused=True)
    filled = [torch.zeros_like(at) if got is None else got for at, got in zip(wanted, found, strict=True)]
    per_layer = len(run.kept.projections[0])
    starts = range(0, len(flat), per_layer)
    return ReaderGradients(
        tuple(by_head(filled[start : start + per_layer], stream) for start in starts),
        tuple(filled[len(flat) : -1]),
        filled[-1],
    )


def by_head(
    projections: list[Tensor] | tuple[Tensor, ...], stream: ResidualStream
) -> Float[Tensor, "example position read head head_dim"]:
    """Queries, keys and values of one layer side by side, in at least float32."""
    return at_least_float32(torch.cat(list(projections), dim=-1)).unflatten(-1, (3, stream.heads, stream.head_dim))


@contextmanager
def frozen_parameters(model: nn.Module) -> Iterator[None]:
    """No parameter asks for a gradient within this context."""
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    try:
        for parameter in trainable:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in trainable:
            parameter.requires_grad_(True)


@contextmanager
def one_key_per_query(block: Block, stream: ResidualStream) -> Iterator[None]:
    """Attention that takes keys and values already repeated, one per query head.

    Raises: ValueError where keys are grouped and the attention module keeps no `num_key_value_groups`.
    """
    grouped = stream.heads != stream.kv_heads
    if grouped and not hasattr(block.attention, "num_key_value_groups"):
        raise ValueError(f"{type(block.attention).__name__} has grouped keys but no `num_key_value_groups`")
    attention: Any = block.attention
    before = getattr(attention, "num_key_value_groups", 1)
    try:
        if grouped:
            attention.num_key_value_groups = 1
        yield
    finally:
        if grouped:
            attention.num_key_value_groups = before


def check_run(run: Run) -> None:
    """Raises: ValueError where the metric is not finite, or the sources don't add up to the final residual stream."""
    if not run.metric.isfinite().all():
        place = int((~run.metric.isfinite()).nonzero()[0])
        raise ValueError(
            f"the metric of example {place} of the batch is {run.metric[place].item()}, expected a finite number; "
            "the model has NaN or infinite weights, or the example no answer tokens"
        )
    parts = [run.kept.attention_inputs[0], *run.kept.attention_outputs, *run.kept.mlps]
    total = torch.stack([at_least_float32(part.detach()) for part in parts]).sum(0)
    final = at_least_float32(run.kept.final_input[0].detach())
    if (total - final).norm() > SUM_TOLERANCE * final.norm():
        raise ValueError(
            "the outputs of attention and MLPs do not add up to the residual stream; "
            "circuits know pre-norm decoders that add them unscaled"
        )


def _first_answer(labels: Int[Tensor, "example position"]) -> int:
    scored = (labels >= 0).any(0).nonzero()
    return int(scored[0, 0]) if len(scored) else 0


def _begin(
    module: nn.Module, arguments: tuple, output: Tensor, *, kept: list[Tensor], constant: Tensor | None
) -> Tensor:
    """The tape begins here, whether the embedding is the tokens' own or a constant."""
    start = output if constant is None else constant.to(output.dtype).expand_as(output)
    kept.append(start.detach().requires_grad_(torch.is_grad_enabled()))
    return kept[0]


def _keep_input(module: nn.Module, arguments: tuple, *, kept: list[Tensor]) -> None:
    kept.append(arguments[0])


def _keep_own_copy(module: nn.Module, arguments: tuple, *, kept: list[Tensor]) -> tuple:
    """A copy that only this module reads, so that its gradient is this module's alone."""
    kept.append(arguments[0].view_as(arguments[0]))
    return (kept[-1], *arguments[1:])


def _keep_projection(
    module: nn.Module,
    arguments: tuple,
    output: Tensor,
    *,
    kept: list[tuple[Tensor, ...]],
    layer: int,
    repeats: int,
    size: int,
) -> Tensor:
    if repeats > 1:
        output = output.unflatten(-1, (-1, size)).repeat_interleave(repeats, dim=-2).flatten(-2)
    kept[layer] = (*kept[layer], output)
    return output


def _replace_input(module: nn.Module, arguments: tuple, *, kept: list[Tensor], constant: Tensor | None) -> tuple | None:
    if constant is None:
        kept.append(arguments[0])
        return None
    kept.append(constant.to(arguments[0].dtype).expand_as(arguments[0]))
    return (kept[-1], *arguments[1:])


def _replace_output(
    module: nn.Module, arguments: tuple, output: Tensor, *, kept: list[Tensor], constant: Tensor | None
) -> Tensor:
    kept.append(output if constant is None else constant.to(output.dtype).expand_as(output))
    return kept[-1]
