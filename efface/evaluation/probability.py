"""How probable a model finds an answer, alone and among given alternatives."""

from collections.abc import Sequence

import numpy as np

SMALLEST_DENOMINATOR = 1e-10


def answer_probability(nll: float) -> float:
    """The geometric mean of an answer's token probabilities, in (0, 1]; higher means better known.

    p = exp(−NLL), arXiv:2401.06121 §2.2.1, NLL the mean over answer tokens, end token included.
    """
    return float(np.exp(-nll))


def probability_among_options(correct_nll: float, wrong_nlls: Sequence[float]) -> float:
    """The share of an answer in the probability of all options, in [0, 1]; higher means better known.

    p_c / (p_c + Σ p_w + 1e-10), arXiv:2401.06121 §2.2.1 (real authors, world facts); p as in `answer_probability`.

    Raises: ValueError where there is no wrong option.
    """
    if len(wrong_nlls) == 0:
        raise ValueError("no wrong options; expected at least one perturbed answer")
    correct = np.exp(-correct_nll)
    return float(correct / (correct + np.exp(-np.asarray(wrong_nlls, dtype=np.float64)).sum() + SMALLEST_DENOMINATOR))
