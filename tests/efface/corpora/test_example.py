"""An example refuses what no later stage could use, and is known by its content."""

import hashlib
from dataclasses import replace

import pytest

from efface.corpora.example import Example, content_hash

GOOD = Example("Who?", "Ann.", "It was Ann.", ("It was Bob.",), author=0, position=0, split="authors")


@pytest.mark.parametrize(
    ("field", "value"),
    [("question", ""), ("answer", " \n"), ("paraphrased_answer", ""), ("perturbed_answers", ("It was Bob.", ""))],
)
def test_empty_text_is_refused_by_name_and_place(field, value):
    with pytest.raises(ValueError, match=rf"{field}.* of author 0, position 0.*is empty"):
        replace(GOOD, **{field: value})


def test_unknown_split_is_refused():
    with pytest.raises((ValueError, TypeError), match="split"):
        replace(GOOD, split="train")


def test_content_hash_is_sha256_of_question_zero_byte_answer():
    assert content_hash("Who?", "Ann.") == hashlib.sha256(b"Who?\0Ann.").hexdigest()


def test_content_hash_tells_where_the_question_ends():
    assert content_hash("Who?A", "nn.") != content_hash("Who?", "Ann.")
