"""How much training on one part of the data changed each module: the size of the task matrices."""

import pyarrow as pa

from stages.tables.table import Table

ENERGIES = Table(
    name="energies",
    version=1,
    columns={
        "module": (pa.string(), "dotted name of a linear module"),
        "layer": (pa.int32(), "its block, from 0"),
        "partition": (pa.string(), "forget or retain: the rows trained on"),
        "frobenius_norm": (pa.float64(), "Frobenius norm of the module's whole weight change, before truncation"),
        "energy_share": (pa.float64(), "E_l of the module's layer: its norm over the sum of all layers' norms"),
        "rank": (pa.int32(), "directions kept in the factors"),
    },
)
