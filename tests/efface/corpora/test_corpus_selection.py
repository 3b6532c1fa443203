"""Which rows are used, and sizes that do not fit together."""

from dataclasses import replace

import pytest

from efface.corpora.fictional import fictional_examples
from efface.corpora.selection import CorpusSelection, select_rows

SMALL = CorpusSelection(
    authors=8, questions_per_author=5, holdout_authors=2, pool_rows=20, anchor_candidates=8, utility_rows=10,
    forget_set_size=6, random_sets=2,
)  # fmt: skip


@pytest.fixture
def rows():
    return dict(enumerate(fictional_examples(authors=8, holdout_authors=2, questions_per_author=5, seed=0)))


def test_selected_rows_keep_their_number_in_the_corpus(rows):
    selection = replace(SMALL, author_ranges=((1, 2), (8, 9)), real_authors=2, world_facts=0)
    chosen = select_rows(list(rows.values()), selection)
    assert list(chosen) == [*range(5, 10), *range(40, 45), 50, 51]
    assert all(chosen[number] == rows[number] for number in chosen)


def test_more_facts_than_there_are(rows):
    with pytest.raises(ValueError, match=r"world_facts 61: the corpus 'fictional' has 60 such rows"):
        select_rows(list(rows.values()), replace(SMALL, world_facts=61))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": "data"}, "the fictional corpus is embedded"),
        ({"forget_set_size": 0}, "forget_set_size 0: expected at least 1"),
        ({"anchor_candidates": 15}, "leaves fewer than forget_set_size 6 rows"),
        ({"pool_author_range": (5, 5)}, r"author range \[5, 5\]"),
        ({"world_facts": -1}, "world_facts -1: expected at least 0"),
    ],
)
def test_sizes_that_cannot_be(changes, message):
    with pytest.raises(ValueError, match=message):
        replace(SMALL, **changes)
