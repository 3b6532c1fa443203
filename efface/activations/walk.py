"""Hidden states on their way through the blocks: a model run block by block, so that a block can change in between."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from tqdm import tqdm
from transformers import PreTrainedModel

from efface.activations.capture import Columns, captured_inputs, decoded_states, predicting_columns
from efface.models import anatomy
from efface.tokenization import Encoding, length_sorted_batches


@dataclass
class WalkedBatch:
    """One batch between two blocks, and the other arguments that each later block will be called with."""

    columns: Columns
    hidden: Float[Tensor, "example position residual"]
    arguments: dict[int, tuple]


@dataclass
class Walk:
    """Batches that have all reached the entrance of block `layer`."""

    blocks: Sequence[nn.Module]
    layer: int
    batches: list[WalkedBatch]

    def inputs_of(self, module: nn.Module, *, label: str) -> Iterator[tuple[Columns, Float[Tensor, "column feature"]]]:
        """What `module`, a part of the next block, reads at each batch's columns; the walk stays where it is."""
        with captured_inputs({"module": module}) as seen:
            for batch in tqdm(self.batches, desc=label, unit="batch", leave=False):
                self._next(batch)
                yield batch.columns, batch.columns.of(seen["module"])

    def advance(self) -> None:
        """Takes every batch through the next block."""
        for batch in self.batches:
            batch.hidden = self._next(batch)
            del batch.arguments[self.layer]
        self.layer += 1

    def finals(self, norm: nn.Module) -> Iterator[tuple[Columns, Float[Tensor, "column residual"]]]:
        """The hidden states after the last block and `norm`, at each batch's columns."""
        while self.layer < len(self.blocks):
            self.advance()
        for batch in self.batches:
            yield batch.columns, self._normalised(norm, batch)

    @torch.no_grad()
    def _normalised(self, norm: nn.Module, batch: WalkedBatch) -> Tensor:
        return batch.columns.of(norm(batch.hidden))

    @torch.no_grad()
    def _next(self, batch: WalkedBatch) -> Tensor:
        positional, named = batch.arguments[self.layer]
        output = self.blocks[self.layer](batch.hidden, *positional, **named)
        return output[0] if isinstance(output, tuple) else output


def walk_to(
    model: PreTrainedModel, encodings: Sequence[Encoding], layer: int, *, batch_size: int, pad_id: int, label: str
) -> Walk:
    """The examples at the entrance of block `layer`, longest first.

    Cost: the blocks below `layer` once; the hidden states of all examples stay in memory.
    """
    blocks = [part.block for part in anatomy(model).layers]
    batches = []
    with _bypassed(blocks, layer) as calls, tqdm(total=len(encodings), desc=label, unit="row", leave=False) as bar:
        for places, batch in length_sorted_batches(encodings, batch_size=batch_size, pad_id=pad_id):
            batch = batch.to(model.device)
            decoded_states(model, batch)
            arguments = {index: call[1:] for index, call in calls.items()}
            batches.append(WalkedBatch(predicting_columns(places, batch.labels), calls[layer][0], arguments))
            bar.update(len(places))
    return Walk(blocks, layer, batches)


@contextmanager
def _bypassed(blocks: Sequence[nn.Module], first: int) -> Iterator[dict[int, tuple[Tensor, tuple, dict]]]:
    """The blocks from `first` on hand their input on unchanged; yields how each was called the last time."""
    calls: dict[int, tuple[Tensor, tuple, dict]] = {}

    def stand_in(index: int):
        def forward(hidden_states: Tensor, *positional, **named) -> Tensor:
            calls[index] = (hidden_states, positional, named)
            return hidden_states

        return forward

    with ExitStack() as restored:
        for index in range(first, len(blocks)):
            restored.callback(_reset_forward, blocks[index], vars(blocks[index]).get("forward"))
            blocks[index].forward = stand_in(index)
        yield calls


def _reset_forward(block: nn.Module, own) -> None:
    if own is None:
        del block.forward
    else:
        block.forward = own
