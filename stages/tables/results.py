"""RESULTS: every metric of every example, of one model at one precision."""

from collections.abc import Iterable

import polars as pl
import pyarrow as pa

from stages.tables.table import Table

RESULTS = Table(
    name="results",
    version=1,
    columns={
        "model": (pa.string(), "model as named in params.models"),
        "quantization": (
            pa.string(),
            "scheme applied to the weights before measuring; `none` for the weights as they are",
        ),
        "dtype": (pa.string(), "floating-point type of the computation"),
        "id": (pa.int64(), "example"),
        "metric": (pa.string(), "answer_nll (nats per token), probability, truth_ratio (raw R), rougeL_recall, …"),
        "value": (pa.float64(), "value of the metric, finite"),
    },
)


def results_frame(scores: Iterable, *, model: str, quantization: str, dtype: str) -> pl.DataFrame:
    """Rows of RESULTS from `efface.evaluation.suite.ExampleScore`s."""
    scores = list(scores)
    return pl.DataFrame(
        {
            "model": model,
            "quantization": quantization,
            "dtype": dtype,
            "id": [score.id for score in scores],
            "metric": [score.metric for score in scores],
            "value": pl.Series([score.value for score in scores], dtype=pl.Float64),
        }
    )
