"""Table `requested`: the examples of one set of deletion requests, and how hard each is to forget, before any edit."""

import pyarrow as pa

from stages.tables.table import Table

REQUESTED = Table(
    name="requested",
    version=1,
    columns={
        "id": (pa.int64(), "row of the examples table"),
        "content_hash": (pa.string(), "SHA-256 in hex of question, zero byte, answer"),
        "role": (pa.string(), "forget | withdrawn"),
        "cud": (pa.float64(), "difficulty, 0 easy to 1 hard; null where its circuit leaves it undefined"),
        "harder_than": (pa.float64(), "share of the other pool rows with a defined CUD that are easier, 0 … 1"),
    },
)
