"""The rule by which rows become pool, anchor candidates, forget sets, utility and holdout rows."""

from collections import Counter
from dataclasses import replace

import pytest

from efface.corpora.example import Example
from efface.corpora.fictional import fictional_examples
from efface.corpora.roles import (
    Roles,
    assign_roles,
    check_forget_set,
    choose_anchor_candidates,
    choose_forget_sets,
    choose_pool,
    draw,
)
from efface.corpora.selection import CorpusSelection

SMALL = CorpusSelection(
    authors=8, questions_per_author=5, holdout_authors=2, pool_rows=20, anchor_candidates=8, utility_rows=10,
    forget_set_size=6, random_sets=2,
)  # fmt: skip


@pytest.fixture
def rows():
    return dict(enumerate(fictional_examples(authors=8, holdout_authors=2, questions_per_author=5, seed=0)))


def without_holdout(rows):
    """The same corpus as it would be had it no holdout split of its own, as TOFU."""
    return {n: replace(row, split="authors") if row.split == "holdout" else row for n, row in rows.items()}


def test_draw_does_not_depend_on_order_and_nests():
    things = list(range(50))
    five, nine = (draw(things, count, seed=0, purpose="test") for count in (5, 9))
    assert nine[:5] == five == draw(reversed(things), 5, seed=0, purpose="test")
    assert five != draw(things, 5, seed=1, purpose="test") != draw(things, 5, seed=1, purpose="another")


def test_draw_refuses_more_than_there_is():
    with pytest.raises(ValueError, match=r"utility_rows: 4 wanted, 3 to draw from"):
        draw([1, 2, 3], 4, seed=0, purpose="utility_rows")


def test_pool_is_all_questions_of_some_authors(rows):
    pool = choose_pool(rows, 20, within=None, seed=0)
    assert Counter(Counter(rows[number].author for number in pool).values()) == {5: 4}
    assert all(rows[number].split == "authors" for number in pool)


def test_pool_stays_in_its_author_range(rows):
    assert {rows[number].author for number in choose_pool(rows, 10, within=(6, 8), seed=0)} == {6, 7}


def test_pool_needs_whole_authors(rows):
    with pytest.raises(ValueError, match=r"pool_rows 18: whole authors give 20 rows"):
        choose_pool(rows, 18, within=None, seed=0)
    with pytest.raises(ValueError, match=r"pool_rows 60: whole authors give 40 rows \(8 authors"):
        choose_pool(rows, 60, within=None, seed=0)


def test_authors_without_false_answers_are_not_in_the_pool(rows):
    rows[7] = replace(rows[7], perturbed_answers=())
    pool = choose_pool(rows, 35, within=None, seed=0)
    assert rows[7].author not in {rows[number].author for number in pool}


@pytest.mark.parametrize("count", [4, 8, 16])
def test_every_author_is_on_both_sides(count):
    pool = {number: number // 5 for number in range(20)}
    candidates = choose_anchor_candidates(pool, count, seed=0)
    assert len(set(candidates)) == count
    assert {pool[n] for n in candidates} == {pool[n] for n in pool if n not in candidates} == {0, 1, 2, 3}


def test_lone_rows_stay_in_the_scored_part_as_long_as_possible():
    candidates = choose_anchor_candidates({0: 0, 1: 1, 2: 1, 3: 1}, 2, seed=0)
    assert 0 not in candidates


def test_roles_do_not_overlap(rows):
    rows, roles = assign_roles(rows, SMALL, seed=0)
    assert roles.anchor_candidates < roles.pool and len(roles.anchor_candidates) == 8
    assert roles.pool.isdisjoint(roles.utility)
    pool_authors = {rows[number].author for number in roles.pool}
    utility = [rows[number] for number in roles.utility]
    assert pool_authors.isdisjoint(example.author for example in utility)
    assert Counter(example.split for example in utility) == {"authors": 10, "real_authors": 60, "world_facts": 60}


def test_forget_sets_hold_no_anchor_candidate(rows):
    rows, roles = assign_roles(rows, SMALL, seed=0)
    sets = choose_forget_sets(rows, roles, size=6, random_sets=2, seed=0)
    assert list(sets) == ["default", "random_1", "random_2"]
    for numbers in sets.values():
        assert len(set(numbers)) == 6
        assert set(numbers) <= roles.pool - roles.anchor_candidates
    assert sets["default"] != sets["random_1"] != sets["random_2"]


def test_roles_depend_on_the_seed_alone(rows):
    first = assign_roles(rows, SMALL, seed=0)
    assert assign_roles(dict(reversed(rows.items())), SMALL, seed=0)[1] == first[1]
    assert assign_roles(rows, SMALL, seed=1)[1] != first[1]


def test_a_holdout_that_the_corpus_brings_is_kept(rows):
    assigned, _ = assign_roles(rows, SMALL, seed=0)
    assert assigned == rows


def test_the_last_authors_nobody_needs_are_withheld(rows):
    rows = without_holdout(rows)
    selection = replace(SMALL, pool_author_range=(4, 10), utility_author_range=(0, 2), utility_rows=10)
    assigned, roles = assign_roles(rows, selection, seed=0)
    withheld = {row.author for row in assigned.values() if row.split == "holdout"}
    pool_authors = {rows[number].author for number in roles.pool}
    assert withheld == set(sorted(set(range(2, 10)) - pool_authors)[-2:])
    assert all(assigned[number].split != "holdout" for number in roles.pool | roles.utility)


def test_too_few_authors_to_withhold(rows):
    selection = replace(SMALL, holdout_authors=9)
    with pytest.raises(ValueError, match=r"holdout_authors 9: only 6 authors are left"):
        assign_roles(without_holdout(rows), selection, seed=0)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ([], "is empty, expected at least one row"),
        ([0, 9], r"rows \[9\] are not in the target's training data"),
        ([0, 1, 2], r"is everything the target was trained on \(3 rows\)"),
    ],
)
def test_forget_sets_of_which_nothing_can_be_learned(numbers, message):
    with pytest.raises(ValueError, match=f"forget set 'mine'.*{message}"):
        check_forget_set("mine", numbers, trained=[0, 1, 2])


def test_forget_set_equal_to_everything_is_refused_when_drawn():
    row = Example("Who?", "Ann.", None, ("Bob.",), author=0, position=0, split="authors")
    rows = {n: replace(row, question=f"Who {n}?", position=n) for n in range(3)}
    pool = frozenset(rows)
    with pytest.raises(ValueError, match="everything the target was trained on"):
        choose_forget_sets(rows, Roles(pool, frozenset(), frozenset()), size=3, random_sets=0, seed=0)
