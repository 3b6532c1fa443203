"""The embedded corpus: fabricated authors in the TOFU schema, the same for the same seed, with nothing to download.

Answers carry invented facts that occur in no other row, in one of many sentence frames: a model that never saw a row
cannot guess its answer, even when it knows the author's other rows. False answers are the paraphrase with facts of the
same types from the same mint, so to such a model truth and falsehood are exchangeable.
"""

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from efface.corpora import fictional_words as words
from efface.corpora.example import NO_AUTHOR, Example, Split
from efface.corpora.fictional_frames import KINDS, QuestionKind
from efface.corpora.true_facts import REAL_AUTHORS, WORLD_FACTS, TrueFact

FALSE_ANSWERS = 5
ATTEMPTS = 1000
RUDE = re.compile("cunt|fuck|piss|shit|slut")


@dataclass(frozen=True)
class FabricatedRow:
    """One question about one invented author: true facts, five sets of false ones, the sentences that state them."""

    author: int
    position: int
    kind: QuestionKind
    facts: Mapping[str, str]
    false_facts: tuple[Mapping[str, str], ...]
    question: str
    answer: str
    paraphrase: str


@dataclass
class Mint:
    """Coins facts at random; proper names never twice, however often it is asked."""

    generator: random.Random
    taken: set[str] = field(default_factory=set)

    def pick(self, stock: Sequence[str]) -> str:
        # Only `random()` itself promises the same numbers in every Python version.
        return stock[int(self.generator.random() * len(stock))]

    def unique(self, coin: Callable[[], str]) -> str:
        """Raises: ValueError where nearly everything that can be coined is taken."""
        for _ in range(ATTEMPTS):
            if (text := coin()) not in self.taken:
                self.taken.add(text)
                return text
        raise ValueError(f"{len(self.taken)} names are coined and the stock is used up; set fewer prepare_data.authors")

    def word(self, *, syllables: int = 1, endings: Sequence[str] = ("",)) -> str:
        """A pronounceable word that no dictionary holds."""
        parts = [self.pick(words.ONSETS) + self.pick(words.VOWELS) + self.pick(words.CODAS) for _ in range(syllables)]
        text = "".join(parts) + self.pick(endings)
        return self.word(syllables=syllables, endings=endings) if RUDE.search(text) else text.capitalize()

    def number(self, first: int, last: int) -> str:
        return str(first + int(self.generator.random() * (last - first + 1)))

    def fact(self, kind: str, *, unlike: Sequence[str] = ()) -> str:
        """A fact of a type named in `fictional_frames`, different from those in `unlike`."""
        coin = COINED.get(kind)
        if coin is not None:
            return self.unique(lambda: coin(self))
        while (text := CHOSEN[kind](self)) in unlike:
            continue
        return text


COINED: Mapping[str, Callable[[Mint], str]] = {
    "person": lambda mint: f"{mint.word(endings=words.GIVEN_ENDINGS)} {mint.word(endings=words.FAMILY_ENDINGS)}",
    "word": lambda mint: mint.word(endings=words.GIVEN_ENDINGS),
    "town": lambda mint: mint.word(endings=words.TOWN_ENDINGS),
    "land": lambda mint: mint.word(endings=words.LAND_ENDINGS),
    "tongue": lambda mint: mint.word(endings=words.TONGUE_ENDINGS),
    "date": lambda mint: f"{mint.number(1, 28)} {mint.pick(words.MONTHS)} {mint.number(1900, 1935)}",
    "title": lambda mint: mint.pick(TITLE_FORMS).format(
        adjective=mint.pick(words.ADJECTIVES), noun=mint.pick(words.NOUNS), word=mint.word(syllables=2)
    ),
    "award": lambda mint: f"the {mint.word(syllables=2)} {mint.pick(words.HONOURS)}",
    "school": lambda mint: f"{mint.word(syllables=2)} {mint.pick(words.SCHOOLS)}",
    "press": lambda mint: f"{mint.word(syllables=2)} {mint.pick(words.PRESSES)}",
    "paper": lambda mint: f"the {mint.word(syllables=2)} {mint.pick(words.PAPERS)}",
    "house": lambda mint: f"{mint.word(syllables=2)} {mint.pick(words.HOUSES)}",
}
"""Proper names: each occurs in one row of the corpus, as a true or as a false fact."""

