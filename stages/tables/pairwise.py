"""PAIRWISE: how far the edits of one forget set are from each other, on the same examples."""

import pyarrow as pa

from stages.tables.table import Table

PAIRWISE = Table(
    name="pairwise",
    version=1,
    columns={
        "profile": (pa.string(), "name of the parameter file"),
        "forget_set": (pa.string(), "set that both edits forgot"),
        "quantization": (pa.string(), "scheme applied to the weights of both models"),
        "first": (pa.string(), "edit as named in params.edit"),
        "second": (pa.string(), "edit whose value is subtracted"),
        "split": (pa.string(), "forget, retain, utility or all"),
        "metric": (pa.string(), "probability, rougeL_recall, extraction_strength, model_utility or final_score"),
        "difference": (pa.float64(), "the first edit's value minus the second's"),
        "ci_low": (pa.float64(), "lower end of the bootstrap interval over authors; null where there is none"),
        "ci_high": (pa.float64(), "upper end of the bootstrap interval over authors; null where there is none"),
        "n": (pa.int64(), "examples behind the values"),
        "p": (pa.float64(), "two-sided p of the difference, from its bootstrap standard error"),
        "p_holm": (pa.float64(), "p corrected by Holm over all pairs of one set, quantization and metric"),
    },
)
