"""What each row of a corpus is for: pool, anchor candidates, forget sets, utility, holdout.

The rule. Rows keep their number in the whole corpus, whatever part of it is used. A *draw* ranks things by a hash of
seed, purpose and thing: it does not depend on order, and a larger draw contains the smaller. The **pool** (candidates
for forgetting) is all questions of drawn authors. It is split, at question level and so that every author has rows on
both sides where possible, into **anchor candidates**, from which `select_anchors` takes its easy and hard anchors, and
the **scored part**. Every reported forget set is drawn at question level from the scored part alone: `default` and
`random_k` here by seed, `easy` and `hard` later by score. Anchors are therefore in no reported set, and the other
questions of a forgotten row's author stay in training. **Utility** rows are drawn from authors outside the pool; all
real-author and world-fact rows in use measure utility too. **Holdout** authors are in no training run: those a corpus
brings along, else the last authors that neither pool nor utility needs. All other rows are trained on.
"""

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from efface.corpora.example import Example
from efface.corpora.selection import AuthorRange, CorpusSelection

T = TypeVar("T", int, str)


@dataclass(frozen=True)
class Roles:
    """Numbers of the rows by what they are for; `anchor_candidates` is part of `pool`, `utility` is apart from it."""

    pool: frozenset[int]
    anchor_candidates: frozenset[int]
    utility: frozenset[int]


def draw(things: Iterable[T], count: int, *, seed: int, purpose: str) -> list[T]:
    """`count` of `things` in random order: those whose hash with seed and purpose is lowest.

    Raises: ValueError where there are fewer.
    """
    ranked = sorted(things, key=lambda thing: hashlib.sha256(f"{seed}/{purpose}/{thing}".encode()).digest())
    if len(ranked) < count:
        raise ValueError(
            f"{purpose}: {count} wanted, {len(ranked)} to draw from; ask for fewer or use more of the corpus"
        )
    return ranked[:count]


def assign_roles(
    rows: Mapping[int, Example], selection: CorpusSelection, *, seed: int
) -> tuple[dict[int, Example], Roles]:
    """The rows, with withheld authors relabelled `holdout`, and the roles of the rest, by this module's rule.

    Raises: ValueError where the corpus is too small for what is asked.
    """
    pool = choose_pool(rows, selection.pool_rows, within=selection.pool_author_range, seed=seed)
    pool_authors = {rows[number].author for number in pool}
    rows = _withhold_authors(rows, selection, needed=pool_authors)
    anchors = choose_anchor_candidates({n: rows[n].author for n in pool}, selection.anchor_candidates, seed=seed)
    outside = [
        number
        for author, numbers in _askable_authors(rows, selection.utility_author_range).items()
        for number in numbers
        if author not in pool_authors
    ]
    utility = draw(outside, selection.utility_rows, seed=seed, purpose="utility_rows")
    facts = [number for number, row in rows.items() if row.split in ("real_authors", "world_facts")]
    return rows, Roles(frozenset(pool), frozenset(anchors), frozenset([*utility, *facts]))


def choose_pool(rows: Mapping[int, Example], count: int, *, within: AuthorRange | None, seed: int) -> list[int]:
    """All rows of drawn authors, `count` in all, of authors whose every row has false answers.

    Raises: ValueError where whole authors do not add up to `count`.
    """
    authors = _askable_authors(rows, within)
    pool: list[int] = []
    for author in draw(authors, len(authors), seed=seed, purpose="pool authors"):
        if len(pool) < count:
            pool += authors[author]
    if len(pool) != count:
        raise ValueError(
            f"pool_rows {count}: whole authors give {len(pool)} rows ({len(authors)} authors may be in the pool); "
            "set pool_rows to a multiple of the questions per author, or widen pool_author_range and author_ranges"
        )
    return sorted(pool)


def choose_anchor_candidates(pool_authors: Mapping[int, int], count: int, *, seed: int) -> list[int]:
    """`count` of the pool's rows (row number → author), by draw; each author's first row first, its last row last."""
    ranked = draw(pool_authors, len(pool_authors), seed=seed, purpose="anchor_candidates")
    rows_of: dict[int, list[int]] = defaultdict(list)
    for number in ranked:
        rows_of[pool_authors[number]].append(number)
    first = [numbers[0] for numbers in rows_of.values() if len(numbers) > 1]
    last = [numbers[-1] for numbers in rows_of.values()]
    middle = [number for number in ranked if number not in {*first, *last}]
    return sorted([*first, *middle, *last][:count])


def choose_forget_sets(
    rows: Mapping[int, Example], roles: Roles, *, size: int, random_sets: int, seed: int
) -> dict[str, list[int]]:
    """`default` and `random_1` … `random_k`: independent draws of `size` questions from the scored part of the pool.

    Raises: ValueError where a set would be empty or all that the target is trained on.
    """
    scored = roles.pool - roles.anchor_candidates
    names = ["default", *(f"random_{index}" for index in range(1, random_sets + 1))]
    sets = {name: sorted(draw(scored, size, seed=seed, purpose=f"forget set {name}")) for name in names}
    for name, numbers in sets.items():
        check_forget_set(name, numbers, trained={number for number, row in rows.items() if is_trained(row)})
    return sets


def check_forget_set(name: str, numbers: Collection[int], *, trained: Collection[int]) -> None:
    """Refuses a set of which nothing can be learned.

    Raises: ValueError where it is empty, holds a row the target was not trained on, or leaves nothing to retain.
    """
    if not numbers:
        raise ValueError(f"forget set {name!r} is empty, expected at least one row; set prepare_data.forget_set_size")
    strangers = sorted(set(numbers) - set(trained))
    if strangers:
        raise ValueError(
            f"forget set {name!r}: rows {strangers[:5]} are not in the target's training data; remove them"
        )
    if len(set(numbers)) == len(set(trained)):
        raise ValueError(
            f"forget set {name!r} is everything the target was trained on ({len(set(numbers))} rows): nothing would "
            "be retained; ask for a smaller forget_set_size or a larger corpus"
        )


def is_trained(example: Example) -> bool:
    """Whether the row is in the target's training run: every row but those of holdout authors."""
    return example.split != "holdout"


def _askable_authors(rows: Mapping[int, Example], within: AuthorRange | None) -> dict[int, list[int]]:
    """Author → row numbers, for trained authors in the range all of whose rows have the false answers metrics need."""
    authors: dict[int, list[int]] = defaultdict(list)
    for number, row in rows.items():
        if row.split == "authors" and (within is None or within[0] <= row.author < within[1]):
            authors[row.author].append(number)
    return {a: numbers for a, numbers in authors.items() if all(rows[n].perturbed_answers for n in numbers)}


def _withhold_authors(
    rows: Mapping[int, Example], selection: CorpusSelection, *, needed: Collection[int]
) -> dict[int, Example]:
    """The rows with the last authors that nobody needs relabelled `holdout`, where the corpus brings too few along."""
    brought = {row.author for row in rows.values() if row.split == "holdout"}
    count = selection.holdout_authors - len(brought)
    if count <= 0:
        return dict(rows)
    utility = range(*selection.utility_author_range) if selection.utility_author_range else ()
    spare = sorted(author for author in _askable_authors(rows, None) if author not in needed and author not in utility)
    if len(spare) < count:
        raise ValueError(
            f"holdout_authors {selection.holdout_authors}: only {len(spare)} authors are left beside pool and utility; "
            "ask for fewer or widen author_ranges"
        )
    withheld = set(spare[-count:])
    return {
        number: replace(row, split="holdout") if row.author in withheld and row.split == "authors" else row
        for number, row in rows.items()
    }
