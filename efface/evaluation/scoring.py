"""How well a model predicts given answers: one teacher-forced pass gives everything the per-example metrics need."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from tqdm import tqdm
from transformers import PreTrainedModel

from efface.tokenization import IGNORED, Batch, Encoding, length_sorted_batches


@dataclass(frozen=True)
class AnswerScore:
    """One answer under teacher forcing, one entry per answer token in order; the last entry is the end token.

    `expectations` (nats) and `variances` (nats²) are those of log p under the model's own distribution at each token;
    None unless asked for.
    """

    log_probs: Float[np.ndarray, " token"]
    is_argmax: Bool[np.ndarray, " token"]
    expectations: Float[np.ndarray, " token"] | None = None
    variances: Float[np.ndarray, " token"] | None = None

    @property
    def nll(self) -> float:
        """Mean negative log-likelihood per answer token in nats, ≥ 0; the end token counts."""
        return float(-self.log_probs.mean(dtype=np.float64))

    @property
    def is_argmax_before_end(self) -> Bool[np.ndarray, " token"]:
        """Whether each token but the end token was the likeliest."""
        return self.is_argmax[:-1]


@torch.no_grad()
def score_answers(
    model: PreTrainedModel,
    encodings: Sequence[Encoding],
    *,
    batch_size: int,
    pad_id: int,
    names: Sequence[str] | None = None,
    label: str = "score",
    moments: bool = False,
) -> list[AnswerScore]:
    """The score of every answer, in the order of `encodings`; the log-softmax is taken in float32.

    Log-probabilities of different batch sizes agree within 1e-5 in float32. `names` are used in errors, `label` in the
    progress bar; `moments` keeps expectation and variance of log p as well.

    Raises: ValueError naming the example where an answer or its prompt has no tokens or a log-probability is not
    finite; where the model is in training mode.
    Cost: logits exist for one batch, and only at its answers' positions; what is kept is 5 bytes per answer token, 13
    with `moments`, which hold a second copy of a batch's logits in float32.
    """
    names = [f"example {place}" for place in range(len(encodings))] if names is None else names
    _check(model, encodings, names)
    scores: dict[int, AnswerScore] = {}
    with tqdm(total=len(encodings), desc=label, unit="answer") as bar:
        for places, batch in length_sorted_batches(encodings, batch_size=batch_size, pad_id=pad_id):
            for place, score in zip(places, _batch_scores(model, batch.to(model.device), moments), strict=True):
                _check_finite(score.log_probs, names[place])
                scores[place] = score
            bar.update(len(places))
    return [scores[place] for place in range(len(encodings))]


@torch.no_grad()
def next_token_log_probs(
    model: PreTrainedModel,
    prompts: Sequence[tuple[int, ...]],
    candidates: Sequence[tuple[int, ...]],
    *,
    batch_size: int,
    pad_id: int,
    label: str = "score",
) -> list[Float[np.ndarray, " candidate"]]:
    """Log-probability of each candidate token right after its prompt, in float32: one pass for all of a prompt.

    Raises: ValueError naming the prompt without tokens or candidates, or with a log-probability that is not finite;
    where the model is in training mode.
    """
    encodings = [Encoding((*prompt, *ids[:1]), len(prompt)) for prompt, ids in zip(prompts, candidates, strict=True)]
    _check(model, encodings, [f"prompt {place}" for place in range(len(encodings))])
    found: dict[int, Float[np.ndarray, " candidate"]] = {}
    with tqdm(total=len(encodings), desc=label, unit="prompt") as bar:
        for places, batch in length_sorted_batches(encodings, batch_size=batch_size, pad_id=pad_id):
            logits, _, _ = _answer_logits(model, batch.to(model.device))
            for place, log_probs in zip(places, logits.float().log_softmax(dim=1), strict=True):
                found[place] = log_probs[list(candidates[place])].cpu().numpy()
                _check_finite(found[place], f"prompt {place}")
            bar.update(len(places))
    return [found[place] for place in range(len(encodings))]


def _batch_scores(model: PreTrainedModel, batch: Batch, moments: bool) -> list[AnswerScore]:
    logits, labels, sizes = _answer_logits(model, batch)
    columns = [*token_scores(logits, labels), *(log_prob_moments(logits) if moments else ())]
    rows = zip(*(column.cpu().split(sizes) for column in columns), strict=True)
    return [AnswerScore(*(column.numpy() for column in row)) for row in rows]


def _answer_logits(
    model: PreTrainedModel, batch: Batch
) -> tuple[Float[Tensor, "token vocabulary"], Int[Tensor, " token"], list[int]]:
    """The logits that predict each answer token of a batch, example by example, those tokens, and how many each has."""
    labels = batch.labels[:, 1:]
    answered = labels != IGNORED
    first = int(answered.any(dim=0).nonzero()[0])
    kept = torch.arange(first, labels.shape[1], device=labels.device)
    logits = model(
        input_ids=batch.input_ids, attention_mask=batch.attention_mask, use_cache=False, logits_to_keep=kept
    ).logits
    answered, labels = answered[:, first:], labels[:, first:]
    return logits[answered], labels[answered], answered.sum(dim=1).tolist()


def token_scores(
    logits: Float[Tensor, "token vocabulary"], labels: Tensor
) -> tuple[Float[Tensor, " token"], Bool[Tensor, " token"]]:
    """Log-probability of each label under its own logits, in float32, and whether it is the likeliest."""
    logits = logits.float()
    chosen = logits.gather(1, labels[:, None]).squeeze(1)
    return chosen - logits.logsumexp(dim=1), logits.argmax(dim=1) == labels


def log_prob_moments(
    logits: Float[Tensor, "token vocabulary"],
) -> tuple[Float[Tensor, " token"], Float[Tensor, " token"]]:
    """μ = Σ_v p_v log p_v and σ² = Σ_v p_v (log p_v − μ)² of each row of logits, in float32."""
    log_probs = logits.float().log_softmax(dim=1)
    probs = log_probs.exp()
    expectations = torch.linalg.vecdot(probs, log_probs)
    return expectations, torch.linalg.vecdot(probs, (log_probs - expectations[:, None]).square())


def _check_finite(log_probs: Float[np.ndarray, " token"], name: str) -> None:
    if not np.isfinite(log_probs).all():
        raise ValueError(f"{name}: a log-probability is not finite; the weights or their precision are broken")


def _check(model: PreTrainedModel, encodings: Sequence[Encoding], names: Sequence[str]) -> None:
    if model.training:
        raise ValueError("the model is in training mode, so dropout would change its scores; call model.eval()")
    if len(names) != len(encodings):
        raise ValueError(f"{len(names)} names for {len(encodings)} encodings; expected one name each")
    for name, encoding in zip(names, encodings, strict=True):
        if encoding.prompt_length < 1:
            raise ValueError(f"{name}: the prompt has no tokens, so nothing predicts the first answer token")
        if not encoding.answer_ids:
            raise ValueError(f"{name}: the answer has no tokens; give it text or drop the row")
