"""SUSTAINED: what a model is like after each of a series of deletion requests, edited one upon the other."""

import pyarrow as pa

from stages.tables.table import Table

SUSTAINED = Table(
    name="sustained",
    version=1,
    columns={
        "series": (pa.string(), "series as named in params.sustained"),
        "request": (pa.int64(), "requests carried out so far; 0 is the base"),
        "split": (
            pa.string(),
            "forget: rows of the requests so far (at 0 the whole set); first: of the first request; pending: of the "
            "requests to come; then retain, real_authors, world_facts, holdout, utility, all",
        ),
        "metric": (pa.string(), "as in the metrics table"),
        "value": (pa.float64(), "mean over the split"),
        "n": (pa.int64(), "examples behind the value"),
        "ci_low": (pa.float64(), "lower end of the bootstrap interval over authors; null where there is none"),
        "ci_high": (pa.float64(), "upper end of the bootstrap interval over authors; null where there is none"),
    },
)