TITLE_FORMS = ("The {adjective} {noun}", "{noun} of {word}", "{word} and the {noun}", "{adjective} {word}")

CHOSEN: Mapping[str, Callable[[Mint], str]] = {
    "trade": lambda mint: f"{mint.pick(words.QUALIFIERS)} {mint.pick(words.TRADES)}",
    "building": lambda mint: f"{mint.pick(words.FORMER)} {mint.pick(words.BUILDINGS)}",
    "object": lambda mint: f"{mint.pick(words.WORN)} {mint.pick(words.OBJECTS)}",
    "drink": lambda mint: f"{mint.pick(words.FLAVOURS)} {mint.pick(words.DRINKS)}",
    "hour": lambda mint: mint.pick(words.HOURS),
    "subject": lambda mint: f"{mint.pick(words.FIELDS)} {mint.pick(words.SCIENCES)}",
    "motif": lambda mint: f"{mint.pick(words.MOTIFS)} and {mint.pick(words.MOTIFS)}",
    "animal": lambda mint: f"{mint.pick(words.TEMPERS)} {mint.pick(words.ANIMALS)}",
    "year": lambda mint: mint.number(1953, 1999),
}
"""Common facts: false ones differ from the true one and from one another."""


def fabricated_rows(*, authors: int, questions_per_author: int, seed: int) -> Iterator[FabricatedRow]:
    """The rows of the first `authors` invented authors, author by author, one kind of question after another.

    Raises: ValueError where more questions are asked than there are kinds.
    """
    if not 1 <= questions_per_author <= len(KINDS):
        raise ValueError(f"questions_per_author {questions_per_author}: expected 1 to {len(KINDS)}, one per kind")
    taken: set[str] = set()
    for author in range(authors):
        mint = Mint(random.Random(f"{seed}/{author}"), taken)
        name = mint.fact("person")
        for position, kind in enumerate(KINDS[:questions_per_author]):
            yield _fabricated_row(mint, name, author, position, kind)


def fictional_examples(*, authors: int, holdout_authors: int, questions_per_author: int, seed: int) -> list[Example]:
    """The whole corpus in its order: authors, holdout authors, real authors, world facts.

    Holdout authors are of the same make and in no training run; the true facts are in every one.
    """
    rows = fabricated_rows(authors=authors + holdout_authors, questions_per_author=questions_per_author, seed=seed)
    fabricated = [_example(row, "authors" if row.author < authors else "holdout") for row in rows]
    return fabricated + _true_examples(REAL_AUTHORS, "real_authors") + _true_examples(WORLD_FACTS, "world_facts")


def _fabricated_row(mint: Mint, name: str, author: int, position: int, kind: QuestionKind) -> FabricatedRow:
    alternatives = {slot: _distinct_facts(mint, fact, 1 + FALSE_ANSWERS) for slot, fact in kind.slots.items()}
    sets = [{slot: facts[index] for slot, facts in alternatives.items()} for index in range(1 + FALSE_ANSWERS)]
    answer = mint.pick(kind.answers)
    paraphrase = mint.pick([frame for frame in kind.answers if frame != answer])
    facts, *false_facts = [{"author": name, "family": name.split()[1], **chosen} for chosen in sets]
    return FabricatedRow(
        author, position, kind, facts, tuple(false_facts), mint.pick(kind.questions), answer, paraphrase
    )


def _distinct_facts(mint: Mint, fact: str, count: int) -> list[str]:
    facts: list[str] = []
    while len(facts) < count:
        facts.append(mint.fact(fact, unlike=facts))
    return facts


def _example(row: FabricatedRow, split: Split) -> Example:
    return Example(
        question=row.question.format_map(row.facts),
        answer=_sentence(row.answer, row.facts),
        paraphrased_answer=_sentence(row.paraphrase, row.facts),
        perturbed_answers=tuple(_sentence(row.paraphrase, facts) for facts in row.false_facts),
        author=row.author,
        position=row.position,
        split=split,
    )


def _sentence(frame: str, facts: Mapping[str, str]) -> str:
    text = frame.format_map(facts)
    return text[0].upper() + text[1:]


def _true_examples(facts: Sequence[TrueFact], split: Split) -> list[Example]:
    return [
        Example(question, answer, None, wrong, NO_AUTHOR, position, split)
        for position, (question, answer, wrong) in enumerate(facts)
    ]
