"""ROUGE between a generated and a true answer, with a tokenizer that knows every script."""

import unicodedata
from dataclasses import dataclass
from functools import cache
from typing import Literal

import regex
from nltk.stem.porter import PorterStemmer
from rouge_score.rouge_scorer import RougeScorer
from rouge_score.tokenize import tokenize as ascii_tokens

Words = Literal["ascii", "unicode"]
UNSPACED = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}ー]"
WORD = regex.compile(rf"{UNSPACED}\p{{M}}*|[[\p{{L}}\p{{M}}\p{{N}}]--{UNSPACED}]+", regex.V1)


@dataclass(frozen=True)
class RougeScore:
    """Word overlap in [0, 1]; recall is the share of the true answer that was found."""

    rouge1_recall: float
    rougeL_recall: float
    rougeL_f1: float


def rouge_score(truth: str, generated: str, *, words: Words = "ascii", stem: bool = True) -> RougeScore:
    """ROUGE-1 and ROUGE-L of `generated` against `truth` by the rouge_score package; Porter stemmer on by default.

    `ascii` words are that package's own, as in TOFU and open-unlearning: lower case, every other letter separates.
    `unicode` words are letters, marks and digits of any script (NFKC, lower case), one character each in scripts
    without spaces; only ASCII words are stemmed.

    Raises: ValueError where `truth` is mostly of letters that `ascii` words drop, or has no words at all.
    """
    _check(truth, words)
    scores = _scorer(words, stem).score(target=truth, prediction=generated)
    return RougeScore(
        rouge1_recall=float(scores["rouge1"].recall),
        rougeL_recall=float(scores["rougeL"].recall),
        rougeL_f1=float(scores["rougeL"].fmeasure),
    )


@dataclass(frozen=True)
class UnicodeWords:
    """A tokenizer for rouge_score that keeps the words of every script."""

    stemmer: PorterStemmer | None

    def tokenize(self, text: str) -> list[str]:
        return [self._stem(word) for word in unicode_words(text)]

    def _stem(self, word: str) -> str:
        return self.stemmer.stem(word) if self.stemmer and word.isascii() and len(word) > 3 else word


def unicode_words(text: str) -> list[str]:
    """Runs of letters, marks and digits in lower case; one word per character where a script writes no spaces."""
    return WORD.findall(unicodedata.normalize("NFKC", text).lower())


@cache
def _scorer(words: Words, stem: bool) -> RougeScorer:
    if words == "ascii":
        return RougeScorer(["rouge1", "rougeL"], use_stemmer=stem)
    if words == "unicode":
        return RougeScorer(["rouge1", "rougeL"], tokenizer=UnicodeWords(PorterStemmer() if stem else None))
    raise ValueError(f"words {words!r}: expected 'ascii' or 'unicode'")


def _check(truth: str, words: Words) -> None:
    letters = [character for character in truth if character.isalpha()]
    foreign = sum(not character.isascii() for character in letters)
    if words == "ascii" and 2 * foreign > len(letters):
        raise ValueError(
            f"true answer {truth!r}: {foreign} of {len(letters)} letters are not ASCII and would be dropped, "
            "ROUGE would be near 0 for any model; set evaluate.rouge_words: unicode"
        )
    if not (ascii_tokens(truth, None) if words == "ascii" else unicode_words(truth)):
        raise ValueError(f"true answer {truth!r} has no words; ROUGE is undefined, drop the row")
