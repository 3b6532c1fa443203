"""Whether a model prefers wrong statements to the true one, and three ways to average that over examples."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from jaxtyping import Float

from efface.evaluation.probability import SMALLEST_DENOMINATOR

Mean = Literal["geometric", "arithmetic"]


def truth_ratio(correct_nll: float, wrong_nlls: Sequence[float], *, mean: Mean = "geometric") -> float:
    """The probability of the wrong answers over that of the right one, ≥ 0; below 1 the right one is preferred.

    Eq. (1), arXiv:2401.06121: R = mean_w p_w / (p_c + 1e-10), p = exp(−NLL per token). The right answer is the
    paraphrase, on real authors and world facts the answer itself.

    Departs from the paper: which writes an arithmetic mean; `geometric`, exp of the mean NLL, is what its code and
    open-unlearning compute.
    Raises: ValueError where there is no wrong answer or the mean is unknown.
    """
    if len(wrong_nlls) == 0:
        raise ValueError("truth ratio without wrong answers; expected at least one perturbed answer")
    wrong = np.asarray(wrong_nlls, dtype=np.float64)
    if mean == "geometric":
        numerator = np.exp(-wrong.mean())
    elif mean == "arithmetic":
        numerator = np.exp(-wrong).mean()
    else:
        raise ValueError(f"truth ratio mean {mean!r}: expected 'geometric' or 'arithmetic'")
    return float(numerator / (np.exp(-correct_nll) + SMALLEST_DENOMINATOR))


def closeness_to_one(ratios: Float[np.ndarray, " example"]) -> Float[np.ndarray, " example"]:
    """min(R, 1/R) in [0, 1], the forget set's truth ratio: 1 where right and wrong are equally probable."""
    return np.minimum(ratios, 1 / (ratios + SMALLEST_DENOMINATOR))


def preference_for_truth(ratios: Float[np.ndarray, " example"]) -> Float[np.ndarray, " example"]:
    """max(0, 1 − R) in [0, 1], the truth ratio inside model utility: 1 where only the right answer is probable."""
    return np.maximum(0.0, 1 - ratios)


def share_of_truth(correct_nll: float, wrong_nlls: Sequence[float]) -> float:
    """p_c / (p_c + p_w + 1e-10) in [0, 1], p_w the geometric mean: the truth ratio read as a probability."""
    correct, wrong = np.exp(-correct_nll), np.exp(-np.mean(wrong_nlls))
    return float(correct / (correct + wrong + SMALLEST_DENOMINATOR))
