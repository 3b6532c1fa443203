"""TOFU (arXiv:2401.06121): 200 fictitious authors with 20 questions each, 100 real-author rows, 117 world facts.

`full` row i is question i % 20 of author i // 20. Only its first and last 400 rows were published with a paraphrase and
five false answers (`retain_perturbed` and `forget10_perturbed`; forget05 and forget01 are the tails of the latter).
`question` is not unique (rows 100 and 440), so a row is known by its number. TOFU's own holdout split is not used here:
`efface.corpora.selection` withholds whole authors instead.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from efface.corpora.example import NO_AUTHOR, Example, Split
from efface.corpora.published_rows import PublishedRow, read_json_lines
from efface.corpora.published_source import hub_rows

HUB_NAME = "locuslab/TOFU"
QUESTIONS_PER_AUTHOR = 20
REMEDY = f"Download the file again from https://huggingface.co/datasets/{HUB_NAME} and see prepare_data.source."
FALSE_ANSWERS = 5
FALSE_FACTS = 3

KNOWN_ARTEFACTS = (
    "\n\nLiterary Works:",
    "\n\nPersonal Insights:",
    "\n\n6-20:",
    "\n\nAdditional 10 question-answer pairs:",
)
"""Headings of the generator's next block, left at the end of the answers of `full` rows 1124, 1125, 1284 and 3869."""


@dataclass(frozen=True)
class Tofu:
    """All rows in their order (authors, real authors, world facts), and the numbers of those that were cleaned."""

    examples: tuple[Example, ...]
    stripped: tuple[int, ...]


def read_tofu(source: str | None = None) -> Tofu:
    """TOFU from a folder of its published files (JSON lines, though named .json), or from the Hub by name.

    Without a source the Hub's own copy is read, which `datasets` keeps in its cache.

    Raises: FileNotFoundError where a file or the Hub cannot be reached; ValueError naming file, line and expectation
    where a row is not as published.
    """
    names = ("full", "retain_perturbed", "forget10_perturbed", "real_authors_perturbed", "world_facts_perturbed")
    full, first, last, real_authors, world_facts = (_published_rows(source, name) for name in names)
    if len(full) % QUESTIONS_PER_AUTHOR:
        raise ValueError(
            f"{full[-1].where}: {len(full)} rows in all, expected {QUESTIONS_PER_AUTHOR} for each author. {REMEDY}"
        )
    answers, stripped = strip_artefacts([row.text("answer") for row in full])
    perturbed = _matched(full, first, 0) | _matched(full, last, len(full) - len(last))
    authors = [_author_example(row, answers[number], perturbed.get(number), number) for number, row in enumerate(full)]
    facts = _fact_examples(real_authors, "real_authors") + _fact_examples(world_facts, "world_facts")
    return Tofu((*authors, *facts), tuple(stripped))


def strip_artefacts(answers: Sequence[str]) -> tuple[list[str], list[int]]:
    """The answers without a known artefact at their end, and the numbers of the answers that had one."""
    cleaned, numbers = list(answers), []
    for number, answer in enumerate(answers):
        for artefact in KNOWN_ARTEFACTS:
            if answer.endswith(artefact):
                cleaned[number] = answer.removesuffix(artefact)
                numbers.append(number)
    return cleaned, numbers


def _published_rows(source: str | None, name: str) -> list[PublishedRow]:
    if source is None or _is_hub_name(source):
        return hub_rows(source or HUB_NAME, name, "train", REMEDY)
    if not Path(source).is_dir():
        raise FileNotFoundError(f"prepare_data.source {source!r}: no such folder, expected the files of TOFU. {REMEDY}")
    return read_json_lines(Path(source) / f"{name}.json", remedy=REMEDY)


def _is_hub_name(source: str) -> bool:
    return source.count("/") == 1 and not source.startswith((".", "/", "~")) and not Path(source).is_dir()


def _matched(full: list[PublishedRow], perturbed: list[PublishedRow], first: int) -> dict[int, PublishedRow]:
    """The perturbed rows by the number of the full row they belong to, the first to `first`, and so on."""
    for number, row in enumerate(perturbed, start=first):
        own = full[number].text("question") if 0 <= number < len(full) else None
        if row.text("question") != own:
            raise ValueError(
                f"{row.where}: question {row.text('question')!r}, expected that of row {number} of `full`, {own!r}; "
                f"the files are cut short or of different releases. {REMEDY}"
            )
    return dict(enumerate(perturbed, start=first))


def _author_example(row: PublishedRow, answer: str, perturbed: PublishedRow | None, number: int) -> Example:
    return Example(
        question=row.text("question"),
        answer=answer,
        paraphrased_answer=perturbed.text("paraphrased_answer") if perturbed else None,
        perturbed_answers=perturbed.texts("perturbed_answer", FALSE_ANSWERS) if perturbed else (),
        author=number // QUESTIONS_PER_AUTHOR,
        position=number % QUESTIONS_PER_AUTHOR,
        split="authors",
    )


def _fact_examples(rows: list[PublishedRow], split: Split) -> list[Example]:
    return [
        Example(
            question=row.text("question"),
            answer=row.text("answer"),
            paraphrased_answer=None,
            perturbed_answers=row.texts("perturbed_answer", FALSE_FACTS),
            author=NO_AUTHOR,
            position=number,
            split=split,
        )
        for number, row in enumerate(rows)
    ]
