"""PAIRED: how far each model is from the target and from the retained model, example by example."""

import pyarrow as pa

from stages.tables.table import Table

PAIRED = Table(
    name="paired",
    version=1,
    columns={
        "profile": (pa.string(), "name of the parameter file"),
        "model": (pa.string(), "model as named in params.models"),
        "edit": (pa.string(), "edit as named in params.edit; `target` or `retained` for the references"),
        "forget_set": (pa.string(), "set that the numbers are about"),
        "seed": (pa.int64(), "seed of the run"),
        "quantization": (pa.string(), "scheme applied to the weights of both models"),
        "reference": (pa.string(), "`target` or `retained`: the model subtracted"),
        "split": (pa.string(), "forget, retain, real_authors, world_facts or holdout"),
        "metric": (pa.string(), "per-example metric"),
        "mean_difference": (pa.float64(), "mean over examples of the model's value minus the reference's"),
        "ci_low": (pa.float64(), "lower end of the bootstrap interval over authors; null where there is none"),
        "ci_high": (pa.float64(), "upper end of the bootstrap interval over authors; null where there is none"),
        "n": (pa.int64(), "examples behind the mean"),
    },
)
