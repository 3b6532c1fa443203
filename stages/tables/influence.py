"""How much of an edit each forgotten example accounts for; empty for methods that have no exact audit."""

import pyarrow as pa

from stages.tables.table import Table

INFLUENCE = Table(
    name="influence",
    version=1,
    columns={
        "id": (pa.int64(), "example of the forget set; absent where a column cap left it out"),
        "layer": (pa.int32(), "block of the module; null for the unembedding"),
        "module": (pa.string(), "dotted name of the edited linear map"),
        "influence_norm": (pa.float64(), "‖P − P without this example‖_F, in units of the weight"),
        "relative": (pa.float64(), "the same over ‖P‖_F; shares need not add up to 1"),
    },
)
