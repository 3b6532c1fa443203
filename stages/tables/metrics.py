"""METRICS: every aggregated number of every model, with its interval and its direction."""

import pyarrow as pa

from stages.tables.table import Table

METRICS = Table(
    name="metrics",
    version=1,
    columns={
        "profile": (pa.string(), "name of the parameter file"),
        "model": (pa.string(), "model as named in params.models"),
        "edit": (pa.string(), "edit as named in params.edit; `target` or `retained` for the references"),
        "forget_set": (pa.string(), "set that the numbers are about"),
        "seed": (pa.int64(), "seed of the run"),
        "dtype": (pa.string(), "floating-point type of the computation"),
        "quantization": (pa.string(), "scheme applied to the weights; `none` for the weights as they are"),
        "split": (pa.string(), "forget, retain, real_authors, world_facts, holdout; utility and all combine several"),
        "metric": (pa.string(), "name in efface/evaluation/directions.py"),
        "value": (pa.float64(), "mean over examples or the statistic; null where undefined"),
        "n": (pa.int64(), "examples behind the value"),
        "ci_low": (pa.float64(), "lower end of the bootstrap interval over authors; null where there is none"),
        "ci_high": (pa.float64(), "upper end of the bootstrap interval over authors; null where there is none"),
        "direction": (pa.string(), "higher_is_better, lower_is_better, closer_to_reference or none"),
    },
)
