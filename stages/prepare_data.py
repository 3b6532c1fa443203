"""Reads the corpus, chooses pool and forget sets, and makes or fetches the tokenizer."""

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
from tqdm import tqdm

from efface.corpora.example import Example, content_hash
from efface.corpora.fictional import fictional_examples
from efface.corpora.roles import Roles, assign_roles, choose_forget_sets, is_trained
from efface.corpora.selection import CorpusSelection, select_rows
from efface.corpora.tofu import read_tofu
from efface.corpora.vocabulary import PretrainedTokenizer, train_byte_bpe
from stages.external_source import located
from stages.tables.examples import EXAMPLES
from stages.tables.forget_sets import FORGET_SETS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from efface.tokenization import Template

OUTPUT = Path("data/prepare_data")
SETS = Path("data/forget_sets")


def main(item: str | None = None) -> None:
    from stages.params import load_params

    params = load_params()
    selection, seed = params.prepare_data, params.seed
    rows, roles = assign_roles(select_rows(_read_corpus(selection, seed), selection), selection, seed=seed)
    sets = choose_forget_sets(rows, roles, size=selection.forget_set_size, random_sets=selection.random_sets, seed=seed)
    tokenizer = _tokenizer(selection, rows.values())
    _check_encodable(tokenizer, rows, template=params.tokenization.template, max_length=params.tokenization.max_length)

    EXAMPLES.write(OUTPUT / "examples.parquet", _examples_frame(rows, roles))
    tokenizer.save_pretrained(OUTPUT / "tokenizer")
    for name, numbers in sets.items():
        FORGET_SETS.write(SETS / f"{name}.parquet", pl.DataFrame({"id": numbers, "role": ["forget"] * len(numbers)}))


def _read_corpus(selection: CorpusSelection, seed: int) -> list[Example]:
    if selection.corpus == "fictional":
        return fictional_examples(
            authors=selection.authors,
            holdout_authors=selection.holdout_authors,
            questions_per_author=selection.questions_per_author,
            seed=seed,
        )
    tofu = read_tofu(selection.source and located(selection.source))
    print(f"TOFU: known artefacts stripped from the answers of rows {list(tofu.stripped)}", file=sys.stderr)
    return list(tofu.examples)


def _tokenizer(selection: CorpusSelection, examples: Iterable[Example]) -> "PreTrainedTokenizerBase":
    if isinstance(selection.tokenizer, PretrainedTokenizer):
        from efface.models import load_tokenizer

        return load_tokenizer(located(selection.tokenizer.source))
    return train_byte_bpe(map(_read_text, examples), vocab_size=selection.tokenizer.vocab_size)


def _read_text(example: Example) -> str:
    """Everything a model reads of one example, worded as `efface.tokenization` words it."""
    from efface.tokenization import PLAIN_PROMPT

    return "".join([PLAIN_PROMPT.format(question=example.question), *(f" {answer}" for answer in _answers(example))])


def _check_encodable(
    tokenizer: "PreTrainedTokenizerBase", rows: Mapping[int, Example], *, template: "Template", max_length: int
) -> None:
    """Refuses a corpus of which a later stage could not read a row.

    Raises: ValueError naming the row where an answer has no tokens or does not fit.
    """
    from efface.tokenization import encode

    for number, example in tqdm(rows.items(), desc="check tokens", file=sys.stderr):
        for answer in _answers(example):
            try:
                encode(tokenizer, example.question, answer, template=template, max_length=max_length)
            except ValueError as error:
                raise ValueError(f"row {number} ({example.split}): {error}") from error


def _answers(example: Example) -> list[str]:
    return [text for text in (example.answer, example.paraphrased_answer, *example.perturbed_answers) if text]


def _examples_frame(rows: Mapping[int, Example], roles: Roles) -> pl.DataFrame:
    records = [
        {
            "id": number,
            "content_hash": content_hash(example.question, example.answer),
            **{name: getattr(example, name) for name in Example.__dataclass_fields__},
            "perturbed_answers": list(example.perturbed_answers),
            "trained": is_trained(example),
            "pool": number in roles.pool,
            "anchor_candidate": number in roles.anchor_candidates,
            "utility": number in roles.utility,
        }
        for number, example in rows.items()
    ]
    return pl.DataFrame(records, infer_schema_length=None)
