"""One question with its answer, whichever corpus it comes from."""

import hashlib
from dataclasses import dataclass
from typing import Literal, get_args

Split = Literal["authors", "holdout", "real_authors", "world_facts"]
NO_AUTHOR = -1


@dataclass(frozen=True)
class Example:
    """A question, its true answer, and what truth-ratio metrics need: a paraphrase and false answers worded like it.

    `author` numbers the person asked about (−1: none); `position` counts the author's questions from 0,
    or the rows of a split without authors. `holdout` rows are in no training run.

    Raises: ValueError where a text is empty or the split is unknown.
    """

    question: str
    answer: str
    paraphrased_answer: str | None
    perturbed_answers: tuple[str, ...]
    author: int
    position: int
    split: Split

    def __post_init__(self) -> None:
        if self.split not in get_args(Split):
            raise ValueError(f"split {self.split!r}: expected one of {list(get_args(Split))}")
        texts = [("question", self.question), ("answer", self.answer)]
        if self.paraphrased_answer is not None:
            texts.append(("paraphrased_answer", self.paraphrased_answer))
        texts += [(f"perturbed_answers[{index}]", text) for index, text in enumerate(self.perturbed_answers)]
        for field, text in texts:
            if not text.strip():
                raise ValueError(
                    f"{field} {text!r} of author {self.author}, position {self.position}, split {self.split!r} is empty"
                    f" (question {self.question!r}); give it text or drop the row from the corpus"
                )


def content_hash(question: str, answer: str) -> str:
    """SHA-256, in hex, of question and answer joined by a zero byte: who asks for a row by content finds it by this."""
    return hashlib.sha256(f"{question}\0{answer}".encode()).hexdigest()
