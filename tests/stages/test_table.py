"""A Parquet table is read back as it was written, or refused by name."""

import polars as pl
import pyarrow as pa
import pytest

from stages.tables.table import Table, TableError

SCORES = Table("scores", 1, {"id": (pa.int64(), "example"), "value": (pa.float32(), "score, 0 to 1")})
FRAME = pl.DataFrame({"value": [0.5, 0.25], "id": [3, 4]})


def test_written_table_reads_back_in_schema_order_with_the_same_bytes(tmp_path):
    SCORES.write(tmp_path / "a.parquet", FRAME)
    SCORES.write(tmp_path / "b.parquet", FRAME)
    assert SCORES.read(tmp_path / "a.parquet").columns == ["id", "value"]
    assert SCORES.read(tmp_path / "a.parquet")["value"].to_list() == [0.5, 0.25]
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_rows_stream_in_groups_and_nothing_appears_before_the_end(tmp_path):
    with SCORES.writer(tmp_path / "a.parquet") as writer:
        writer.append(FRAME)
        assert not (tmp_path / "a.parquet").exists()
        writer.append(FRAME)
    assert SCORES.scan(tmp_path / "a.parquet").select(pl.len()).collect().item() == 4


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (Table("scores", 2, SCORES.columns), r"version 1, expected 'scores' version 2"),
        (Table("rows", 1, SCORES.columns), r"holds table 'scores' version 1, expected 'rows'"),
        (Table("scores", 1, {"author": (pa.int32(), "")}), "column 'author' is missing, expected int32"),
        (Table("scores", 1, {"value": (pa.float64(), "")}), "column 'value' has type float, expected double"),
    ],
)
def test_older_schema_is_named_with_file_column_and_expectation(tmp_path, other, message):
    SCORES.write(tmp_path / "a.parquet", FRAME)
    with pytest.raises(TableError, match=message) as error:
        other.read(tmp_path / "a.parquet")
    assert "a.parquet" in str(error.value) and "dvc repro" in str(error.value)


def test_corrupted_and_missing_files_are_named(tmp_path):
    SCORES.write(tmp_path / "a.parquet", FRAME)
    (tmp_path / "a.parquet").write_bytes((tmp_path / "a.parquet").read_bytes()[:-9])
    with pytest.raises(TableError, match=r"a\.parquet: not a readable Parquet file"):
        SCORES.read(tmp_path / "a.parquet")
    with pytest.raises(TableError, match=r"b\.parquet: no such file"):
        SCORES.read(tmp_path / "b.parquet")


def test_frame_with_other_columns_is_refused(tmp_path):
    with pytest.raises(TableError, match=r"missing columns \['value'\], unknown columns \['score'\]"):
        SCORES.write(tmp_path / "a.parquet", pl.DataFrame({"id": [1], "score": [0.1]}))
