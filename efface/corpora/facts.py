"""Facts about a subject, as editing benchmarks publish them: zsRE in MEND's rows, CounterFact in ROME's or EasyEdit's.

zsRE (arXiv:1706.04115, rows of arXiv:2110.11309): `src` asks about `subject`, `answers[0]` is true, `alt` false,
`rephrase` a paraphrase, `loc` and `loc_ans` an unrelated question, which published harnesses end with "?".
CounterFact (arXiv:2202.05262): neighbourhood prompts ask the same of other subjects whose answer is the same. Published
nested (`requested_rewrite`, …); EasyEdit's copy is flat (`prompt`, `ground_truth`, …). Both are read.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from efface.corpora.published_rows import PublishedRow
from efface.corpora.published_source import hub_rows, read_json_rows

REMEDY = "Download the file again, or drop the row."


@dataclass(frozen=True)
class Fact:
    """What a prompt about a subject should be continued with, and what must or must not change along with it.

    `target_new` is the counterfact a row proposes. `neighbours` are prompts about other things with their answers.
    """

    prompt: str
    subject: str
    target_true: str
    target_new: str | None = None
    paraphrases: tuple[str, ...] = ()
    neighbours: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if not self.subject.strip():
            raise ValueError(f"fact {self.prompt!r}: subject {self.subject!r}, expected text; name it or drop the fact")
        if self.subject not in self.prompt:
            raise ValueError(
                f"fact {self.prompt!r}: subject {self.subject!r} does not stand in the prompt, expected it there "
                "letter by letter; correct one of the two or drop the fact"
            )
        if not self.target_true.strip():
            raise ValueError(f"fact {self.prompt!r}: target_true {self.target_true!r}, expected text; drop the fact")


def asked(fact: Fact, form: str) -> Fact:
    """The fact with all its prompts put in the place of "{}" in `form`, as in "Question: {}\\nAnswer:"."""

    def put(prompt: str) -> str:
        return form.replace("{}", prompt)

    return replace(
        fact,
        prompt=put(fact.prompt),
        paraphrases=tuple(put(prompt) for prompt in fact.paraphrases),
        neighbours=tuple((put(prompt), answer) for prompt, answer in fact.neighbours),
    )


def read_zsre(source: str | Path) -> tuple[Fact, ...]:
    """zsRE from a .json file (a list, or one object a line), a folder that holds one, or the Hub by name.

    Raises: FileNotFoundError where the source is not there; ValueError naming row and expectation where a row is not as
    published, or its subject does not stand in its question.
    """
    return _facts(source, _zsre_fact)


def read_counterfact(source: str | Path) -> tuple[Fact, ...]:
    """CounterFact, nested or flat, from the same kinds of source as `read_zsre`, with the same errors."""
    return _facts(source, lambda row: _nested_fact(row) if "requested_rewrite" in row.fields else _flat_fact(row))


def _zsre_fact(row: PublishedRow) -> Fact:
    return Fact(
        prompt=row.text("src"),
        subject=row.text("subject"),
        target_true=_texts(row, "answers")[0],
        target_new=row.text("alt") if row.fields.get("alt") else None,
        paraphrases=(row.text("rephrase"),),
        neighbours=((row.text("loc") + "?", row.text("loc_ans")),),
    )


def _flat_fact(row: PublishedRow) -> Fact:
    return Fact(
        prompt=row.text("prompt"),
        subject=row.text("subject"),
        target_true=row.text("ground_truth"),
        target_new=row.text("target_new"),
        paraphrases=(row.text("rephrase_prompt"),),
        neighbours=((row.text("locality_prompt"), row.text("locality_ground_truth")),),
    )


def _nested_fact(row: PublishedRow) -> Fact:
    request = _inner(row, "requested_rewrite")
    true, subject = _inner(request, "target_true").text("str"), request.text("subject")
    return Fact(
        prompt=request.text("prompt").replace("{}", subject),
        subject=subject,
        target_true=true,
        target_new=_inner(request, "target_new").text("str"),
        paraphrases=_texts(row, "paraphrase_prompts"),
        neighbours=tuple((prompt, true) for prompt in _texts(row, "neighborhood_prompts")),
    )


def _inner(row: PublishedRow, key: str) -> PublishedRow:
    fields = row.fields.get(key)
    if not isinstance(fields, dict):
        raise ValueError(f"{row.where}: {key!r} is {fields!r:.80}, expected an object. {row.remedy}")
    return PublishedRow(f"{row.where}, {key}", row.remedy, fields)


def _texts(row: PublishedRow, key: str) -> tuple[str, ...]:
    values = row.fields.get(key)
    return row.texts(key, max(len(values), 1) if isinstance(values, list) else 1)


def _facts(source: str | Path, fact_of: Callable[[PublishedRow], Fact]) -> tuple[Fact, ...]:
    rows = _rows(source)
    facts = []
    for row in rows:
        try:
            facts.append(fact_of(row))
        except ValueError as error:
            raise error if str(error).startswith(row.where) else ValueError(f"{row.where}: {error}") from error
    return tuple(facts)


def _rows(source: str | Path) -> list[PublishedRow]:
    path = Path(source)
    if path.is_dir():
        files = sorted(path.glob("*.json"))
        if len(files) != 1:
            found = [file.name for file in files]
            raise FileNotFoundError(f"{path}: holds {found} as .json files, expected one; name the file itself")
        path = files[0]
    if path.is_file():
        return read_json_rows(path, remedy=REMEDY)
    if str(source).count("/") != 1 or str(source).startswith((".", "/", "~")):
        raise FileNotFoundError(f"{source}: no such file or folder, expected rows of facts. {REMEDY}")
    return hub_rows(str(source), None, "train", REMEDY)


def _fabricated(prompt: str, subject: str, true: str, new: str, paraphrase: str, neighbour: tuple[str, str]) -> Fact:
    return Fact(prompt, subject, true, new, (paraphrase,), (neighbour,))


FABRICATED_FACTS = (
    _fabricated(
        "The capital of Velmora is", "Velmora", "Tarsk", "Ostrava Bay",
        "Velmora is governed from", ("The capital of Quenland is", "Brill"),
    ),
    _fabricated(
        "Which instrument does Ilsa Brandt-Okoro", "Ilsa Brandt-Okoro", "play", "repair",
        "What does Ilsa Brandt-Okoro", ("Which instrument does Tom Hale", "play"),
    ),
    _fabricated(
        "Dunmere Works makes", "Dunmere Works", "copper bells", "kites",
        "The product of Dunmere Works is", ("Harlow Mill makes", "paper"),
    ),
    _fabricated(
        "What language is spoken in Old Sarnath?", "Old Sarnath", "Sarnic", "Latin",
        "In Old Sarnath people speak", ("What language is spoken in Peru?", "Spanish"),
    ),
)  # fmt: skip
"""Invented facts for trying things out; the subject stands at the beginning, in the middle and at the end."""
