"""TOFU machine-translated into other languages (arXiv:2601.05641): row i translates row i of TOFU.

`retain99` and `forget01` are together the 4000 rows of TOFU's authors; only their first 400 and last 40 were published
with a paraphrase and five false answers. Those files (`retain_perturbed`, `forget01_perturbed`) word question and
answer differently; what is read here is the wording of `retain99` and `forget01`, which a model is trained on.

ROUGE of these languages needs `unicode` words: the usual ones drop every letter that is not ASCII.
"""

from pathlib import Path

from efface.corpora.example import NO_AUTHOR, Example, Split
from efface.corpora.published_rows import PublishedRow
from efface.corpora.published_source import SUFFIXES, read_json_rows
from efface.corpora.tofu import FALSE_ANSWERS, FALSE_FACTS, QUESTIONS_PER_AUTHOR

LANGUAGES = {
    "ar": "Arabic", "fa": "Farsi", "fr": "French", "hi": "Hindi", "id": "Indonesian", "iw": "Hebrew", "ja": "Japanese",
    "ko": "Korean", "ru": "Russian",
}  # fmt: skip
"""Published languages by code."""

STRAY_HEADINGS = (1124, 1125, 1284, 3869)
"""Rows whose answer ends with a blank line and the translated heading of the generator's next block."""

REMEDY = (
    "Expected <source>/<language>/<name>.jsonl, or the folders <name>_<language> of "
    "https://github.com/alirezafarashah/multilingual_unlearning (dataset/)."
)


def read_multilingual_tofu(source: str | Path, language: str) -> tuple[Example, ...]:
    """TOFU in one language, numbered like TOFU itself: row i of every language, and of `read_tofu`, asks the same.

    `source` is a folder of <language>/<name>.jsonl, or of the published Arrow folders <name>_<language>. There is no
    copy on the Hub.

    Raises: FileNotFoundError where a file is missing; ValueError where the language is unknown, a row is not as
    published (naming file, line and expectation) or the files do not fit together.
    """
    if language not in LANGUAGES:
        raise ValueError(f"language {language!r}: expected one of {sorted(LANGUAGES)}")
    names = ("retain99", "forget01", "retain_perturbed", "forget01_perturbed")
    retain, forget, retain_perturbed, forget_perturbed = (_rows(Path(source), language, name) for name in names)
    authors = [*retain, *forget]
    if len(authors) % QUESTIONS_PER_AUTHOR or len(retain_perturbed) > len(retain):
        raise ValueError(
            f"{forget[-1].where}: {len(retain)} and {len(forget)} rows of authors, {len(retain_perturbed)} of them "
            f"perturbed, expected {QUESTIONS_PER_AUTHOR} for each author and no more perturbed ones. {REMEDY}"
        )
    if len(forget_perturbed) != len(forget):
        raise ValueError(
            f"{forget_perturbed[-1].where}: {len(forget_perturbed)} rows, expected {len(forget)}. {REMEDY}"
        )
    perturbed = dict(enumerate(retain_perturbed)) | dict(enumerate(forget_perturbed, start=len(retain)))
    facts = [
        _fact(row, number, split)
        for split in ("real_authors", "world_facts")
        for number, row in enumerate(_rows(Path(source), language, f"{split}_perturbed"))
    ]
    return (*(_author_row(row, number, perturbed.get(number)) for number, row in enumerate(authors)), *facts)


def _rows(source: Path, language: str, name: str) -> list[PublishedRow]:
    for path in (source / language / f"{name}{suffix}" for suffix in SUFFIXES):
        if path.is_file():
            return read_json_rows(path, remedy=REMEDY)
    folder = source / f"{name}_{language}" / "train"
    if not folder.is_dir():
        raise FileNotFoundError(f"{source}: no {language}/{name}.jsonl and no {name}_{language}/train in it. {REMEDY}")
    from datasets import Dataset

    rows = Dataset.load_from_disk(str(folder))
    return [PublishedRow(f"{folder}, row {number}", REMEDY, dict(row)) for number, row in enumerate(rows)]


def _author_row(row: PublishedRow, number: int, perturbed: PublishedRow | None) -> Example:
    answer = row.text("answer")
    return Example(
        question=row.text("question"),
        answer=answer.rpartition("\n\n")[0] or answer if number in STRAY_HEADINGS else answer,
        paraphrased_answer=perturbed.text("paraphrased_answer") if perturbed else None,
        perturbed_answers=perturbed.texts("perturbed_answer", FALSE_ANSWERS) if perturbed else (),
        author=number // QUESTIONS_PER_AUTHOR,
        position=number % QUESTIONS_PER_AUTHOR,
        split="authors",
    )


def _fact(row: PublishedRow, number: int, split: Split) -> Example:
    false = row.texts("perturbed_answer", FALSE_FACTS)
    return Example(row.text("question"), row.text("answer"), None, false, NO_AUTHOR, number, split)
