"""A Parquet table with a schema that writer and reader agree on."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq


class TableError(ValueError):
    """A Parquet file is not the table that its reader expects."""


@dataclass(frozen=True)
class Table:
    """Name, version and columns of one Parquet table; `columns` maps a name to (Arrow type, meaning with its unit)."""

    name: str
    version: int
    columns: Mapping[str, tuple[pa.DataType, str]]

    @property
    def schema(self) -> pa.Schema:
        fields = [pa.field(name, kind, metadata={"meaning": text}) for name, (kind, text) in self.columns.items()]
        return pa.schema(fields, metadata={"efface": json.dumps({"table": self.name, "version": self.version})})

    def write(self, path: str | Path, frame: pl.DataFrame) -> None:
        """Writes `frame` as one row group; columns are put in schema order and cast to the schema's types."""
        with self.writer(path) as writer:
            writer.append(frame)

    @contextmanager
    def writer(self, path: str | Path) -> Iterator["TableWriter"]:
        """A writer whose `append` adds one row group; the file appears under its name only when it is complete."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(path.name + ".unfinished")
        with pq.ParquetWriter(unfinished, self.schema, compression="zstd") as parquet:
            yield TableWriter(self, parquet)
        unfinished.replace(path)

    def read(self, path: str | Path) -> pl.DataFrame:
        """The whole table.

        Raises: TableError naming file, column and expectation where the file is missing, damaged or of another schema.
        """
        self._validate(Path(path))
        return pl.read_parquet(path, hive_partitioning=False)

    def scan(self, path: str | Path) -> pl.LazyFrame:
        """The table, read lazily, so that a filter or a column choice reads only what it needs."""
        self._validate(Path(path))
        return pl.scan_parquet(path, hive_partitioning=False)

    def _validate(self, path: Path) -> None:
        if not path.is_file():
            raise TableError(f"{path}: no such file. Run `dvc repro` to write it as table {self.name!r}.")
        remedy = f"Delete it and run `dvc repro` to write it again as table {self.name!r} version {self.version}."
        try:
            found = pq.read_schema(path)
        except (pa.ArrowInvalid, OSError) as error:
            raise TableError(f"{path}: not a readable Parquet file ({error}). {remedy}") from error
        stamp = json.loads((found.metadata or {}).get(b"efface", b"{}"))
        if (stamp.get("table"), stamp.get("version")) != (self.name, self.version):
            was = f"{stamp.get('table', 'unknown')!r} version {stamp.get('version', 'unknown')}"
            raise TableError(f"{path}: holds table {was}, expected {self.name!r} version {self.version}. {remedy}")
        for column, (kind, _) in self.columns.items():
            if column not in found.names:
                raise TableError(f"{path}: column {column!r} is missing, expected {kind}. {remedy}")
            if found.field(column).type != kind:
                have = found.field(column).type
                raise TableError(f"{path}: column {column!r} has type {have}, expected {kind}. {remedy}")


@dataclass(frozen=True)
class TableWriter:
    """Appends row groups to one open Parquet file."""

    table: Table
    parquet: pq.ParquetWriter

    def append(self, frame: pl.DataFrame) -> None:
        missing = set(self.table.columns) - set(frame.columns)
        unknown = set(frame.columns) - set(self.table.columns)
        if missing or unknown:
            raise TableError(
                f"table {self.table.name!r}: missing columns {sorted(missing)}, unknown columns {sorted(unknown)}; "
                f"expected exactly {list(self.table.columns)}"
            )
        arrow = frame.select(list(self.table.columns)).to_arrow()
        self.parquet.write_table(arrow.cast(self.table.schema))
