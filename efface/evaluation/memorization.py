"""How much of an answer a model reproduces token by token. The end token never counts."""

import numpy as np
from jaxtyping import Bool


def exact_memorization(is_argmax: Bool[np.ndarray, " token"]) -> float:
    """The share of answer tokens that are the likeliest after the true ones before them, in [0, 1].

    EM = Σ_t 1{argmax = y_t} / T, arXiv:2410.02159 (via open-unlearning); `is_argmax` without the end token.

    Raises: ValueError where there are no tokens.
    """
    _check(is_argmax)
    return float(is_argmax.mean(dtype=np.float64))


def extraction_strength(is_argmax: Bool[np.ndarray, " token"], *, reference_floor: bool = False) -> float:
    """The share of an answer that follows by greedy choice from the shortest sufficient prefix of it, in [0, 1].

    ES = 1 − k/T, k the smallest prefix after which every token is the likeliest; `is_argmax` without the end token.

    0 where even the last token is wrong; open-unlearning, whose k stops at T − 1, gives 1/T there: `reference_floor`.
    Raises: ValueError where there are no tokens.
    """
    _check(is_argmax)
    wrong = np.flatnonzero(~is_argmax)
    prefix = 0 if len(wrong) == 0 else int(wrong[-1]) + 1
    if reference_floor:
        prefix = min(prefix, len(is_argmax) - 1)
    return 1 - prefix / len(is_argmax)


def _check(is_argmax: Bool[np.ndarray, " token"]) -> None:
    if len(is_argmax) == 0:
        raise ValueError("memorization of an answer without tokens before its end token; give it text or drop the row")
