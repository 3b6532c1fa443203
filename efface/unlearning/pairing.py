"""Which forget and retain examples meet in a step, and the frozen start that some losses compare with."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from efface.tokenization import Batch, Encoding, collate, length_sorted_batches
from efface.training.loop import answer_logits, epoch_seed, scored_logits
from efface.training.losses import sequence_log_probs


@dataclass(frozen=True)
class Pair:
    """Forget examples, their places in the forget set, and as many retain examples (None without a retain set).

    `alternative` holds another answer to the question of each forget example, where a method prefers one.
    """

    epoch: int
    places: tuple[int, ...]
    forget: Batch
    retain: Batch | None
    alternative: Batch | None = None

    def to(self, device: torch.device) -> "Pair":
        batches = {"forget": self.forget, "retain": self.retain, "alternative": self.alternative}
        return replace(self, **{name: batch and batch.to(device) for name, batch in batches.items()})


@dataclass(frozen=True)
class Start:
    """The model before unlearning, where a loss compares with it.

    `log_probs` holds the log-probability of every forget answer (None where unused); `frozen` opens the start model
    itself; `seed` fixes what a method draws once. `multiplier` is PDU's λ, which moves as training goes on.
    """

    seed: int
    log_probs: Float[Tensor, " forget"] | None
    frozen: Callable[[], AbstractContextManager[nn.Module]]
    multiplier: Float[Tensor, ""] | None = None

    def logits(self, batch: Batch) -> Float[Tensor, "example position vocabulary"]:
        with torch.no_grad(), self.frozen() as model:
            return answer_logits(model, batch)

    def answer_log_probs(self, batch: Batch) -> Float[Tensor, " example"]:
        with torch.no_grad(), self.frozen() as model:
            return sequence_log_probs(*scored_logits(model, batch))


def paired_batches(
    forget: Sequence[Encoding],
    retain: Sequence[Encoding],
    *,
    batch_size: int,
    pad_id: int,
    seed: int,
    alternatives: Sequence[Sequence[Encoding]] | None = None,
    order: Sequence[int] | None = None,
) -> Callable[[int], list[Pair]]:
    """Every forget example once per epoch, each with a retain example drawn uniformly with replacement.

    With `alternatives` (of each forget example at least one) it also meets one of its own, in a random order in which
    all of them come before one comes again. `order` names the places of forget examples as every epoch meets them,
    instead of at random. Order and draws depend on seed and epoch alone. Without retain examples the pairs have none.
    """

    def pairs_of_epoch(epoch: int) -> list[Pair]:
        generator = torch.Generator().manual_seed(epoch_seed(seed, epoch))
        shuffled = torch.randperm(len(forget), generator=generator)
        places = shuffled if order is None else torch.tensor(order)
        return [pair_of(epoch, part.tolist(), generator) for part in places.split(batch_size)]

    def pair_of(epoch: int, places: list[int], generator: torch.Generator) -> Pair:
        partners = torch.randint(len(retain), (len(places),), generator=generator).tolist() if retain else []
        others = [_alternative(alternatives[place], place, epoch, seed) for place in places] if alternatives else []
        batches = [[forget[place] for place in places], [retain[partner] for partner in partners], others]
        chosen, kept, preferred = (collate(rows, pad_id=pad_id) if rows else None for rows in batches)
        assert chosen is not None
        return Pair(epoch, tuple(places), chosen, kept, preferred)

    return pairs_of_epoch


@torch.no_grad()
def answer_log_probs(
    model: nn.Module, encodings: Sequence[Encoding], *, batch_size: int, pad_id: int
) -> Float[Tensor, " example"]:
    """Log-probability of every whole answer, in the order given."""
    device = next(model.parameters()).device
    result = torch.empty(len(encodings), device=device)
    for places, batch in length_sorted_batches(encodings, batch_size=batch_size, pad_id=pad_id):
        result[places] = sequence_log_probs(*scored_logits(model, batch.to(device))).float()
    return result


def frozen_copy(model: nn.Module) -> Callable[[], AbstractContextManager[nn.Module]]:
    """Opens a copy of the model as it is now. Cost: the memory of one more model."""
    start = copy.deepcopy(model).eval().requires_grad_(False)

    @contextmanager
    def frozen() -> Iterator[nn.Module]:
        yield start

    return frozen


def without_adapters(wrapped: nn.Module) -> Callable[[], AbstractContextManager[nn.Module]]:
    """Opens an adapted model with its adapters switched off: the start model, at no memory."""

    @contextmanager
    def frozen() -> Iterator[nn.Module]:
        with wrapped.disable_adapter():  # pyright: ignore[reportCallIssue]
            yield wrapped

    return frozen


def _alternative(choices: Sequence[Encoding], place: int, epoch: int, seed: int) -> Encoding:
    order = torch.randperm(len(choices), generator=torch.Generator().manual_seed(epoch_seed(seed, place)))
    return choices[int(order[epoch % len(choices)])]
