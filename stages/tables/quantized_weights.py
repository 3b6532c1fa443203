"""QUANTIZED_WEIGHTS: what each quantization scheme leaves of an edit, per module; empty for models that are no edit."""

import pyarrow as pa

from stages.tables.table import Table

QUANTIZED_WEIGHTS = Table(
    name="quantized_weights",
    version=1,
    columns={
        "model": (pa.string(), "edited model as named in params.models"),
        "scheme": (pa.string(), "quantization scheme"),
        "module": (pa.string(), "dotted name of a quantized linear map"),
        "layer": (pa.int32(), "its block, from 0; null for the unembedding"),
        "changed_code_share": (
            pa.float64(),
            "share of weights whose code differs between quantized edit and quantized base, 0 to 1",
        ),
        "delta_norm": (pa.float64(), "‖P‖_F of the edit P, in units of the weight; 0 where it left the module alone"),
        "surviving_delta_norm": (pa.float64(), "‖Q(W+P) − Q(W)‖_F, in units of the weight"),
    },
)
