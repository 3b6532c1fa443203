"""Which corpus is prepared, how much of it, and how large pool and sets are."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from efface.corpora.example import Example
from efface.corpora.vocabulary import PretrainedTokenizer, TrainedTokenizer

AuthorRange = tuple[int, int]
"""First author, and the first author that is no longer meant."""


@dataclass(frozen=True)
class CorpusSelection:
    """What `prepare_data` prepares: the corpus, how much of it, the sizes of pool and sets, and the tokenizer.

    `source` (tofu): a folder of the published files, or a name on the Hub; null is the Hub's own copy.
    `authors`, `questions_per_author` (fictional): how many are fabricated.
    `holdout_authors`: how many are kept out of every training run.
    `pool_rows`, `anchor_candidates`: rows that may be forgotten; how many of them are kept apart for anchors.
    `utility_rows`: rows of authors outside the pool on which utility is measured.
    `forget_set_size`, `random_sets`: rows in every forget set; how many sets `random_1` … there are.
    `real_authors`, `world_facts`: how many of these rows are used; null is all.
    `author_ranges`: the authors used, as [first, end) pairs; null is all.
    `pool_author_range`, `utility_author_range`: where the authors of pool and utility rows come from; null is anywhere.

    Raises: ValueError where a size is out of range or the sizes do not fit together.
    """

    corpus: Literal["fictional", "tofu"] = "fictional"
    source: str | None = None
    authors: int = 40
    questions_per_author: int = 10
    holdout_authors: int = 4
    pool_rows: int = 160
    anchor_candidates: int = 60
    utility_rows: int = 60
    forget_set_size: int = 30
    random_sets: int = 3
    real_authors: int | None = None
    world_facts: int | None = None
    author_ranges: tuple[AuthorRange, ...] | None = None
    pool_author_range: AuthorRange | None = None
    utility_author_range: AuthorRange | None = None
    tokenizer: TrainedTokenizer | PretrainedTokenizer = field(default_factory=TrainedTokenizer)

    def __post_init__(self) -> None:
        if self.corpus == "fictional" and self.source is not None:
            raise ValueError(f"source {self.source!r}: the fictional corpus is embedded; remove source or set corpus")
        positive = (
            "authors",
            "questions_per_author",
            "pool_rows",
            "anchor_candidates",
            "utility_rows",
            "forget_set_size",
        )
        for name, least in [*((name, 1) for name in positive), ("holdout_authors", 0), ("random_sets", 0)]:
            _at_least(name, getattr(self, name), least)
        _at_least("real_authors", self.real_authors or 0, 0)
        _at_least("world_facts", self.world_facts or 0, 0)
        if self.pool_rows - self.anchor_candidates < self.forget_set_size:
            raise ValueError(
                f"pool_rows {self.pool_rows} less anchor_candidates {self.anchor_candidates} leaves fewer than "
                f"forget_set_size {self.forget_set_size} rows to draw a forget set from; raise pool_rows"
            )
        ranges = [*(self.author_ranges or ()), self.pool_author_range, self.utility_author_range]
        for author_range in filter(None, ranges):
            if not 0 <= author_range[0] < author_range[1]:
                raise ValueError(f"author range {list(author_range)}: expected [first, end] with 0 ≤ first < end")


def select_rows(examples: Sequence[Example], selection: CorpusSelection) -> dict[int, Example]:
    """The rows used, by their number in the whole corpus."""
    limits = {"real_authors": selection.real_authors, "world_facts": selection.world_facts}

    def used(example: Example) -> bool:
        if example.split in limits:
            limit = limits[example.split]
            return limit is None or example.position < limit
        ranges = selection.author_ranges
        return ranges is None or any(first <= example.author < end for first, end in ranges)

    for split, limit in limits.items():
        held = sum(example.split == split for example in examples)
        if limit is not None and limit > held:
            raise ValueError(f"{split} {limit}: the corpus {selection.corpus!r} has {held} such rows; ask for fewer")
    return {number: example for number, example in enumerate(examples) if used(example)}


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise ValueError(f"{name} {value}: expected at least {least}")
