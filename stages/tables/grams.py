"""Index of `grams.safetensors`: one float64 Gram matrix of keys per linear map and part of the data."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from stages.tables.table import Table, TableError

if TYPE_CHECKING:
    from efface.activations.key_statistics import KeyGram

AUTHORS, AUTHORS_UTILITY, REAL_AUTHORS, WORLD_FACTS = "authors", "authors_utility", "real_authors", "world_facts"
PARTS = (AUTHORS, AUTHORS_UTILITY, REAL_AUTHORS, WORLD_FACTS)
GRAM_FILE = "grams.safetensors"

GRAMS = Table(
    name="grams",
    version=1,
    columns={
        "module": (pa.string(), "dotted name of the linear map"),
        "split": (
            pa.string(),
            "authors (trained, measuring no utility; the pool is here) | authors_utility | real_authors | world_facts",
        ),
        "n_columns": (pa.int64(), "keys that were summed: answer tokens, end tokens included"),
        "key": (pa.string(), "name of the matrix in grams.safetensors"),
    },
)


def read_gram(folder: str | Path, module: str, parts: Sequence[str]) -> "KeyGram":
    """The Gram matrix of one module over several parts of the data.

    Raises: TableError where a part of the module is not there.
    """
    from safetensors import safe_open

    from efface.activations.key_statistics import KeyGram

    index = GRAMS.read(Path(folder) / "grams.parquet").filter(pl.col("module") == module, pl.col("split").is_in(parts))
    if index.is_empty():
        raise TableError(
            f"{folder}/grams.parquet: no Gram matrix of {module!r} over {list(parts)}; run extract_activations"
        )
    with safe_open(Path(folder) / GRAM_FILE, framework="pt") as file:
        grams = [KeyGram(file.get_tensor(row["key"]), row["n_columns"]) for row in index.iter_rows(named=True)]
    total = grams[0]
    for gram in grams[1:]:
        total = total.plus(gram)
    return total
