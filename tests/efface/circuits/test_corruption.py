"""Partners of equal length by other authors, and the stated absence of one."""

import pytest

from efface.circuits.corruption import corrupted_encoding, corrupted_partners
from efface.tokenization import Encoding


def encoding(prompt: list[int], answer: list[int]) -> Encoding:
    return Encoding((*prompt, *answer), len(prompt))


def test_partner_has_equal_prompt_length_another_author_and_another_question():
    """0's next of length 3 is 1, by the same author; 2 asks the same question; so 3. Last comes round to the first."""
    encodings = [
        encoding([1, 2, 3], [9]),
        encoding([1, 2, 4], [9]),
        encoding([1, 2, 3], [8]),
        encoding([1, 2, 5], [7, 7]),
        encoding([1, 2], [9]),
    ]
    assert corrupted_partners(encodings, [0, 0, 1, 1, 2]) == [3, 2, 1, 0, None]


def test_rows_without_author_are_strangers_to_one_another():
    encodings = [encoding([1, 2], [9]), encoding([3, 4], [9])]
    assert corrupted_partners(encodings, [-1, -1]) == [1, 0]
    assert corrupted_partners(encodings, [5, 5]) == [None, None]
    assert corrupted_partners([], []) == []


def test_corrupted_prompt_keeps_the_clean_answer():
    """The partner's own answer, of another length here, plays no part."""
    corrupted = corrupted_encoding(encoding([1, 2, 3], [7, 8]), encoding([4, 5, 6], [9]))
    assert corrupted == encoding([4, 5, 6], [7, 8])


def test_unequal_lengths_are_refused():
    with pytest.raises(ValueError, match="prompt of 3 tokens beside a partner's of 2"):
        corrupted_encoding(encoding([1, 2, 3], [7]), encoding([4, 5], [9]))
    with pytest.raises(ValueError, match="1 encodings beside 2 authors"):
        corrupted_partners([encoding([1], [2])], [0, 1])
