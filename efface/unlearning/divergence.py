"""Distance between a refusal's probability and the forget answer's, made as large as an f-divergence can tell."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn
from torch.nn.functional import softplus

from efface.training.loop import answer_logits
from efface.training.losses import Labels, Logits, PerExample, Scalar, scored_positions, token_log_probs
from efface.unlearning.objective import Descent, check_ranges, check_refusals
from efface.unlearning.pairing import Pair, Start

Divergence = Literal[
    "total_variation", "kl", "reverse_kl", "pearson", "neyman", "squared_hellinger", "jensen_shannon", "jeffrey"
]
# Of each divergence g and f* ∘ g, where f* is the conjugate of its generator and g rises.
VARIATIONAL: dict[Divergence, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "total_variation": (lambda p: p.tanh() / 2, lambda p: p.tanh() / 2),
    "kl": (lambda p: p, lambda p: (p - 1).exp()),
    "reverse_kl": (lambda p: -(-p).exp(), lambda p: p - 1),
    "pearson": (lambda p: p, lambda p: p**2 / 4 + p),
    "neyman": (lambda p: 1 - (-p).exp(), lambda p: 2 - 2 * (-p / 2).exp()),
    "squared_hellinger": (lambda p: 1 - (-p).exp(), lambda p: p.exp() - 1),
    "jensen_shannon": (lambda p: math.log(2) - softplus(-p), lambda p: softplus(p) - math.log(2)),
    "jeffrey": (lambda p: p, lambda p: p + p**2 / 4 + p**3 / 16),
}


@dataclass(frozen=True)
class Flat(Descent):
    """Forget-data-only loss adjustment, arXiv:2410.11143; see `flat_loss`. No retain set.

    The other answers are lines of `refusals`, or of our own list without it. With `published_mean` probabilities are
    averaged as by the reference implementation; see `mean_probabilities`.
    """

    method: Literal["flat"] = "flat"
    divergence: Divergence = "total_variation"
    published_mean: bool = False
    refusals: tuple[str, ...] | None = None
    epochs: int = 5

    def __post_init__(self) -> None:
        check_ranges(self)
        check_refusals(self)

    def loss(self, model: nn.Module, pair: Pair, start: Start) -> Scalar:
        assert pair.alternative is not None
        alternative, forgotten = (
            mean_probabilities(answer_logits(model, batch), batch.labels, published_mean=self.published_mean)
            for batch in (pair.alternative, pair.forget)
        )
        return flat_loss(alternative, forgotten, divergence=self.divergence)


def flat_loss(alternative: PerExample, forgotten: PerExample, *, divergence: Divergence) -> Scalar:
    """Mean of f*(g(p_y)) − g(p_alt), arXiv:2410.11143: minus a lower bound of the divergence (arXiv:1606.00709).

    The arguments are mean token probabilities of each answer. Departs from the reference implementation for
    `reverse_kl`, `neyman` and `squared_hellinger`, where it takes g that fall and so makes the refusal less likely
    (with the first and the last, the forget answer more). `jeffrey` has f* to third order in p, as there.
    """
    g, conjugate = VARIATIONAL[divergence]
    return (conjugate(forgotten) - g(alternative)).mean()


def mean_probabilities(logits: Logits, labels: Labels, *, published_mean: bool = False) -> PerExample:
    """Mean probability of the scored tokens of each answer.

    With `published_mean` as the reference implementation does it: for all the same, the mean over every position of the
    batch, where those of prompt and padding count as 0.
    """
    scored = scored_positions(labels)
    p = token_log_probs(logits, labels).exp() * scored
    return p.mean().expand(len(p)) if published_mean else p.sum(1) / scored.sum(1)
