"""One forget set: which rows are to be forgotten; everything else the target was trained on is retained."""

from pathlib import Path

import polars as pl
import pyarrow as pa

from stages.tables.table import Table

FORGET_SETS = Table(
    name="forget_sets",
    version=1,
    columns={
        "id": (pa.int64(), "row of the examples table"),
        "role": (pa.string(), "forget | withdrawn: was to be forgotten, until its request was taken back"),
    },
)


def forgotten_ids(path: str | Path) -> pl.Series:
    """The rows that a set asks to forget."""
    return ids_of(path, "forget")


def ids_of(path: str | Path, *roles: str) -> pl.Series:
    """The rows of a set that have one of these roles."""
    return FORGET_SETS.read(path).filter(pl.col("role").is_in(roles))["id"]
