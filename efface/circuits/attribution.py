"""Scores of all edges of a model for each example of a batch: EAP and its integrated-gradients variants.

A score estimates how the metric changes if one edge carries the source's baseline output instead of its own. Sources,
readers and signs are those of arXiv:2403.17806's code; nothing is summed over the batch.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from efface.circuits.contraction import add_run, contracted_scores, empty_sums, source_differences
from efface.circuits.metrics import MetricName
from efface.circuits.recorded_run import Run, Sources, check_run, reader_gradients, recorded_run
from efface.circuits.residual_stream import ResidualStream, residual_stream
from efface.tokenization import Batch
from efface.training.losses import at_least_float32

Method = Literal["eap", "eap_ig_inputs", "eap_ig_activations", "clean_corrupted"]
Intervention = Literal["patching", "zero", "mean"]


@dataclass(frozen=True)
class EdgeScores:
    """Signed scores of the graph's edges in their order, and the metric of the clean run, per example."""

    scores: Float[Tensor, "example edge"]
    metric_clean: Float[Tensor, " example"]


def edge_scores(
    model: PreTrainedModel,
    batch: Batch,
    *,
    method: Method,
    intervention: Intervention,
    metric: MetricName,
    steps: int = 5,
    corrupted_ids: Int[Tensor, "example position"] | None = None,
    means: Sources | None = None,
) -> EdgeScores:
    """Per-example scores of every edge u → v: Σ over positions and width of (baseline_u − clean_u) · G_v.

    Eqs. (EAP, EAP-IG), arXiv:2403.17806: G_v = ∂M/∂x_v with x_v the residual stream before the reader's own norm,
    - `eap`: on the clean run;
    - `clean_corrupted`: mean of the clean and the corrupted run;
    - `eap_ig_inputs`: mean over k = 0 … m−1 of runs whose embedding is corrupted + (k/m)(clean − corrupted);
    - `eap_ig_activations`: mean over all groups g of [input, a0, m0, a1, …] and k = 1 … m of clean runs in which g
      outputs baseline + (k/m)(clean − baseline).

    `patching` takes the baseline from a run on `corrupted_ids` (same lengths and mask), `mean` from `means`; `zero`
    is 0. Labels are always the clean ones. Batches are padded on the right; padding counts nothing.

    Departs from the paper: with `mean`, interpolation ends at the mean (the reference code's ends at zero), and runs
    over inputs take the mean embedding as their corrupted end (the reference code refuses them).

    Cost: forward + backward passes: 1, 2, m, or m(2L + 1), and up to two forward passes; fp32 memory for
    examples × sources × positions × width.

    Raises: ValueError where the model is no plain pre-norm decoder, in training mode or not finite, where lengths of a
    pair differ, an example has no answer, or method, intervention and metric do not go together.
    """
    _check_request(batch, method=method, intervention=intervention, metric=metric, steps=steps)
    if model.training:
        raise ValueError("the model is in training mode, where dropout blurs scores; call model.eval() first")
    stream = residual_stream(model)
    forward = partial(
        recorded_run, model, stream, attention_mask=batch.attention_mask, labels=batch.labels, metric=metric
    )
    clean = forward(input_ids=batch.input_ids, gradients=method in ("eap", "clean_corrupted"))
    check_run(clean)
    forward = partial(forward, reference=clean.logits)
    needs_end = method in ("eap_ig_inputs", "clean_corrupted")
    end = _corrupted_run(forward, batch, intervention, corrupted_ids, means, gradients=needs_end)
    baseline = _baseline(intervention, stream, batch, end, means)
    differences = source_differences(stream, clean.sources, baseline, batch.attention_mask)

    sums, count = empty_sums(stream, differences), 0
    replay = partial(forward, input_ids=batch.input_ids, gradients=True)
    for run in _runs(replay, method=method, steps=steps, clean=clean, end=end, baseline=baseline):
        add_run(sums, stream, run, reader_gradients(run, stream), differences)
        count += 1
        del run
    matrix = contracted_scores(sums, stream, differences) / count
    return EdgeScores(stream.graph.flat(matrix), clean.metric.detach())


def baseline_sources(
    model: PreTrainedModel,
    batch: Batch,
    *,
    intervention: Intervention,
    corrupted_ids: Int[Tensor, "example position"] | None = None,
    means: Sources | None = None,
) -> Sources:
    """What every source outputs when it is ablated.

    Raises: ValueError where the intervention lacks its corrupted ids or means, or lengths of a pair differ.
    """
    stream = residual_stream(model)
    forward = partial(
        recorded_run, model, stream, attention_mask=batch.attention_mask, labels=batch.labels, metric="neg_nll"
    )
    end = _corrupted_run(forward, batch, intervention, corrupted_ids, means, gradients=False)
    return _baseline(intervention, stream, batch, end, means)


