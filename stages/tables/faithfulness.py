"""Table `faithfulness`: how much of the model's behaviour circuits carry, beside random circuits of the same size."""

import pyarrow as pa

from stages.tables.table import Table

FAITHFULNESS = Table(
    "faithfulness",
    1,
    {
        "id": (pa.int64(), "example id"),
        "circuit": (pa.string(), "own (the example's, as extracted) | random (as many edges, grown at random)"),
        "baseline": (pa.string(), "what ablated edges carry: patching | mean | zero"),
        "edges": (pa.int32(), "edges of the circuit"),
        "metric_whole": (pa.float64(), "metric of extract_circuits with nothing ablated"),
        "metric_circuit": (pa.float64(), "with everything outside the circuit ablated"),
        "metric_complement": (pa.float64(), "with the circuit ablated"),
        "metric_empty": (pa.float64(), "with everything ablated"),
    },
)
