"""MRD, memory removal difficulty: how far an example's log-likelihood moves when the weights are jostled."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from efface.difficulty.kept_weights import kept_weights
from efface.tokenization import IGNORED, Batch, Encoding, length_sorted_batches

Progress = Callable[[Iterable[int]], Iterable[int]]


@dataclass(frozen=True)
class Mrd:
    """Number of random draws, the noise's standard deviation, whether −δ follows each δ, and batch size.

    As published: draws 100, sigma 1e-5, not antithetic.
    """

    draws: int = 10
    sigma: float = 1e-4
    antithetic: bool = True
    batch_size: int = 32

    def scores(
        self,
        model: PreTrainedModel,
        encodings: Sequence[Encoding],
        *,
        pad_id: int,
        seed: int,
        progress: Progress = lambda draws: draws,
    ) -> Float[Tensor, " example"]:
        """MRD of every example by `memory_removal_difficulty`."""
        return memory_removal_difficulty(
            model,
            encodings,
            draws=self.draws,
            sigma=self.sigma,
            antithetic=self.antithetic,
            batch_size=self.batch_size,
            pad_id=pad_id,
            seed=seed,
            progress=progress,
        )


@torch.no_grad()
def memory_removal_difficulty(
    model: PreTrainedModel,
    encodings: Sequence[Encoding],
    *,
    draws: int,
    sigma: float,
    batch_size: int,
    pad_id: int,
    seed: int,
    antithetic: bool = False,
    progress: Progress = lambda draws: draws,
) -> Float[Tensor, " example"]:
    """MRD of every example, at least 0; *small* means hard to unlearn.

    MRD, arXiv:2504.06658: |Σ_t E_δ[(P_t(θ) − P_t(θ + δ)) / P_t(θ)]|, P_t(θ) = log p(x_t | x_<t; θ), δ ~ N(0, σ²I).

    t runs over the answer's tokens; the expectation is the mean over draws of one δ, the same for all examples. Tokens
    with P_t = 0 are left out. The weights are the same bits afterwards. `progress` may wrap the loop over draws.

    With `antithetic` every draw is used as δ and as −δ. The expectation is the same, but the part linear in δ, whose
    expectation is 0 and whose noise otherwise outweighs the rest, cancels; σ must then be large enough for rounding.

    Departs from the paper: its code sums over the prompt too, and cuts MRD at 2.

    Raises: ValueError where draws or sigma is not positive, or the weights are coarser than float32, which loses σ.

    Cost: draws + 1 forward passes over all examples (with `antithetic` 2 draws + 1) and one copy of the weights.
    """
    if draws < 1 or sigma <= 0:
        raise ValueError(f"draws {draws}, sigma {sigma}: expected both above 0")
    if model.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"weights of type {model.dtype}: sigma {sigma} is lost in rounding; load the model in float32")
    batches = [
        (torch.tensor(p), b.to(model.device))
        for p, b in length_sorted_batches(encodings, batch_size=batch_size, pad_id=pad_id)
    ]
    settled = [answer_log_probs(model, batch)[0] for _, batch in batches]
    totals = torch.zeros(len(encodings), dtype=torch.float64)
    signs = (1, -1) if antithetic else (1,)
    for draw in progress(range(draws)):
        for sign in signs:
            with kept_weights(model):
                add_noise(model, sigma=sign * sigma, seed=seed + draw)
                for (places, batch), before in zip(batches, settled, strict=True):
                    totals[places] += _relative_changes(model, batch, before).cpu()
    return (totals / (draws * len(signs))).abs()


def add_noise(model: nn.Module, *, sigma: float, seed: int) -> None:
    """Adds N(0, σ²) to every parameter, in place; tied weights once. The noise is drawn on the CPU, one seed a draw."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float32)
        parameter.add_(noise.to(parameter), alpha=sigma)


def answer_log_probs(model: PreTrainedModel, batch: Batch) -> tuple[Float[Tensor, " token"], Int[Tensor, " token"]]:
    """Log-probability of every answer token of a batch, in float64, and the row that it belongs to."""
    labels = batch.labels[:, 1:]
    answer = labels != IGNORED
    logits = model(input_ids=batch.input_ids, attention_mask=batch.attention_mask, use_cache=False).logits
    logits = logits[:, :-1][answer].double()
    chosen = logits.gather(1, labels[answer][:, None])[:, 0]
    return chosen - logits.logsumexp(dim=1), answer.nonzero()[:, 0]


def _relative_changes(
    model: PreTrainedModel, batch: Batch, before: Float[Tensor, " token"]
) -> Float[Tensor, " example"]:
    """Σ over an example's answer tokens of (P(θ) − P(θ + δ)) / P(θ)."""
    after, rows = answer_log_probs(model, batch)
    changes = torch.where(before == 0, 0, (before - after) / torch.where(before == 0, 1, before))
    return torch.zeros(len(batch.input_ids), dtype=torch.float64, device=after.device).index_add(0, rows, changes)
