"""Table `edges`: every edge of the target's computation graph; tables of circuits name edges by their number here."""

import pyarrow as pa

from stages.tables.table import Table

EDGES = Table(
    "edges",
    1,
    {
        "edge": (pa.int32(), "number of the edge, from 0"),
        "source": (pa.string(), "input, a{layer}.h{head} or m{layer}"),
        "destination": (pa.string(), "a{layer}.h{head}<q|k|v>, m{layer} or logits"),
        "source_index": (pa.int32(), "row of the source"),
        "destination_index": (pa.int32(), "column of the destination"),
        "source_layer": (pa.int32(), "layer of the source, -1 for input"),
        "destination_layer": (pa.int32(), "layer of the destination, the number of layers for logits"),
    },
)
