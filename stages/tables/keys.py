"""Keys of the pool: what one linear map reads at each position that predicts an answer token. One file per module."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from stages.tables.table import Table, TableError

if TYPE_CHECKING:
    from efface.activations.key_statistics import Keys


def keys_table(width: int) -> Table:
    """The table of a module whose keys have `width` dimensions."""
    return Table(
        name="keys",
        version=1,
        columns={
            "id": (pa.int64(), "example; rows of one example follow each other by position"),
            "position": (pa.int32(), "0-based position in prompt and answer; it predicts the next one"),
            "gold_token": (pa.int32(), "token at the next position"),
            "key": (pa.list_(pa.field("element", pa.float32()), width), "input of the module, in its own units"),
        },
    )


def keys_path(folder: str | Path, module: str) -> Path:
    """Where the keys of one module are: a Hive partition."""
    return Path(folder) / "keys" / f"module={module}" / "part.parquet"


def read_keys(folder: str | Path, module: str, ids: Sequence[int]) -> "Keys":
    """Keys of these examples; `Keys.examples` are places in `ids`.

    Raises: TableError where the module has no keys, or an example has none (it is not in the pool).
    """
    import torch

    from efface.activations.key_statistics import Keys

    path = keys_path(folder, module)
    if not path.is_file():
        known = sorted(found.name.removeprefix("module=") for found in (Path(folder) / "keys").glob("module=*"))
        raise TableError(
            f"{path}: no keys of module {module!r}, only of {known}; run extract_activations with its layer"
        )
    width = pq.read_schema(path).field("key").type.list_size
    frame = keys_table(width).scan(path).filter(pl.col("id").is_in(list(ids))).collect()
    missing = sorted(set(ids) - set(frame["id"].unique()))
    if missing:
        raise TableError(f"{path}: no keys of examples {missing[:5]}; only rows of the pool have keys")
    place = {example: index for index, example in enumerate(ids)}
    return Keys(
        torch.from_numpy(frame["key"].to_numpy().copy()),
        torch.from_numpy(frame["gold_token"].to_numpy().astype("int64")),
        torch.tensor([place[example] for example in frame["id"]]),
    )
