"""MUSE (arXiv:2407.06460): news articles or a series of novels that a model is to forget.

Published as folders or configurations: `raw` (whole texts: forget, retain1, retain2, holdout), `verbmem/forget` (prompt
and the text that follows it), `knowmem` (questions on forget and retain texts, and ten of each to show the form of an
answer), `privleak` (texts that were trained on, forget and retain, and texts that were not, holdout).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from transformers import PreTrainedTokenizerBase

from efface.corpora.published_rows import PublishedRow
from efface.corpora.published_source import source_rows
from efface.tokenization import Encoding

HUB_NAMES = {"news": "muse-bench/MUSE-News", "books": "muse-bench/MUSE-Books"}
REMEDY = (
    "Name a folder of MUSE's files (knowmem/forget_qa.json, verbmem/forget.json, privleak/forget.json, "
    f"raw/forget.json, …), or {HUB_NAMES['news']} or {HUB_NAMES['books']}."
)
RawSplit = Literal["forget", "retain1", "retain2", "holdout"]


@dataclass(frozen=True)
class Passage:
    """The beginning of a text and how it goes on."""

    prompt: str
    continuation: str


@dataclass(frozen=True)
class Question:
    """A question about a text, and its short answer."""

    question: str
    answer: str


@dataclass(frozen=True)
class Knowledge:
    """Questions about one set of texts, and other questions that show how they are to be answered."""

    questions: tuple[Question, ...]
    shots: tuple[Question, ...]


@dataclass(frozen=True)
class Muse:
    """What MUSE measures with: passages (VerbMem), questions (KnowMem), members and non-members (PrivLeak)."""

    passages: tuple[Passage, ...]
    forget_knowledge: Knowledge
    retain_knowledge: Knowledge
    forget_texts: tuple[str, ...]
    retain_texts: tuple[str, ...]
    holdout_texts: tuple[str, ...]


def read_muse(source: str | Path) -> Muse:
    """MUSE's evaluation rows from a folder of JSON files or from the Hub by name; raw texts are read apart.

    Raises: FileNotFoundError where a file or the Hub cannot be reached; ValueError naming row, key and expectation.
    """
    return Muse(
        passages=tuple(Passage(row.text("prompt"), row.text("gt")) for row in _rows(source, "verbmem", "forget")),
        forget_knowledge=_knowledge(source, "forget"),
        retain_knowledge=_knowledge(source, "retain"),
        forget_texts=_texts(source, "privleak", "forget"),
        retain_texts=_texts(source, "privleak", "retain"),
        holdout_texts=_texts(source, "privleak", "holdout"),
    )


def read_raw_texts(source: str | Path, split: RawSplit) -> tuple[str, ...]:
    """The whole texts of a split, which a model is trained on; sources and errors as in `read_muse`."""
    return _texts(source, "raw", split)


def text_encoding(tokenizer: PreTrainedTokenizerBase, text: str, *, max_length: int = 2048) -> Encoding:
    """A text as it stands, every token scored but the first (BOS where the tokenizer writes one), cut at `max_length`.

    No end token: published scores of whole texts have none.

    Raises: ValueError where fewer than two tokens are left, so that none is predicted.
    """
    ids = (*_bos(tokenizer), *tokenizer(text, add_special_tokens=False)["input_ids"])[:max_length]
    if len(ids) < 2:
        raise ValueError(f"text {text!r:.80} has {len(ids)} tokens within max_length={max_length}, expected at least 2")
    return Encoding(ids, 1)


def windows(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], *, size: int = 2048) -> list[Encoding]:
    """The texts joined by blank lines and cut into consecutive windows of `size` tokens, BOS before each.

    Every token of the joined text stands in exactly one window; the last may be shorter. Without a BOS the first token
    of a window is not scored, and a last window of a single token is left out.

    Departs from open-unlearning: which decodes each piece and tokenizes it again, so that pieces may change.
    Raises: ValueError where there is no text or a window has no room.
    """
    if not texts:
        raise ValueError("no texts to cut into windows; expected at least one")
    bos = _bos(tokenizer)
    room = size - len(bos)
    if room < 1 or size < 2:
        raise ValueError(f"windows of {size} tokens: expected at least 2, one to predict from and one to predict")
    ids = tuple(tokenizer("\n\n".join(texts), add_special_tokens=False)["input_ids"])
    pieces = [(*bos, *ids[start : start + room]) for start in range(0, len(ids), room)]
    return [Encoding(piece, 1) for piece in pieces if len(piece) > 1]


def _bos(tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """The BOS id where this tokenizer begins a text with one."""
    return tuple(id for id in tokenizer("")["input_ids"][:1] if id == tokenizer.bos_token_id)


def _knowledge(source: str | Path, subject: str) -> Knowledge:
    return Knowledge(_questions(source, f"{subject}_qa"), _questions(source, f"{subject}_qa_icl"))


def _questions(source: str | Path, split: str) -> tuple[Question, ...]:
    return tuple(Question(row.text("question"), row.text("answer")) for row in _rows(source, "knowmem", split))


def _texts(source: str | Path, configuration: str, split: str) -> tuple[str, ...]:
    return tuple(row.text("text") for row in _rows(source, configuration, split))


def _rows(source: str | Path, configuration: str, split: str) -> list[PublishedRow]:
    return source_rows(source, f"{configuration}/{split}", configuration=configuration, split=split, remedy=REMEDY)
