"""Table `anchors`: the examples that stand for easily and hardly unlearned, by all runs and by some of them alone."""

import pyarrow as pa

from stages.tables.table import Table

ALL_RUNS = "all"

ANCHORS = Table(
    "anchors",
    2,
    {
        "id": (pa.int64(), "example id"),
        "role": (pa.string(), "easy | hard"),
        "source": (pa.string(), "which runs voted: all | those of one method | one run, as method-seed"),
        "agreed": (pa.bool_(), "false where fewer runs chose it than asked, and it fills the set up"),
        "votes": (pa.int32(), "runs that chose it for this role"),
        "mean_rank": (pa.float64(), "rank in this role's order, mean over runs, 0 for the best"),
    },
)
