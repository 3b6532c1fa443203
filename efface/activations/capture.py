"""Inputs and outputs of named modules at the positions that predict answer tokens, one batch at a time."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from efface.tokenization import IGNORED, Batch, Encoding, length_sorted_batches


@contextmanager
def captured_inputs(modules: Mapping[str, nn.Module]) -> Iterator[dict[str, Tensor]]:
    """The first argument of each module in its latest call, by the name given; the hooks go when the block ends."""
    seen: dict[str, Tensor] = {}

    def keep(name: str):
        def hook(_module: nn.Module, arguments: tuple) -> None:
            seen[name] = arguments[0].detach()

        return hook

    with ExitStack() as hooks:
        for name, module in modules.items():
            hooks.callback(module.register_forward_pre_hook(keep(name)).remove)
        yield seen


@contextmanager
def captured_outputs(modules: Mapping[str, nn.Module]) -> Iterator[dict[str, Tensor]]:
    """What each module returned in its latest call, by the name given; the hooks go when the block ends."""
    seen: dict[str, Tensor] = {}

    def keep(name: str):
        def hook(_module: nn.Module, _arguments: tuple, output: Tensor) -> None:
            seen[name] = output.detach()

        return hook

    with ExitStack() as hooks:
        for name, module in modules.items():
            hooks.callback(module.register_forward_hook(keep(name)).remove)
        yield seen


@dataclass(frozen=True)
class Columns:
    """The positions of a batch that predict an answer token, end token included: position p predicts token p + 1.

    `examples` are places in the sequence of encodings, `tokens` the gold tokens predicted there.
    """

    examples: Int[Tensor, " column"]
    positions: Int[Tensor, " column"]
    tokens: Int[Tensor, " column"]
    mask: Bool[Tensor, "example position"]

    def of(self, activations: Float[Tensor, "example position feature"]) -> Float[Tensor, "column feature"]:
        """The rows of `activations` at these positions, example by example."""
        return activations[self.mask.to(activations.device)]


@dataclass(frozen=True)
class ActivationBatch:
    """Inputs and outputs of the asked modules at the columns of one batch."""

    columns: Columns
    inputs: Mapping[str, Float[Tensor, "column feature"]]
    outputs: Mapping[str, Float[Tensor, "column output"]]


def predicting_columns(places: Sequence[int], labels: Int[Tensor, "example position"]) -> Columns:
    """The columns of a batch with unshifted labels, whose rows are the examples at `places`."""
    mask = torch.zeros_like(labels, dtype=torch.bool)
    mask[:, :-1] = labels[:, 1:] != IGNORED
    rows, positions = mask.nonzero(as_tuple=True)
    return Columns(torch.tensor(places, device=labels.device)[rows], positions, labels[rows, positions + 1], mask)


def activation_batches(
    model: PreTrainedModel,
    encodings: Sequence[Encoding],
    *,
    modules: Mapping[str, nn.Module],
    batch_size: int,
    pad_id: int,
    final: str | None = None,
) -> Iterator[ActivationBatch]:
    """One forward pass over the examples, longest first, that yields what the modules read and wrote.

    `final` names the hidden states after the last norm, the input of the unembedding, which itself is never run.

    Cost: one batch of activations in memory.
    """
    with captured_inputs(modules) as inputs, captured_outputs(modules) as outputs:
        for places, batch in length_sorted_batches(encodings, batch_size=batch_size, pad_id=pad_id):
            batch = batch.to(model.device)
            columns = predicting_columns(places, batch.labels)
            decoded = decoded_states(model, batch)
            read = {name: columns.of(inputs[name]) for name in modules}
            if final is not None:
                read[final] = columns.of(decoded)
            yield ActivationBatch(columns, read, {name: columns.of(outputs[name]) for name in modules})


@torch.no_grad()
def decoded_states(model: PreTrainedModel, batch: Batch) -> Float[Tensor, "example position residual"]:
    """The hidden states after the last norm; the unembedding is not run."""
    return model.base_model(
        input_ids=batch.input_ids, attention_mask=batch.attention_mask, use_cache=False
    ).last_hidden_state


def column_count(encodings: Sequence[Encoding]) -> int:
    """How many answer tokens, end tokens included, the examples have together."""
    return sum(len(encoding.answer_ids) for encoding in encodings)


def sampled_to_columns(
    encodings: Sequence[Encoding], *, cap: int, seed: int
) -> tuple[tuple[int, ...], tuple[Encoding, ...]]:
    """Places and encodings of randomly drawn examples with `cap` answer tokens together; all of them where they fit.

    The last one drawn is cut to fit: a causal model's activations at earlier positions stay as they were.

    Raises: ValueError where `cap` is not positive.
    """
    if cap < 1:
        raise ValueError(f"column cap {cap}: expected at least 1")
    if column_count(encodings) <= cap:
        return tuple(range(len(encodings))), tuple(encodings)
    chosen: dict[int, Encoding] = {}
    for place in torch.randperm(len(encodings), generator=torch.Generator().manual_seed(seed)).tolist():
        encoding = encodings[place]
        length = encoding.prompt_length + min(len(encoding.answer_ids), cap)
        chosen[place] = Encoding(encoding.input_ids[:length], encoding.prompt_length)
        cap -= length - encoding.prompt_length
        if cap == 0:
            break
    places = tuple(sorted(chosen))
    return places, tuple(chosen[place] for place in places)
