"""Which rows of the examples table a model is measured on."""

from typing import Any

import polars as pl

from efface.corpora.example import Example
from stages.encoded_rows import EXAMPLES_FILE
from stages.tables.examples import EXAMPLES


def evaluated_examples() -> dict[int, Example]:
    """Example id → example: pool rows that may be forgotten, rows that measure utility, true facts, holdout rows.

    Raises: ValueError where there is none.
    """
    outside = pl.col("split").is_in(["real_authors", "world_facts", "holdout"])
    may_be_forgotten = pl.col("pool") & ~pl.col("anchor_candidate")
    rows = EXAMPLES.scan(EXAMPLES_FILE).filter(may_be_forgotten | pl.col("utility") | outside).sort("id").collect()
    if rows.is_empty():
        raise ValueError(f"{EXAMPLES_FILE}: no row is in the pool, measures utility or is held out; check prepare_data")
    return {row["id"]: _example(row) for row in rows.iter_rows(named=True)}


def _example(row: dict[str, Any]) -> Example:
    fields = {name: row[name] for name in Example.__dataclass_fields__ if name != "perturbed_answers"}
    return Example(**fields, perturbed_answers=tuple(row["perturbed_answers"]))
