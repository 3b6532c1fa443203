"""What a circuit is a circuit for: one number per example, computed from logits and labels.

Labels are unshifted, −100 where nothing is scored. A positive score of an edge means that the metric grows when that
edge is patched.
"""

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from efface.training.losses import at_least_float32, scored_positions

MetricName = Literal["neg_nll", "neg_prob", "logit_difference", "kl"]
Logits = Float[Tensor, "example position vocabulary"]
Labels = Int[Tensor, "example position"]
PerExample = Float[Tensor, " example"]


def neg_nll(logits: Logits, labels: Labels, reference: Logits | None = None) -> PerExample:
    """Mean log-probability of the answer's tokens, in nats: grows when the answer gets likelier."""
    scores, gold = _at_answers(logits, labels)
    return _answer_means(-F.cross_entropy(scores, gold, reduction="none"), labels)


def neg_prob(logits: Logits, labels: Labels, reference: Logits | None = None) -> PerExample:
    """−exp(−mean answer NLL), minus the geometric-mean probability of the answer's tokens: falls when likelier.

    Departs from the paper: arXiv:2601.09624's code scales it by exp(p_clean), a constant in [1, e] per example, which
    changes no circuit of one example, only the examples' weights within an anchor set.
    """
    return -neg_nll(logits, labels).exp()


def logit_difference(logits: Logits, labels: Labels, reference: Logits | None = None) -> PerExample:
    """Mean over the answer of the right token's logit minus the largest other logit."""
    scores, gold = _at_answers(logits, labels)
    right = scores.gather(1, gold[:, None])[:, 0]
    others = scores.scatter(1, gold[:, None], float("-inf"))
    return _answer_means(right - others.amax(1), labels)


def kl(logits: Logits, labels: Labels, reference: Logits | None = None) -> PerExample:
    """Mean over the answer of KL(p_clean ‖ p), in nats; `reference` are the clean run's logits.

    Raises: ValueError without reference logits.
    """
    if reference is None:
        raise ValueError("metric 'kl' needs the logits of the clean run as reference, got None")
    log_probs = _at_answers(logits, labels)[0].log_softmax(1)
    clean = _at_answers(reference, labels)[0].log_softmax(1)
    return _answer_means((clean.exp() * (clean - log_probs)).sum(1), labels)


METRICS: dict[MetricName, Callable[[Logits, Labels, Logits | None], PerExample]] = {
    "neg_nll": neg_nll,
    "neg_prob": neg_prob,
    "logit_difference": logit_difference,
    "kl": kl,
}


def _at_answers(logits: Logits, labels: Labels) -> tuple[Float[Tensor, "scored vocabulary"], Int[Tensor, " scored"]]:
    """Logits that predict a scored token, and that token, for all examples after one another."""
    chosen = scored_positions(labels)
    return at_least_float32(logits[:, :-1][chosen]), labels[:, 1:][chosen]


def _answer_means(values: Float[Tensor, " scored"], labels: Labels) -> PerExample:
    chosen = scored_positions(labels)
    examples = chosen.nonzero()[:, 0]
    sums = torch.zeros(len(labels), dtype=values.dtype, device=values.device).index_add(0, examples, values)
    return sums / chosen.sum(1)