def mean_sources(model: PreTrainedModel, batches: Iterable[Batch]) -> Sources:
    """Mean output of every source over all tokens of all batches, padding apart: the baseline of mean ablation.

    Raises: ValueError where there is no batch.
    """
    stream = residual_stream(model)
    total, tokens = None, 0
    for batch in batches:
        run = recorded_run(
            model,
            stream,
            input_ids=batch.input_ids,
            attention_mask=batch.attention_mask,
            labels=batch.labels,
            metric="neg_nll",
            gradients=False,
        )
        check_run(run)
        sums = _token_sums(run.sources, batch.attention_mask)
        total = sums if total is None else _combined(total, sums, torch.add)
        tokens += int(batch.attention_mask.sum())
    if total is None:
        raise ValueError("mean activations of no batches; expected at least one example")
    return _combined(total, total, lambda a, _: a / tokens)


def _runs(
    replay: Callable[..., Run], *, method: Method, steps: int, clean: Run, end: Run | None, baseline: Sources
) -> Iterator[Run]:
    """The runs whose gradients a method averages."""
    sources = clean.sources
    if method == "eap_ig_activations":
        names = ["input", *(f"{part}{layer}" for layer in range(len(sources.mlps)) for part in "am")]
        for name in names:
            for step in range(1, steps + 1):
                yield replay(replaced={name: _between(baseline.group(name), sources.group(name), step / steps)})
        return
    if method != "eap_ig_inputs":
        yield clean
    if method != "eap":
        assert end is not None
        yield end
    if method == "eap_ig_inputs":
        for step in range(1, steps):
            yield replay(replaced={"input": _between(baseline.embedding, sources.embedding, step / steps)})


def _corrupted_run(
    forward: Callable[..., Run],
    batch: Batch,
    intervention: Intervention,
    corrupted_ids: Int[Tensor, "example position"] | None,
    means: Sources | None,
    *,
    gradients: bool,
) -> Run | None:
    """The run at the corrupted end, where the intervention or the method needs one.

    Raises: ValueError where the intervention lacks its corrupted ids or means, or lengths of a pair differ.
    """
    if intervention == "patching":
        if corrupted_ids is None:
            raise ValueError("intervention 'patching' needs corrupted_ids, got None; give them or choose 'mean'")
        if corrupted_ids.shape != batch.input_ids.shape:
            raise ValueError(
                f"corrupted ids of shape {tuple(corrupted_ids.shape)} beside clean ones of shape "
                f"{tuple(batch.input_ids.shape)}: a pair must have the same number of tokens"
            )
        return forward(input_ids=corrupted_ids, gradients=gradients)
    if intervention == "mean" and means is None:
        raise ValueError("intervention 'mean' needs means, got None; compute them with mean_sources")
    if means is not None and gradients:
        return forward(input_ids=batch.input_ids, gradients=True, replaced={"input": means.embedding})
    return None


def _baseline(
    intervention: Intervention, stream: ResidualStream, batch: Batch, end: Run | None, means: Sources | None
) -> Sources:
    """What ablated sources output."""
    if intervention == "patching":
        assert end is not None
        return end.sources
    if intervention == "mean":
        assert means is not None
        return means
    nothing = torch.zeros(1, device=batch.input_ids.device)
    return Sources(nothing, (nothing,) * len(stream.blocks), (nothing,) * len(stream.blocks))


def _check_request(batch: Batch, *, method: Method, intervention: Intervention, metric: MetricName, steps: int) -> None:
    """Raises: ValueError where the arguments of `edge_scores` do not go together."""
    if steps < 1:
        raise ValueError(f"steps {steps}: expected at least 1")
    if intervention == "zero" and method in ("eap_ig_inputs", "clean_corrupted"):
        raise ValueError(f"method {method!r} runs the corrupted end, and a zero embedding is none; choose 'mean'")
    if metric == "kl" and method == "eap":
        raise ValueError("metric 'kl' is flat at the clean run, so 'eap' scores nothing; choose an integrated method")
    if not batch.attention_mask[:, 0].all():
        raise ValueError("batch padded on the left: positions would shift; collate with side='right'")
    unanswered = (batch.labels[:, 1:] < 0).all(1)
    if unanswered.any():
        raise ValueError(f"example {int(unanswered.nonzero()[0])} of the batch has no answer tokens to score")


def _between(baseline: Tensor, clean: Tensor, share: float) -> Tensor:
    """baseline + share · (clean − baseline)."""
    start = at_least_float32(baseline)
    return start + share * (at_least_float32(clean) - start)


def _token_sums(sources: Sources, mask: Int[Tensor, "example position"]) -> Sources:
    """Sum of every source's outputs over the tokens that are no padding."""

    def summed(outputs: Tensor) -> Tensor:
        return torch.einsum("btd,bt->d", at_least_float32(outputs), mask.to(at_least_float32(outputs).dtype))

    return Sources(summed(sources.embedding), tuple(map(summed, sources.heads)), tuple(map(summed, sources.mlps)))


def _combined(first: Sources, second: Sources, operation: Callable[[Tensor, Tensor], Tensor]) -> Sources:
    """Two sets of sources, combined output by output."""
    return Sources(
        operation(first.embedding, second.embedding),
        tuple(map(operation, first.heads, second.heads)),
        tuple(map(operation, first.mlps, second.mlps)),
    )
