"""Whether a model gives away that it was trained on a text.

Every score here is higher the *less* likely the text is a member of the training data, and an AUC is the chance that a
text outside scores higher than a member: 1 means all members are told apart, ½ none is.
"""

import zlib
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from jaxtyping import Float
from scipy.stats import rankdata
from torch.nn.functional import cross_entropy
from tqdm import tqdm
from transformers import PreTrainedModel

from efface.evaluation.scoring import AnswerScore
from efface.tokenization import Encoding

SHARE = 0.4
SMALLEST_VARIANCE = 1e-6


def membership_scores(
    score: AnswerScore, text: str, *, ends: bool, share: float = SHARE, reference_nll: float | None = None
) -> dict[str, float]:
    """Every membership score that one teacher-forced pass gives: loss, zlib, min_k, reference and min_k_plus_plus.

    `text` is what was scored; `ends`: the last token is an end token, which min-k and min-k++ leave out. There is no
    `reference` without the NLL of a model that never saw the text, no `min_k_plus_plus` without `moments` in the score.

    Departs from open-unlearning: which leaves out the last token of texts without an end token as well.

    Raises: ValueError where the text is empty or has no token but the end token.
    """
    kept = slice(None, -1 if ends else None)
    scores = {
        "loss": score.nll,
        "zlib": zlib_score(score.nll, text),
        "min_k": min_k_score(score.log_probs[kept], share=share),
    }
    if reference_nll is not None:
        scores["reference"] = score.nll - reference_nll
    if score.expectations is not None and score.variances is not None:
        standardised = standardised_log_probs(score.log_probs, score.expectations, score.variances)
        scores["min_k_plus_plus"] = min_k_score(standardised[kept], share=share)
    return scores


def zlib_score(nll: float, text: str) -> float:
    """NLL per token over the bytes of the text compressed by zlib, arXiv:2012.07805: surprise beyond its own entropy.

    Raises: ValueError where the text is empty.
    """
    if not text:
        raise ValueError("zlib score of an empty text; give it text or drop the row")
    return nll / len(zlib.compress(text.encode()))


def min_k_score(values: Float[np.ndarray, " token"], *, share: float = SHARE) -> float:
    """Minus the mean of the ⌊share·n⌋ (at least one) lowest values, arXiv:2310.16789; log-probabilities for min-k.

    Raises: ValueError where there are no values or `share` is not in (0, 1].
    """
    if not 0 < share <= 1:
        raise ValueError(f"share {share}: expected a number in (0, 1], the part of the tokens that counts")
    if len(values) == 0:
        raise ValueError("min-k of a text without tokens before its end token; give it text or drop the row")
    count = max(1, int(share * len(values)))
    return float(-np.sort(values)[:count].mean(dtype=np.float64))


def standardised_log_probs(
    log_probs: Float[np.ndarray, " token"],
    expectations: Float[np.ndarray, " token"],
    variances: Float[np.ndarray, " token"],
) -> Float[np.ndarray, " token"]:
    """(log p − μ) / σ, what min-k++ is the min-k score of, arXiv:2404.02936; σ² is at least 1e-6."""
    return (log_probs - expectations) / np.sqrt(np.maximum(variances, SMALLEST_VARIANCE))


def gradient_norm_scores(
    model: PreTrainedModel, encodings: Sequence[Encoding], *, ends: bool, label: str = "gradient norms"
) -> list[float]:
    """The mean over parameter tensors of ‖∂ℓ/∂θ‖₂, ℓ the NLL per token; `ends`: without the last token.

    arXiv:2402.17012 (gradient norm), with the mean over tensors of open-unlearning.

    Raises: ValueError naming the place of an example that has no token to predict.
    Cost: one forward and one backward pass per example, with parameter gradients.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    scores = []
    for place, encoding in enumerate(tqdm(encodings, desc=label, unit="text")):
        ids = encoding.input_ids[: -1 if ends else None]
        if not 1 <= encoding.prompt_length < len(ids):
            raise ValueError(f"example {place}: no token to predict before the end token; give it text or drop the row")
        inputs = torch.tensor([ids], device=model.device)
        logits = model(input_ids=inputs, use_cache=False).logits[0, encoding.prompt_length - 1 : -1].float()
        loss = cross_entropy(logits, inputs[0, encoding.prompt_length :])
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        scores.append(float(torch.stack([g.float().norm() for g in gradients if g is not None]).mean()))
    return scores


def membership_auc(members: Iterable[float], outsiders: Iterable[float]) -> float:
    """P(score of an outsider > score of a member) + ½ P(equal), in [0, 1]: 1 where the members are given away.

    scikit-learn's `roc_auc_score` with label 0 for members and 1 for outsiders.

    Raises: ValueError where a side is empty or holds a score that is not finite.
    """
    sides = [np.fromiter(side, dtype=np.float64) for side in (members, outsiders)]
    for name, side in zip(("members", "outsiders"), sides, strict=True):
        if len(side) == 0:
            raise ValueError(f"membership AUC without {name}; expected at least one score, from a set withheld for it")
        if not np.isfinite(side).all():
            raise ValueError(f"membership AUC: a score of the {name} is {side[~np.isfinite(side)][0]}, expected finite")
    inside, outside = map(len, sides)
    ranks = rankdata(np.concatenate(sides))[inside:]
    return float((ranks.sum() - outside * (outside + 1) / 2) / (inside * outside))


def priv_leak(auc: float, retained_auc: float | None) -> float:
    """How far a model's AUC is from the retained model's, in per cent: 0 is right, −100 every member is still told.

    100 (A − A_r) / A_r, arXiv:2407.06460 (C3), with A = 1 − AUC in MUSE's convention, where members score higher.
    Below 0 too little was forgotten; above 0 forget texts look *less* known than texts never seen, a leak as well.
    Both arguments are `membership_auc` of min-k scores, forget texts against texts that neither model saw.

    Departs from open-unlearning: which takes ½ for a missing reference and adds 1e-10 to a denominator of 0.
    Raises: ValueError where the retained model's AUC is missing, or 0 or 1, or an AUC is out of [0, 1].
    """
    if retained_auc is None:
        raise ValueError("PrivLeak without the retained model's AUC; evaluate a model trained without the forget set")
    if not 0 < retained_auc < 1:
        raise ValueError(
            f"PrivLeak: the retained model's AUC is {retained_auc}, expected more than 0 and less than 1: it tells "
            "forget from holdout texts perfectly without having seen either; take a holdout set like the forget set"
        )
    if not 0 <= auc <= 1:
        raise ValueError(f"PrivLeak: AUC {auc}, expected a number in [0, 1]; see membership_auc")
    return 100 * ((1 - auc) - (1 - retained_auc)) / (1 - retained_auc)
