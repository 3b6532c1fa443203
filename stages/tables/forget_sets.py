"""One forget set: which rows are to be forgotten; everything else the target was trained on is retained."""

import pyarrow as pa

from stages.tables.table import Table

FORGET_SETS = Table(
    name="forget_sets",
    version=1,
    columns={
        "id": (pa.int64(), "row of the examples table"),
        "role": (pa.string(), "forget"),
    },
)
