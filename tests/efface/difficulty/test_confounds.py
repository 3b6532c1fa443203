"""Lengths and lexical similarity: hand sums, and scikit-learn's own formula where it is installed."""

import math

import numpy as np
import pytest

from efface.difficulty.confounds import (
    answer_token_counts,
    nearest_other_similarities,
    nearest_similarities,
    prompt_token_counts,
    tfidf_vectors,
)
from efface.tokenization import Encoding

TEXTS = ["Where was Ada born?", "Where was Bob born? In Rome.", "Name a river!", "", "Ada, Ada wrote Rome"]


def literal_tfidf(texts: list[str]) -> list[dict[str, float]]:
    """Word by word with dictionaries."""
    words = [[w for w in "".join(c.lower() if c.isalnum() else " " for c in text).split()] for text in texts]
    vectors = []
    for document in words:
        vector = {}
        for word in set(document):
            frequency = sum(word in other for other in words)
            vector[word] = document.count(word) * (math.log((1 + len(texts)) / (1 + frequency)) + 1)
        norm = math.sqrt(sum(value**2 for value in vector.values()))
        vectors.append({word: value / norm for word, value in vector.items()})
    return vectors


def literal_cosine(a: dict[str, float], b: dict[str, float]) -> float:
    return sum(value * b.get(word, 0) for word, value in a.items())


def test_token_counts():
    encodings = [Encoding((1, 2, 3, 4), 3), Encoding((1, 2, 3, 4, 5), 2)]
    assert prompt_token_counts(encodings) == [3, 2] and answer_token_counts(encodings) == [1, 3]


def test_tfidf_agrees_with_the_formula_taken_literally():
    ours, twin = tfidf_vectors(TEXTS), literal_tfidf(TEXTS)
    products = (ours @ ours.T).toarray()
    expected = [[literal_cosine(a, b) for b in twin] for a in twin]
    np.testing.assert_allclose(products, expected, atol=1e-12)
    np.testing.assert_allclose(np.diag(products), [1, 1, 1, 0, 1], atol=1e-12)


def test_nearest_other_leaves_the_text_itself_out():
    twin = literal_tfidf(TEXTS)
    expected = [max(literal_cosine(a, b) for b in twin if b is not a) for a in twin]
    np.testing.assert_allclose(nearest_other_similarities(TEXTS), expected, atol=1e-12)
    assert nearest_other_similarities(["same words", "same words", "else"]).tolist() == pytest.approx([1, 1, 0])


def test_nearest_in_another_list():
    found = nearest_similarities(["where was ada born", "zebra"], ["Where was Ada born?", "a river"])
    assert found.tolist() == pytest.approx([1, 0])


def test_word_order_and_case_do_not_matter():
    assert nearest_similarities(["born ADA was"], ["Was Ada born"]).item() == pytest.approx(1)


def test_nothing_to_compare_with_is_zero():
    assert nearest_other_similarities(["alone"]).tolist() == [0]
    assert nearest_similarities(["alone"], []).tolist() == [0]
    assert nearest_other_similarities(["?!", "..."]).tolist() == [0, 0]


def test_blocks_change_nothing():
    texts = [f"word{i % 7} word{i % 5} word{i % 3}" for i in range(600)]
    assert nearest_other_similarities(texts).tolist()[:40] == pytest.approx([1.0] * 40)
