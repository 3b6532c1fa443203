"""Table `difficulty`: CUD of every pool row, by every source of anchors, similarity and weighting of circuits."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pyarrow as pa

from stages.tables.anchors import ALL_RUNS
from stages.tables.table import Table

DIFFICULTY = Table(
    "difficulty",
    3,
    {
        "id": (pa.int64(), "example id"),
        "source": (pa.string(), "whose anchors: all runs’ (all), or those of one method alone"),
        "similarity": (pa.string(), "cosine | jaccard | hamming"),
        "weighting": (pa.string(), "binary | weighted (signed scores)"),
        "s_easy": (pa.float64(), "similarity with the easy anchor circuit"),
        "s_hard": (pa.float64(), "similarity with the hard anchor circuit"),
        "cud": (pa.float64(), "0 at the easy anchor to 1 at the hard one"),
        "undefined": (pa.bool_(), "true where the circuit is empty or both distances vanish; cud is then 0.5"),
        "chosen": (pa.bool_(), "true under the similarity and weighting of params.score_cud, by which sets are made"),
        "anchor": (pa.string(), "easy | hard where this row is itself an anchor, else null"),
    },
)


def read_cud(folder: Path, ids: Sequence[int]) -> list[float]:
    """CUD of each example, as it made the forget sets.

    Raises: FileNotFoundError or ValueError where the folder has no scores, or none of an example.
    """
    path = folder / "difficulty.parquet"
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no difficulty scores; set this grid item's `reads` to data/score_cud")
    scores = dict(DIFFICULTY.read(path).filter(pl.col("chosen"), source=ALL_RUNS).select("id", "cud").iter_rows())
    missing = [number for number in ids if number not in scores]
    if missing:
        raise ValueError(f"{path}: no CUD of examples {missing[:5]}; expected one for every row of the pool")
    return [scores[number] for number in ids]
