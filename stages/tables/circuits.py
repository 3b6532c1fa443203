"""Table `circuits`: scores of the kept edges of each pool row, and which of them are its circuit."""

import pyarrow as pa

from stages.tables.table import Table

CIRCUITS = Table(
    "circuits",
    1,
    {
        "id": (pa.int64(), "example id"),
        "edge_index": (pa.list_(pa.int32()), "kept edges, by number in table `edges`, ascending"),
        "score": (pa.list_(pa.float32()), "signed estimate of the metric's change when the edge is ablated"),
        "in_circuit": (pa.list_(pa.bool_()), "whether selection and pruning kept the edge"),
        "n_selected": (pa.int32(), "edges in the circuit; 0 where pruning left nothing"),
        "metric_clean": (pa.float32(), "the metric without ablation"),
        "baseline": (pa.string(), "what ablated sources output: patching (a corrupted partner's), mean or zero"),
    },
)
