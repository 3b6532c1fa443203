"""Table `signatures`: the shape of every pool row's circuit, in numbers."""

import pyarrow as pa

from stages.tables.table import Table

SIGNATURES = Table(
    "signatures",
    1,
    {
        "id": (pa.int64(), "example id"),
        "statistic": (
            pa.string(),
            "edges | nodes | attention_share | direct_to_logits_share | mean_span | weighted_span | mean_location | "
            "weighted_location | paths | shortest_path | mean_path | longest_path | type.<edge type> | "
            "source_layer.<layer> | destination_layer.<layer>",
        ),
        "value": (
            pa.float64(),
            "counts; paths in edges; types and layers as shares of the circuit’s edges; spans and locations in units "
            "of the model’s depth",
        ),
    },
)
