"""What else could make an example hard to unlearn: its length, and texts that resemble it."""

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from scipy.sparse import csr_array

from efface.tokenization import Encoding

WORD = re.compile(r"\w+")


def prompt_token_counts(encodings: Sequence[Encoding]) -> list[int]:
    """Tokens before the answer."""
    return [encoding.prompt_length for encoding in encodings]


def answer_token_counts(encodings: Sequence[Encoding]) -> list[int]:
    """Tokens of the answer, its end token included."""
    return [len(encoding.answer_ids) for encoding in encodings]


def nearest_other_similarities(texts: Sequence[str]) -> Float[np.ndarray, " text"]:
    """TF-IDF cosine of each text with the most similar *other* text of the list, 0 … 1; 0 for a list of one."""
    vectors = tfidf_vectors(texts)
    return _row_maxima(vectors, vectors, skip_diagonal=True)


def nearest_similarities(texts: Sequence[str], among: Sequence[str]) -> Float[np.ndarray, " text"]:
    """TF-IDF cosine of each text with the most similar of `among`, 0 … 1; 0 where `among` is empty."""
    if not among:
        return np.zeros(len(texts))
    vectors = tfidf_vectors([*texts, *among])
    return _row_maxima(vectors[: len(texts)], vectors[len(texts) :], skip_diagonal=False)


def tfidf_vectors(texts: Sequence[str]) -> csr_array:
    """Word vectors of unit length (zero for a text without words), one row a text.

    tf-idf(w, d) = count(w, d) · (ln((1 + n) / (1 + df(w))) + 1) over n texts, as in scikit-learn; words are
    runs of letters and digits in lower case.
    """
    counts = [Counter(WORD.findall(text.lower())) for text in texts]
    vocabulary = {word: place for place, word in enumerate(sorted(set().union(*counts)))}
    rows = np.repeat(np.arange(len(texts)), [len(count) for count in counts])
    columns = np.array([vocabulary[word] for count in counts for word in count], dtype=np.int64)
    values = np.array([number for count in counts for number in count.values()], dtype=np.float64)
    frequency = np.bincount(columns, minlength=len(vocabulary))
    values *= (np.log((1 + len(texts)) / (1 + frequency)) + 1)[columns]
    norms = np.sqrt(np.bincount(rows, values**2, minlength=len(texts)))
    return csr_array((values / norms[rows], (rows, columns)), shape=(len(texts), len(vocabulary)))


def _row_maxima(rows: csr_array, columns: csr_array, *, skip_diagonal: bool, block: int = 512) -> np.ndarray:
    """Largest product of each row of `rows` with a row of `columns`; blockwise, so that memory stays flat."""
    maxima = np.zeros(len(rows.indptr) - 1)
    for start in range(0, len(maxima), block):
        products = (rows[start : start + block] @ columns.T).toarray()
        if skip_diagonal:
            places = np.arange(len(products))
            products[places, start + places] = 0
        maxima[start : start + block] = products.max(axis=1)
    return maxima.clip(0, 1)
