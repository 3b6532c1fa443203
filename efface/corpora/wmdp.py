"""WMDP (arXiv:2403.03218) and MMLU (arXiv:2009.03300): questions with four choices, one of them right."""

from dataclasses import dataclass
from pathlib import Path

from efface.corpora.published_rows import PublishedRow
from efface.corpora.published_source import SUFFIXES, read_json_rows, source_rows

WMDP, MMLU = "cais/wmdp", "cais/mmlu"
WMDP_SUBJECTS = {"wmdp-bio": "biology", "wmdp-chem": "chemistry", "wmdp-cyber": "cybersecurity"}
REMEDY = f"Name a file or folder of JSON lines with `question`, `choices` and `answer`, or {WMDP} or {MMLU}."


@dataclass(frozen=True)
class ChoiceQuestion:
    """A question, its choices, and the place of the right one; `subject` in words ("high school biology"), if known.

    Raises: ValueError where there are fewer than two choices or `answer` is not the place of one.
    """

    question: str
    choices: tuple[str, ...]
    answer: int
    subject: str | None = None

    def __post_init__(self) -> None:
        if len(self.choices) < 2:
            raise ValueError(f"question {self.question!r:.80}: {len(self.choices)} choices, expected at least 2")
        if self.answer not in range(len(self.choices)):
            raise ValueError(
                f"question {self.question!r:.80}: answer {self.answer!r}, expected the place of one of "
                f"{len(self.choices)} choices, from 0"
            )


def read_choice_questions(
    source: str | Path, *, configuration: str | None = None, split: str = "test", subject: str | None = None
) -> tuple[ChoiceQuestion, ...]:
    """The questions of a file, of all JSON files of a folder in the order of their names, or of the Hub by name.

    With `configuration` ("wmdp-bio", or an MMLU subject) only the folder's file of that name is read. The subject is a
    row's own field, else the argument, else what WMDP's configuration is about.

    Raises: FileNotFoundError where a file or the Hub cannot be reached; ValueError naming row, key and expectation.
    """
    subject = subject or WMDP_SUBJECTS.get(configuration or "")
    return tuple(_question(row, subject) for row in _rows(Path(source), str(source), configuration, split))


def _rows(path: Path, source: str, configuration: str | None, split: str) -> list[PublishedRow]:
    if path.is_file():
        return read_json_rows(path, remedy=REMEDY)
    if configuration is None and path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES)
        if not files:
            raise FileNotFoundError(f"{path}: holds no .json or .jsonl file. {REMEDY}")
        return [row for file in files for row in read_json_rows(file, remedy=REMEDY)]
    return source_rows(source, configuration or "", configuration=configuration, split=split, remedy=REMEDY)


def _question(row: PublishedRow, subject: str | None) -> ChoiceQuestion:
    choices, answer = row.fields.get("choices"), row.fields.get("answer")
    count = len(choices) if isinstance(choices, list) else 0
    texts = row.texts("choices", max(count, 2))
    if type(answer) is not int or answer not in range(count):
        raise ValueError(
            f"{row.where}: 'answer' is {answer!r}, expected a whole number from 0 to {count - 1}. {REMEDY}"
        )
    own = row.text("subject").replace("_", " ") if row.fields.get("subject") else None
    return ChoiceQuestion(row.text("question"), texts, answer, own or subject)
