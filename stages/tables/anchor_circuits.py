"""Table `anchor_circuits`: the circuit of each anchor set, from its examples' mean signed scores."""

import pyarrow as pa

from stages.tables.table import Table

ANCHOR_CIRCUITS = Table(
    "anchor_circuits",
    2,
    {
        "source": (pa.string(), "whose anchors: all runs’ (all), or those of one method alone"),
        "role": (pa.string(), "easy | hard"),
        "edge_index": (pa.list_(pa.int32()), "edge in table `edges`"),
        "score": (pa.list_(pa.float32()), "mean signed score over the anchor's examples"),
        "in_circuit": (pa.list_(pa.bool_()), "whether the selection kept the edge"),
    },
)
