"""Rows of the examples table as tokens."""

from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from stages.params import Tokenization

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from efface.tokenization import Encoding

EXAMPLES_FILE = Path("data/prepare_data/examples.parquet")
TOKENIZER_FOLDER = Path("data/prepare_data/tokenizer")


def encoded_rows(
    rows: pl.DataFrame, tokenizer: "PreTrainedTokenizerBase", tokenization: Tokenization
) -> list["Encoding"]:
    """Question and answer of every row, in order."""
    from efface.tokenization import encode

    pairs = rows.select("question", "answer").iter_rows()
    return [encode(tokenizer, question, answer, **tokenization.model_dump()) for question, answer in pairs]
