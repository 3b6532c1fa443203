"""Losses of fine-tuning and unlearning: pure functions of logits and labels, or of log-probabilities.

Labels are unshifted, −100 where nothing is scored. ℓ_s = Σ_t −log p(y_t) over the N_s scored tokens of sequence s.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from efface.tokenization import IGNORED

Logits = Float[Tensor, "example position vocabulary"]
Labels = Int[Tensor, "example position"]
PerExample = Float[Tensor, " example"]
Scalar = Float[Tensor, ""]


def token_log_probs(logits: Logits, labels: Labels) -> Float[Tensor, "example position-1"]:
    """Natural log-probability of each labelled token given those before it; 0 where nothing is scored."""
    flat = F.cross_entropy(
        at_least_float32(logits).flatten(0, 1), _next(labels).flatten(), reduction="none", ignore_index=IGNORED
    )
    return -flat.unflatten(0, labels.shape)[:, :-1]


def scored_positions(labels: Labels) -> Bool[Tensor, "example position-1"]:
    """Where a prediction is scored: position t predicts token t + 1."""
    return labels[:, 1:] != IGNORED


def scored_counts(labels: Labels) -> Int[Tensor, " example"]:
    """N_s, the number of scored tokens of each sequence, end token included."""
    return scored_positions(labels).sum(1)


def sequence_log_probs(logits: Logits, labels: Labels) -> PerExample:
    """−ℓ_s, the log-probability of each whole answer: a sum, not a mean."""
    return token_log_probs(logits, labels).sum(1)


def nll_loss(logits: Logits, labels: Labels) -> Scalar:
    """Σ_s ℓ_s / Σ_s N_s: mean over all scored tokens of the batch, not a mean of sequence means."""
    return -token_log_probs(logits, labels).sum() / scored_counts(labels).sum()


def grad_ascent_loss(logits: Logits, labels: Labels) -> Scalar:
    """−NLL: the lower, the less likely the answers."""
    return -nll_loss(logits, labels)


def kl_loss(logits: Logits, reference_logits: Logits, mask: Int[Tensor, "example position"] | None = None) -> Scalar:
    """Mean over positions of KL(p_ref ‖ p) = Σ_v p_ref (log p_ref − log p), in nats.

    `mask` chooses the positions; without it every one counts, padding and the last one included, as published.
    """
    log_probs = at_least_float32(logits).log_softmax(-1)
    reference = at_least_float32(reference_logits).log_softmax(-1)
    divergence = (reference.exp() * (reference - log_probs)).sum(-1)
    return divergence.mean() if mask is None else divergence[mask.bool()].mean()


def npo_loss(log_probs: PerExample, reference_log_probs: PerExample, *, beta: float) -> Scalar:
    """Negative preference optimisation, arXiv:2404.05868: −(2/β) mean_s log σ(β (ℓ_s − ℓ_s^ref)).

    The arguments are sums over each answer, not length-normalised.
    """
    return -2 / beta * F.logsigmoid(beta * (reference_log_probs - log_probs)).mean()


def simnpo_loss(log_probs: PerExample, counts: Int[Tensor, " example"], *, beta: float, delta: float) -> Scalar:
    """Length-normalised NPO without a reference, arXiv:2410.07163: −(2/β) mean_s log σ(β (ℓ_s / N_s − δ))."""
    return -2 / beta * F.logsigmoid(beta * (-log_probs / counts - delta)).mean()


def dpo_loss(
    preferred: PerExample,
    preferred_reference: PerExample,
    forgotten: PerExample,
    forgotten_reference: PerExample,
    *,
    beta: float,
) -> Scalar:
    """Preference for another answer over the one to forget: −(2/β) mean_s log σ(β [(ℓ^ref − ℓ)(alt) − (ℓ^ref − ℓ)(y)]).

    The arguments are log-probabilities of whole answers (sums). IdkDPO and AltPO differ in the other answer only.
    """
    margin = (preferred - preferred_reference) - (forgotten - forgotten_reference)
    return -2 / beta * F.logsigmoid(beta * margin).mean()


def weighted_ascent_loss(logits: Logits, labels: Labels, *, beta: float) -> Scalar:
    """WGA, arXiv:2502.19301: −mean over scored tokens of p^β · NLL, where the weight p^β passes no gradient."""
    log_probs = token_log_probs(logits, labels)[scored_positions(labels)]
    return (log_probs.detach().exp() ** beta * log_probs).mean()


def satimp_loss(logits: Logits, labels: Labels, *, beta1: float, beta2: float) -> Scalar:
    """SatImp, arXiv:2505.11953: −mean over scored tokens of p^β₁ (1 − p)^β₂ · NLL; the weight passes no gradient."""
    log_probs = token_log_probs(logits, labels)[scored_positions(labels)]
    p = log_probs.detach().exp()
    return (p**beta1 * (1 - p) ** beta2 * log_probs).mean()


def ceu_loss(logits: Logits, labels: Labels, *, skip: int) -> Scalar:
    """CE-U, arXiv:2503.01224: cross-entropy to softmax(z with the true logit at −∞), no gradient through the target.

    Mean over the batch's scored tokens after the first `skip` of each answer.
    """
    scored = scored_positions(labels)
    scored = scored & (scored.cumsum(1) > skip)
    scores = at_least_float32(logits[:, :-1][scored])
    target = scores.detach().scatter(1, labels[:, 1:][scored][:, None], float("-inf")).softmax(-1)
    return F.cross_entropy(scores, target)


def undial_loss(
    logits: Logits, reference_logits: Logits, labels: Labels, *, beta: float, published_mask: bool = False
) -> Scalar:
    """UNDIAL, arXiv:2402.10052: cross-entropy to softmax(z_ref − β · onehot(y)), mean over scored tokens.

    With `published_mask` as the reference implementation does it: mean over every position, prompt and padding too,
    where the label −100 lowers vocabulary entry V − 100.
    """
    chosen = torch.ones_like(labels[:, 1:], dtype=torch.bool) if published_mask else scored_positions(labels)
    lowered = labels[:, 1:][chosen].remainder(logits.shape[-1])[:, None]
    reference = at_least_float32(reference_logits[:, :-1][chosen].detach())
    target = reference.scatter_add(1, lowered, torch.full_like(lowered, -beta, dtype=reference.dtype)).softmax(-1)
    return F.cross_entropy(at_least_float32(logits[:, :-1][chosen]), target)


def rmu_loss(
    activations: Float[Tensor, "example position feature"],
    target: Float[Tensor, "*example_position feature"],
    labels: Labels,
    *,
    published_broadcast: bool = False,
) -> Scalar:
    """RMU, arXiv:2403.03218: mean_s (1/N_s) Σ_t mean_d (h_t − c)² over the answer tokens' own positions (unshifted).

    `target` is one control vector, or the reference model's activations for the retain side. With
    `published_broadcast` as the reference implementation does it: mean_s(d_s) · mean_s(1/N_s), d_s the sum over t.
    """
    mask = labels != IGNORED
    distance = ((at_least_float32(activations) - target) ** 2).mean(-1).mul(mask).sum(1)
    if published_broadcast:
        return distance.mean() * (1 / mask.sum(1)).mean()
    return (distance / mask.sum(1)).mean()


def pdu_loss(logits: Logits, labels: Labels, *, published_shift: bool = False) -> Scalar:
    """Forget loss of PDU, arXiv:2506.05314: mean over scored predictions of (max_v z − mean_v z)².

    With `published_shift` as the reference implementation does it: at the answer tokens' own positions.
    """
    chosen = labels if published_shift else _next(labels)
    scores = at_least_float32(logits[chosen != IGNORED])
    return ((scores.amax(-1) - scores.mean(-1)) ** 2).mean()


def at_least_float32(logits: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Half precision widened to float32, anything else as it is."""
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits


def _next(labels: Labels) -> Labels:
    """The label that each position predicts; nothing follows the last one."""
    return F.pad(labels[:, 1:], (0, 1), value=IGNORED)
