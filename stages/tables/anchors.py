"""Table `anchors`: the examples that stand for easily and hardly unlearned, and what every run alone would choose."""

import pyarrow as pa

from stages.tables.table import Table

VOTE_SEED = -1

ANCHORS = Table(
    "anchors",
    1,
    {
        "id": (pa.int64(), "example id"),
        "role": (pa.string(), "easy | hard"),
        "seed": (pa.int64(), "seed of the run that chose it; -1: the anchors that all runs together chose"),
        "method": (
            pa.string(),
            "unlearning method of the run; on seed -1: voted | filled (fewer runs agreed than asked)",
        ),
        "votes": (pa.int32(), "runs that chose it for this role"),
        "mean_rank": (pa.float64(), "rank in this role's order, mean over runs, 0 for the best"),
    },
)
